"""What a run will cost: parameters, floating-point operations and memory, without running it."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments import measuring
from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.models import embedding
from transformer_jax.training import losses, sharding
from transformer_jax.training import step as step_lib


def parameters(config: config_lib.Config) -> int:
    """Number of the model's parameters."""
    mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1))
    model = models.build(config.model, config.data.vocab_size)
    shapes, _ = step_lib.state_shapes_and_shardings(model, config, mesh)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes.params))


def training_flops(config: config_lib.Config) -> float:
    """Matrix-product operations of a whole training, padding included.

    A product of (m × k) with (k × n) counts 2 m k n; the backward pass counts twice the forward
    pass. Attention counts whole packed rows, as it is computed.
    """
    rows = config.train.batch_tokens // config.data.target_length * config.train.num_steps
    sizes = dataclasses.replace(
        config.model, dropout_rate=0.0, compute_dtype="float32"
    )  # neither changes what is multiplied
    lengths = (config.data.source_length, config.data.target_length)
    return 3.0 * rows * _forward_flops(sizes, config.data.vocab_size, lengths)


@functools.cache  # tracing takes a second, and a sweep's rows have few sizes
def _forward_flops(sizes: config_lib.ModelConfig, vocab_size: int, lengths: tuple[int, int]) -> int:
    """Of one packed row, whose source and target have so many positions."""
    model = models.build(sizes, vocab_size)
    params, example = _shapes(model, lengths, rows=1)
    forward = jax.make_jaxpr(functools.partial(models.logits, model))(params, example)
    return measuring.matrix_flops(forward.jaxpr)


def memory_bytes(config: config_lib.Config, devices: int) -> float:
    """What training holds at least on each device, if they share out the batch, before compiling.

    That is parameters, Adam's two moments and a gradient, in float32, and whatever the forward pass
    leaves for the backward pass. A compiler keeps less of the latter, and adds buffers of its own.
    """
    model = models.build(config.model, config.data.vocab_size)
    rows = config.train.batch_tokens // config.data.target_length
    share = -(-rows // (config.train.accumulation_steps * devices))
    lengths = (config.data.source_length, config.data.target_length)
    params, batch = _shapes(model, lengths, share)
    hyper = step_lib.hyperparameters(config)

    def loss(params: Any, batch: sequences.Batch) -> jax.Array:
        key = jax.random.key(0)
        outputs = models.outputs(model, params, batch, hyper.rates, key, hyper.sampling)
        return losses.cross_entropy(
            outputs,
            embedding.of(params),
            batch.labels,
            batch.target.segments,
            hyper.label_smoothing,
        ).smoothed

    _, backward = jax.eval_shape(lambda p, b: jax.vjp(loss, p, b), params, batch)
    kept = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(backward))
    own = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    return 3 * own + kept  # the parameters are among what is kept


def _shapes(model: nn.Module, lengths: tuple[int, int], rows: int) -> tuple[Any, sequences.Batch]:
    """Parameters and a batch of so many packed rows of such lengths, without making them."""
    source, target = (
        sequences.Sequences(*[jax.ShapeDtypeStruct((rows, length), jnp.int32)] * 3)
        for length in lengths
    )
    params = nn.unbox(jax.eval_shape(model.init, jax.random.key(0), source, target))
    return params, sequences.Batch(source, target, target.tokens)
