"""Contenders that need no corpus: any config's steps and searches, on made-up sentences.

They run on one device. How fast it multiplies depends on shapes, packing and masks, not on what
sentences say. Lengths are spread about as those of WMT's training set; words follow Zipf's law,
since a table's gradient is summed more slowly where a word comes often.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.benchmarks import cost, measuring, ours, workloads
from transformer_jax import config as config_lib
from transformer_jax import errors, models, sequences
from transformer_jax.data import batching, packing, tokenizer
from transformer_jax.decoding import beam_search, translator
from transformer_jax.distributed import memory, sharding
from transformer_jax.models import embedding, interface, kernels
from transformer_jax.training import losses
from transformer_jax.training import step as step_lib

PIECES = 28  # of a sentence, about: WMT's have 25 words in English
SPREAD, BETWEEN = 0.6, 0.15  # of the logarithms: of lengths, and of a target's beside its source's
PARTS = (1, 2, 4, 8, 16)  # in which a batch may be computed
COMPARED_ROWS = 8  # of a batch, on which two kernels are compared
SMOOTHING = 0.1


def lengths(config: config_lib.DataConfig, pairs: int) -> list[np.ndarray]:
    """Source and target pieces of so many pairs, end tokens not counted, that fit into rows."""
    rng = np.random.default_rng(0)
    # A lognormal distribution's mean is exp(mu + sigma² / 2).
    source = rng.normal(np.log(PIECES) - SPREAD**2 / 2, SPREAD, pairs)
    target = source + rng.normal(0, BETWEEN, pairs)
    return [
        np.clip(np.exp(side).astype(int), 1, room - 1)
        for side, room in ((source, config.source_length), (target, config.target_length))
    ]


def batches(config: config_lib.Config, rows: int, number: int) -> list[sequences.Batch]:
    """Packed batches, made as training's are.

    Args:
      config: row lengths, vocabulary and how many pairs are packed together.
      rows: of a batch.
      number: of batches.
    """
    data, rng = config.data, np.random.default_rng(1)
    source, target = lengths(data, data.packing_window)
    plan = packing.Plan(
        source + 1, target + 1, data.source_length, data.target_length, data.packing_window, 0
    )

    def sentence(length: int) -> np.ndarray:
        return words(rng, length, data.vocab_size)

    return [
        batching.fill(
            [
                [(sentence(source[pair]), sentence(target[pair])) for pair in pairs]
                for pairs in plan.rows(batch * rows, (batch + 1) * rows)
            ],
            data.source_length,
            data.target_length,
        )
        for batch in range(number)
    ]


def words(rng: np.random.Generator, length: int, vocab_size: int) -> np.ndarray:
    """So many words: the r-th comes about 1 / r as often as the first; none is a control token."""
    first = tokenizer.UNK + 1
    # The inverse of the distribution function of the density 1 / r between 1 and the last rank.
    ranks = np.exp(rng.random(length) * np.log(vocab_size - first))
    return first + ranks.astype(np.int32) - 1


def _configured(config: Mapping[str, Any], dtype: str, **more: Any) -> config_lib.Config:
    changes = {"model.compute_dtype": dtype, **more}
    return config_lib.replace(config_lib.from_mapping(config), changes)


def _one_device() -> jax.sharding.Mesh:
    return sharding.make_mesh(config_lib.MeshConfig(1, 1, 1), jax.devices()[:1])


class MadeUpTraining(ours.Steps):
    """Steps over packed batches, in as few parts as fit into the device's memory.

    Attributes:
      compile_seconds: spent on tracing and compiling the step, which a cache makes short.
      work: of one step.
      facts: what the step is, for the record.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        dtype: str,
        kernel: str,
    ) -> None:
        """Compiles the step.

        Args:
          config: what to train, as `config_lib.from_mapping` reads it.
          dtype: what the model computes in.
          kernel: of attention.
        """
        mesh = _one_device()
        asked = _configured(config, dtype, **{"model.attention_kernel": kernel})
        start = time.perf_counter()
        fitting, program = _fitting(asked, mesh)
        self.compile_seconds = time.perf_counter() - start
        rows = step_lib.rows_of(fitting, mesh)
        made = batches(fitting, rows, workloads.BATCHES)
        super().__init__(program, fitting, mesh, made)
        # Of plain attention whatever the kernel, whose own products no trace shows.
        counted = {"train.num_steps": 1, "model.attention_kernel": kernels.PLAIN}
        one_step = config_lib.replace(fitting, counted)
        self.work = {
            "flops": cost.training_flops(one_step),
            "positions": rows * fitting.data.target_length,
            "tokens": workloads.real_tokens(made),
        }
        self.facts = {
            "rows": rows,
            "accumulation_steps": fitting.train.accumulation_steps,
            "attention": kernels.describe(fitting),
            "program_bytes": memory.of_program(program),
        }


def _fitting(
    config: config_lib.Config, mesh: jax.sharding.Mesh
) -> tuple[config_lib.Config, jax.stages.Compiled]:
    """The config, its batch in as few parts as fit, and its step.

    Raises:
      UserError: none of `PARTS` does.
    """
    model = models.build(config.model, config.data.vocab_size)
    there = memory.of_device(mesh)
    for parts in PARTS:
        changed = config_lib.replace(config, {"train.accumulation_steps": parts})
        program = step_lib.compile_step(model, changed, mesh)
        needed = memory.of_program(program)
        if needed is None or there is None or needed <= there:
            return changed, program
    raise errors.UserError(f"a step does not fit into {there:,} bytes in {PARTS[-1]} parts")


class Search:
    """Beam search of one batch, by a model that is not trained: no translation ends of itself.

    Each gets as many tokens as its source has and `ours.Evaluation.EXTRA` more.

    Attributes:
      work: of one batch.
      facts: what is searched.
    """

    compile_seconds = 0.0

    def __init__(
        self,
        config: Mapping[str, Any],
        dtype: str,
        sentences: int,
    ) -> None:
        """Builds it.

        Args:
          config: model and search, as `config_lib.from_mapping` reads it.
          dtype: what the model computes in.
          sentences: of the batch.
        """
        extra = ours.Evaluation.EXTRA
        found = _configured(config, dtype, **{"decode.extra_tokens": extra})
        mesh, vocab_size = _one_device(), found.data.vocab_size
        model = models.build(found.model, vocab_size)
        params = step_lib.init_state(model, found, mesh).params
        self._weights = translator.cast(params, found.model.dtype)
        self._search = beam_search.BeamSearch(cast(Any, ours.Endless(model)), found.decode, mesh)
        rng = np.random.default_rng(0)
        sources = [words(rng, PIECES, vocab_size) for _ in range(sentences)]
        multiple = translator.ROW_MULTIPLE
        (group,) = batching.padded_batches(sources, None, sentences, multiple)
        self._source = sharding.put(group.batch, mesh).source
        self.work = {"sentences": sentences, "tokens": sentences * (PIECES + 1 + extra)}
        self.facts = {"beam_size": found.decode.beam_size, "source_tokens": PIECES + 1}

    def run(self, steps: int) -> None:
        """Searches so many times."""
        for _ in range(steps):
            self._search(self._weights, self._source)  # which looks at its result

    def peak_bytes(self) -> int | None:
        """Most memory in use on the accelerator so far; None on a CPU."""
        return measuring.peak_device_bytes()


class Agreement:
    """How far kernels' results lie from each other, beside how far rounding alone moves them.

    Attributes:
      facts: relative distances ‖a − b‖ / ‖b‖ of logits and of the parameters' gradient, from those
        of plain attention in float32; None where a result is no number.
    """

    compile_seconds = 0.0

    def __init__(
        self,
        config: Mapping[str, Any],
        dtype: str,
        kernel: str,
    ) -> None:
        """Compares.

        Args:
          config: the model, as `config_lib.from_mapping` reads it.
          dtype: what the model computes in.
          kernel: of attention, beside plain attention.
        """
        mesh = _one_device()

        def computed(kernel: str, dtype: str) -> tuple[Any, Any]:
            found = _configured(config, dtype, **{"model.attention_kernel": kernel})
            (batch,) = batches(found, COMPARED_ROWS, 1)
            model = models.build(found.model, found.data.vocab_size)
            params = step_lib.init_state(model, found, mesh).params
            return jax.jit(_logits_and_gradient(model))(params, sharding.put(batch, mesh))

        with jax.default_matmul_precision("highest"):
            exact = computed(kernels.PLAIN, "float32")
        of_plain, of_kernel = computed(kernels.PLAIN, dtype), computed(kernel, dtype)
        self.facts = {
            f"{name} from {beside}": {
                what: _distance(one, other)
                for what, one, other in zip(("logits", "gradient"), result, yardstick, strict=True)
            }
            for name, result, beside, yardstick in (
                (f"{kernels.PLAIN} {dtype}", of_plain, "float32", exact),
                (f"{kernel} {dtype}", of_kernel, "float32", exact),
                (f"{kernel} {dtype}", of_kernel, f"{kernels.PLAIN} {dtype}", of_plain),
            )
        }

    def run(self, steps: int) -> None:
        """All is done."""

    def peak_bytes(self) -> int | None:
        """Not of interest."""
        return None


def _logits_and_gradient(
    model: interface.Architecture,
) -> Callable[[Any, sequences.Batch], tuple[Any, Any]]:
    """Of a model without dropout: real positions' logits, others 0, and the loss's gradient."""

    def loss(params: Any, batch: sequences.Batch) -> jax.Array:
        outputs = models.outputs(model, params, batch)
        found = losses.cross_entropy(
            outputs, embedding.of(params), batch.labels, batch.target.segments, SMOOTHING
        )
        return found.smoothed / found.tokens

    def both(params: Any, batch: sequences.Batch) -> tuple[Any, Any]:
        logits = models.logits(model, params, batch).astype(jnp.float32)
        real = batch.target.segments[..., None] > 0
        return jnp.where(real, logits, 0), jax.grad(loss)(params, batch)

    return both


def _distance(one: Any, other: Any) -> float | None:
    """Relative; None if it is no number."""
    difference = jax.tree.map(jnp.subtract, one, other)
    found = float(optax.tree.norm(difference) / optax.tree.norm(other))
    return found if math.isfinite(found) else None
