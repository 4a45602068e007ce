"""Contenders that need no corpus: any config's steps and searches, on made-up sentences.

They run on one device. How fast it multiplies depends on shapes, packing and masks, not on what
sentences say. Lengths are spread about as those of WMT's training set; words follow Zipf's law,
since a table's gradient is summed more slowly where a word comes often.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.benchmarks import ours, worker, workloads
from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.data import batching, packing, tokenizer
from transformer_jax.decoding import beam_search, translator
from transformer_jax.distributed import sharding
from transformer_jax.models import embedding, kernels
from transformer_jax.training import losses
from transformer_jax.training import step as step_lib

PIECES = 28  # of a sentence, about: WMT's have 25 words in English
SPREAD, BETWEEN = 0.6, 0.15  # of the logarithms: of lengths, and of a target's beside its source's
COMPARED_ROWS = 8  # of a batch, on which two kernels are compared
SMOOTHING = 0.1


def batches(config: config_lib.Config, rows: int, number: int) -> list[sequences.Batch]:
    """So many packed batches of so many rows, made as training's are."""
    data, rng = config.data, np.random.default_rng(1)
    room = (data.source_length, data.target_length)
    drawn = np.random.default_rng(0)
    # A lognormal distribution's mean is exp(mu + sigma² / 2).
    lengths = drawn.normal(np.log(PIECES) - SPREAD**2 / 2, SPREAD, data.packing_window)
    sides = zip((lengths, lengths + drawn.normal(0, BETWEEN, len(lengths))), room, strict=True)
    # Room is left for end tokens.
    source, target = (np.clip(np.exp(side).astype(int), 1, most - 1) for side, most in sides)
    plan = packing.Plan(
        len(source), lambda _, some: (source[some] + 1, target[some] + 1), *room,
        data.packing_window, 0,
    )  # fmt: skip

    def pair(number: int) -> tuple[np.ndarray, np.ndarray]:
        one, other = (words(rng, side[number], data.vocab_size) for side in (source, target))
        return one, other

    return [
        batching.fill([list(map(pair, row)) for row in plan.rows(start, start + rows)], *room)
        for start in range(0, number * rows, rows)
    ]


def words(rng: np.random.Generator, length: int, vocab_size: int) -> np.ndarray:
    """So many words: the r-th comes about 1 / r as often as the first; none is a control token."""
    first = tokenizer.UNK + 1
    # The inverse of the distribution function of the density 1 / r between 1 and the last rank.
    ranks = np.exp(rng.random(length) * np.log(vocab_size - first))
    return first + ranks.astype(np.int32) - 1


def _configured(config: Mapping[str, Any], dtype: str, field: str, value: Any) -> config_lib.Config:
    changes = {"model.compute_dtype": dtype, field: value}
    return config_lib.replace(config_lib.from_mapping(config), changes)


def _one_device() -> jax.sharding.Mesh:
    return sharding.make_mesh(config_lib.MeshConfig(1, 1, 1), jax.devices()[:1])


def training(config: Mapping[str, Any], dtype: str, kernel: str) -> worker.Contender:
    """Steps of a config, as `config_lib.from_mapping` reads it, with a kernel of attention."""
    found, mesh = _configured(config, dtype, "model.attention_kernel", kernel), _one_device()
    made = batches(found, sharding.rows_of(found, mesh), workloads.BATCHES)
    contender, parts = ours.steps(found, mesh, made)
    # Of plain attention whatever the kernel, whose own products no trace shows.
    plain = config_lib.replace(found, {"model.attention_kernel": kernels.PLAIN})
    says = {
        **contender.says,
        **workloads.work(plain, made),
        "rows": len(made[0].labels),
        "accumulation_steps": parts,
        "attention": kernels.describe(found, models.ARCHITECTURES[found.model.architecture]),
    }
    return dataclasses.replace(contender, says=says)


def search(config: Mapping[str, Any], dtype: str, sentences: int) -> worker.Contender:
    """Beam search of one batch of sentences, by a model that is not trained."""
    found = _configured(config, dtype, "decode.extra_tokens", ours.EXTRA)
    mesh, vocab_size = _one_device(), found.data.vocab_size
    model: Any = models.build(found.model, vocab_size)
    params = step_lib.init_state(model, found, mesh).params
    weights = translator.cast(params, found.model.dtype)
    searching = beam_search.BeamSearch(ours.endless(model), found.decode, mesh)
    rng = np.random.default_rng(0)
    sources = [words(rng, PIECES, vocab_size) for _ in range(sentences)]
    (group,) = batching.padded_batches(sources, sentences, translator.ROW_MULTIPLE)
    source = sharding.put(group.batch, mesh).source
    says = {
        "sentences": sentences,
        "tokens": sentences * (PIECES + 1 + ours.EXTRA),
        "beam_size": found.decode.beam_size,
        "source_tokens": PIECES + 1,
    }
    return worker.Contender(lambda: searching(weights, source), says)


def agreement(config: Mapping[str, Any], dtype: str, kernel: str) -> worker.Contender:
    """How far a kernel's results lie from others', beside how far rounding alone moves them.

    It says relative distances ‖a − b‖ / ‖b‖ of logits and of the parameters' gradient; None where
    a result is no number. There is nothing to time.
    """
    mesh = _one_device()

    def computed(kernel: str, dtype: str) -> Mapping[str, Any]:
        found = _configured(config, dtype, "model.attention_kernel", kernel)
        (batch,) = batches(found, COMPARED_ROWS, 1)
        model = models.build(found.model, found.data.vocab_size)
        params = step_lib.init_state(model, found, mesh).params
        results = jax.jit(functools.partial(_logits_and_gradient, model))
        return results(params, sharding.put(batch, mesh))

    exact, plain, own = "float32", f"{kernels.PLAIN} {dtype}", f"{kernel} {dtype}"
    with jax.default_matmul_precision("highest"):
        found = {exact: computed(kernels.PLAIN, "float32")}
    found |= {plain: computed(kernels.PLAIN, dtype), own: computed(kernel, dtype)}
    says = {
        f"{one} from {other}": {
            what: _distance(found[one][what], found[other][what]) for what in ("logits", "gradient")
        }
        for one, other in ((plain, exact), (own, exact), (own, plain))
    }
    return worker.Contender(lambda: None, says)


def _logits_and_gradient(model: Any, params: Any, batch: sequences.Batch) -> dict[str, Any]:
    """Of a model without dropout: real positions' logits, others 0, and the loss's gradient."""

    def loss(params: Any) -> jax.Array:
        outputs = models.outputs(model, params, batch)
        found = losses.cross_entropy(
            outputs, embedding.of(params), batch.labels, batch.target.segments, SMOOTHING
        )
        return found.smoothed / found.tokens

    logits = models.logits(model, params, batch).astype(jnp.float32)
    real = batch.target.segments[..., None] > 0
    return {"logits": jnp.where(real, logits, 0), "gradient": jax.grad(loss)(params)}


def _distance(one: Any, other: Any) -> float | None:
    """Relative; None if it is no number."""
    difference = jax.tree.map(jnp.subtract, one, other)
    found = float(optax.tree.norm(difference) / optax.tree.norm(other))
    return found if math.isfinite(found) else None
