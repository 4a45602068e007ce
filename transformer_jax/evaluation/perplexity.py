"""Perplexity per wordpiece, as Table 3 reports it."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from transformer_jax import config as config_lib
from transformer_jax import errors, models, sequences
from transformer_jax.data import batching, packing
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.distributed import sharding
from transformer_jax.models import embedding, interface
from transformer_jax.training import losses

LARGEST = 700  # nats per token whose exponential is still a number
BATCH_TOKENS = 8192  # target positions computed together


def build(
    model: interface.Architecture,
    pairs: dataset_lib.HeldOut,
    config: config_lib.DataConfig,
    mesh: jax.sharding.Mesh,
) -> Callable[[Any], float]:
    """exp(mean negative log-likelihood) of reference tokens, as a function of the parameters.

    Every sentence counts, whatever its length, and so does every end token; there is no smoothing.
    Pairs are packed into rows at least as long as the longest of them, all of one shape.

    Args:
      model: an architecture.
      pairs: sources and references.
      config: lengths of rows, where no sentence is longer.
      mesh: the devices that rows are shared out over.

    Returns:
      The function; it raises RunError if the model has diverged.
    """
    source, target = pairs.source_ids, pairs.target_ids
    source_lengths = np.array([len(ids) + 1 for ids in source])
    target_lengths = np.array([len(ids) + 1 for ids in target])
    capacities = (
        max(config.source_length, int(source_lengths.max())),
        max(config.target_length, int(target_lengths.max())),
    )
    plan = packing.pack(source_lengths, target_lengths, *capacities)
    rows = [[(source[pair], target[pair]) for pair in row] for row in plan]
    parts = sharding.parts(mesh)
    batch_rows = -(-min(len(rows), max(1, BATCH_TOKENS // capacities[1])) // parts) * parts
    rows += [[]] * (-len(rows) % batch_rows)
    platform = mesh.devices.flat[0].platform
    loss_chunks = losses.chunks(batch_rows // parts, capacities[1], config.vocab_size, platform)
    batches = [
        batching.fill(rows[start : start + batch_rows], *capacities)
        for start in range(0, len(rows), batch_rows)
    ]

    @functools.partial(jax.jit, out_shardings=sharding.replicated(mesh))
    def sums(params: Any, batch: sequences.Batch) -> losses.Losses:
        with sharding.of_activations(mesh):
            return losses.cross_entropy(
                models.outputs(model, params, batch),
                embedding.of(params),
                batch.labels,
                batch.target.segments,
                0.0,
                loss_chunks,
            )

    def measure(params: Any) -> float:
        found = [sums(params, sharding.put(batch, mesh)) for batch in batches]
        nats, tokens = (sum(float(part[i]) for part in found) for i in (1, 2))
        if not nats / tokens < LARGEST:
            raise errors.RunError(f"the model diverged: {nats / tokens} nats per token")
        return math.exp(nats / tokens)

    return measure
