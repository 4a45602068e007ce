"""Our own training, input, evaluation and decoding, as the benchmark's rows run them."""

import itertools
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp

from experiments.benchmarks import decoding, measuring, workloads
from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.data import batching, tokenizer
from transformer_jax.decoding import beam_search, translator
from transformer_jax.distributed import memory, sharding
from transformer_jax.evaluation import evaluators
from transformer_jax.models import interface
from transformer_jax.training import step as step_lib

SIZES = {False: 2048, True: 8192}  # of the ceiling's matrices, on a CPU and on an accelerator


class Steps:
    """Training steps of a configuration, over a few batches in turn.

    Attributes:
      predicted_bytes: most memory that should be in use, known before the first step.
    """

    def __init__(
        self,
        program: jax.stages.Compiled,
        config: config_lib.Config,
        mesh: jax.sharding.Mesh,
        batches: Sequence[sequences.Batch],
    ) -> None:
        """Puts on the devices what the step takes.

        Args:
          program: the compiled step.
          config: what to train.
          mesh: the devices.
          batches: NumPy's.
        """
        self._step: Any = program
        # A device's peak is of arrays, of which there are none yet; a process's is of all it has.
        before = measuring.peak_resident_bytes() if measuring.peak_device_bytes() is None else 0
        self.predicted_bytes = before + (memory.of_program(program) or 0)
        self._batches = itertools.cycle([sharding.put(batch, mesh) for batch in batches])
        self._rest = (step_lib.hyperparameters(config), jax.random.key(0))
        model = models.build(config.model, config.data.vocab_size)
        self._state = step_lib.init_state(model, config, mesh)

    def run(self, steps: int) -> None:
        """Takes so many steps, until the last one's result is there."""
        for batch in itertools.islice(self._batches, steps):
            self._state, _ = self._step(self._state, batch, *self._rest)
        jax.block_until_ready(self._state)

    def peak_bytes(self) -> int | None:
        """Most memory in use on the accelerator so far; None on a CPU."""
        return measuring.peak_device_bytes()


class Training(Steps):
    """Steps over batches of one kind.

    Attributes:
      compile_seconds: spent on tracing and compiling the step.
    """

    def __init__(self, workload: str, batches: str, kind: str, dtype: str) -> None:
        """Compiles the step.

        Args:
          workload: the name of what to train.
          batches: the path of their file.
          kind: "padded" or "packed".
          dtype: what the model computes in.
        """
        chosen, length = workloads.all_workloads()[workload], workloads.LENGTHS[kind]
        changes: dict[str, Any] = {
            "model.compute_dtype": dtype,
            "train.batch_tokens": chosen.positions,
            "data.source_length": length,
            "data.target_length": length,
        }
        config = config_lib.replace(chosen.config, changes)
        mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1))
        model = models.build(config.model, config.data.vocab_size)
        start = time.perf_counter()
        program = step_lib.compile_step(model, config, mesh)
        self.compile_seconds = time.perf_counter() - start
        super().__init__(program, config, mesh, workloads.read(pathlib.Path(batches), kind))


class Input:
    """Packed batches as training reads them, with nobody who trains on them."""

    compile_seconds = 0.0

    def __init__(self, workload: str, **corpus: str) -> None:
        """Starts reading.

        Args:
          workload: the name of the one whose batches they are.
          corpus: as `workloads.load` takes it.
        """
        chosen = workloads.all_workloads()[workload]
        batches = workloads.packed(workloads.load(**corpus), chosen, steps=10**9)
        self._batches = batches.from_step(0)

    def run(self, steps: int) -> None:
        """Reads so many batches."""
        for _ in itertools.islice(self._batches, steps):
            pass

    def peak_bytes(self) -> int | None:
        """Not of interest."""
        return None


class Evaluation:
    """Perplexity and beam search over some sentences, as at the end of a run.

    The weights are not trained, so that translations do not end of themselves: each gets as many
    tokens as its source and `EXTRA` more.
    """

    EXTRA = 10
    compile_seconds = 0.0

    def __init__(self, workload: str, sentences: int, **corpus: str) -> None:
        """Builds both.

        Args:
          workload: the name of the one whose model it is.
          sentences: how many.
          corpus: as `workloads.load` takes it.
        """
        dataset = workloads.load(**corpus)
        chosen = workloads.all_workloads()[workload]
        config = config_lib.replace(chosen.config, {"decode.extra_tokens": self.EXTRA})
        mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1))
        model = models.build(config.model, config.data.vocab_size)
        self._params = step_lib.init_state(model, config, mesh).params
        chosen_pairs = dataset.dev.first(sentences)
        self._perplexity = evaluators.perplexity(model, chosen_pairs, config.data, mesh)
        self._sources = chosen_pairs.source_ids
        self._search = beam_search.BeamSearch(cast(Any, Endless(model)), config.decode)

    def run(self, steps: int) -> None:
        """Evaluates so many times."""
        for _ in range(steps):
            self._perplexity(self._params)
            for group in batching.padded_batches(self._sources, None, len(self._sources), 16):
                jax.block_until_ready(self._search(self._params, group.batch.source))

    def peak_bytes(self) -> int | None:
        """Not of interest."""
        return None


class Ceiling:
    """Products of two square matrices: what this machine's compiler makes of the best case.

    Attributes:
      work: of one product.
    """

    compile_seconds = 0.0

    def __init__(self, dtype: str) -> None:
        """Makes the matrices, of numbers of this type."""
        size = SIZES[jax.default_backend() != "cpu"]
        self.work = {"flops": 2 * size**3}
        self._matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
        self._product = jax.jit(lambda a: a @ a)

    def run(self, steps: int) -> None:
        """Takes so many products, one after another."""
        found = self._matrix
        for _ in range(steps):  # nothing keeps a result: thousands of them fit into no memory
            found = self._product(self._matrix)
        jax.block_until_ready(found)

    def peak_bytes(self) -> int | None:
        """Not of interest."""
        return None


class Endless:
    """A model that never ends a sentence."""

    def __init__(self, model: interface.Decoder) -> None:
        self._model = model

    def apply(self, *arguments: Any, method: str) -> Any:
        """As the model's own."""
        found = self._model.apply(*arguments, method=method)
        if method != "decode_step":
            return found
        logits, state = found
        return logits.at[..., tokenizer.EOS].set(-jnp.inf), state


class Decoding(decoding.DecodingContender):
    """Beam search of ours."""

    def prepare(self) -> None:
        """Builds a translator that searches as CTranslate2 does."""
        forced, trained = self.case.forced, self.case.translator
        extra = decoding.FORCED_LENGTH - decoding.FORCED_SOURCE if forced else 50
        how = {"beam_size": 4, "alpha": 0.6, "penalty": "length", "extra_tokens": extra}
        changes = {f"decode.{name}": value for name, value in how.items()}
        changes["decode.batch_sentences"] = decoding.BATCH * (os.cpu_count() or 1)
        self._translator = translator.Translator(
            cast(Any, Endless(trained.model)) if forced else trained.model,
            trained.params,
            trained.tokenizer,
            config_lib.replace(trained.config, changes),
            sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1)),
        )

    def translate(self) -> list[list[int]]:
        """Translates all sentences, as many side by side as there are cores."""
        found = {
            place: ids
            for group in self._translator.search(self.case.sources)
            for place, ids in group.items()
        }
        return [found[place] for place in range(len(found))]
