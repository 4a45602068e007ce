"""What a run will cost: its parameters and its floating-point operations, without running it."""

import functools

import jax
import jax.numpy as jnp

from experiments import measuring
from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.training import sharding
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
    model = models.build(config.model, config.data.vocab_size)
    source, target = (
        sequences.Sequences(*[jax.ShapeDtypeStruct((1, length), jnp.int32)] * 3)
        for length in (config.data.source_length, config.data.target_length)
    )
    example = sequences.Batch(source, target, target.tokens)
    params = jax.eval_shape(model.init, jax.random.key(0), source, target)
    forward = jax.make_jaxpr(functools.partial(models.logits, model))(params, example)
    rows = config.train.batch_tokens // config.data.target_length * config.train.num_steps
    return 3.0 * rows * measuring.matrix_flops(forward.jaxpr)
