"""Our own training step, as the benchmark's rows run it."""

import dataclasses
import itertools
import pathlib
import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.speed import decoding, workloads
from transformer_jax import config as config_lib
from transformer_jax import models
from transformer_jax.data import batching, tokenizer
from transformer_jax.decoding import beam_search
from transformer_jax.training import sharding
from transformer_jax.training import step as step_lib

SIZES = {False: 2048, True: 8192}  # of the ceiling's matrices, on a CPU and on an accelerator


class Training:
    """Steps over batches of one kind.

    Attributes:
      compile_seconds: spent on tracing and compiling the step.
    """

    def __init__(
        self, workload: workloads.Workload, path: pathlib.Path, kind: str, dtype: str
    ) -> None:
        """Compiles the step.

        Args:
          workload: what to train.
          path: the file of batches.
          kind: "padded" or "packed".
          dtype: what the model computes in.
        """
        model_config = dataclasses.replace(workload.config.model, compute_dtype=dtype)
        config = dataclasses.replace(workload.config, model=model_config)
        mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1))
        model = models.build(config.model, config.data.vocab_size)
        batches = [sharding.put(batch, mesh) for batch in workloads.read(path, kind)]
        self._batches = itertools.cycle(batches)
        self._rest = (step_lib.hyperparameters(config), jax.random.key(0))
        self._state = step_lib.init_state(model, config, mesh)
        start = time.perf_counter()
        step: Any = step_lib.make_step(model, config, mesh)
        self._step = step.lower(self._state, batches[0], *self._rest).compile()
        self.compile_seconds = time.perf_counter() - start

    def run(self, steps: int) -> None:
        """Takes so many steps, until the last one's result is there."""
        for batch in itertools.islice(self._batches, steps):
            self._state, _ = self._step(self._state, batch, *self._rest)
        jax.block_until_ready(self._state)

    def peak_bytes(self) -> int | None:
        """Most memory in use on the accelerator so far; None on a CPU."""
        stats = jax.devices()[0].memory_stats()
        return stats["peak_bytes_in_use"] if stats else None


class Ceiling:
    """Products of two square matrices: what this machine's compiler makes of the best case."""

    compile_seconds = 0.0

    def __init__(self, workload: workloads.Workload, path: pathlib.Path, dtype: str) -> None:
        """Makes the matrices.

        Args:
          workload: not used.
          path: not used.
          dtype: of the matrices.
        """
        del workload, path
        size = SIZES[jax.default_backend() != "cpu"]
        self.flops = 2 * size**3
        self._matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
        self._product = jax.jit(lambda a: a @ a)

    def run(self, steps: int) -> None:
        """Takes so many products."""
        jax.block_until_ready([self._product(self._matrix) for _ in range(steps)])

    def peak_bytes(self) -> int | None:
        """Not of interest."""
        return None


class _Endless:
    """A model that never ends a sentence."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def apply(self, *arguments: Any, method: str) -> Any:
        """As the model's own."""
        found = self._model.apply(*arguments, method=method)
        if method != "decode_step":
            return found
        logits, state = found
        return logits.at[..., tokenizer.END].set(-jnp.inf), state


class Decoding(decoding.Contender):
    """Beam search of ours."""

    def __init__(
        self, workload: workloads.Workload | None, path: pathlib.Path, run: str, forced: bool
    ) -> None:
        """As `decoding.Contender`; the workload is not used."""
        del workload
        super().__init__(path, run, forced)

    def prepare(self) -> None:
        """Builds the search."""
        forced, model = self.case.forced, self.case.translator.model
        extra = decoding.FORCED_LENGTH - decoding.FORCED_SOURCE if forced else 50
        config = config_lib.DecodeConfig(4, 0.6, "length", extra, decoding.BATCH)
        searched: Any = _Endless(model) if forced else model
        self._search = beam_search.build(searched, config)

    def translate(self) -> list[list[int]]:
        """Translates all sentences, those of similar length together."""
        sources, params = self.case.sources, self.case.translator.params
        found: list[list[int]] = [[]] * len(sources)
        multiple = decoding.FORCED_SOURCE
        for group in batching.padded_batches(sources, None, decoding.BATCH, multiple):
            tokens = np.asarray(self._search(params, group.batch.source).tokens)
            for index, row in zip(group.indices, tokens.tolist(), strict=False):
                end = row.index(tokenizer.END) if tokenizer.END in row else len(row)
                found[index] = row[:end]
        return found
