"""Initial parameters, and dropout masks of steps and of the parts of a step."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax import models
from transformer_jax.data import batching
from transformer_jax.distributed import sharding
from transformer_jax.models import dropout
from transformer_jax.training import step as step_lib

PAIR = ([5, 9, 7], [8, 6, 4, 9])


@functools.cache
def started(config):
    """Returns a function from a step, its rows and its dropout rate to the metrics."""
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    model = models.build(config.model, 20)
    first = jax.device_get(step_lib.init_state(model, config, mesh))  # a step consumes its state
    advance = step_lib.make_step(model, config, mesh)

    def measure(step, rows, rate):
        hyper = step_lib.hyperparameters(config)
        hyper = hyper._replace(rates=dropout.Rates(jnp.float32(rate)))
        batch = sharding.put(batching.fill(rows, 4, 5), mesh)
        state = first._replace(step=np.int32(step))
        return advance(state, batch, hyper, jax.random.key(0))[1]

    return measure


@pytest.fixture
def loss_of(make_config):
    """Returns the loss of a step of two parts as a function."""
    measure = started(make_config({"model.num_layers": 1, "train.accumulation_steps": 2}))
    return lambda *arguments: float(measure(*arguments).smoothed_loss)


def test_each_step_has_a_dropout_mask_of_its_own(loss_of):
    rows = [[PAIR], [PAIR]]
    assert loss_of(3, rows, 0.5) == loss_of(3, rows, 0.5) != loss_of(4, rows, 0.5)
    assert loss_of(3, rows, 0.0) == loss_of(4, rows, 0.0)


def test_each_part_of_a_step_has_a_dropout_mask_of_its_own(loss_of):
    first, second = [[PAIR], []], [[], [PAIR]]
    assert loss_of(3, first, 0.5) != loss_of(3, second, 0.5)
    assert loss_of(3, first, 0.0) == loss_of(3, second, 0.0)


@pytest.mark.parametrize(
    "changes",
    [{}, {"model.position": "relative"}, {"model.architecture": "lstm", "model.position": "none"}],
)
def test_parameters_drawn_one_by_one_are_those_of_one_program(make_config, changes):
    config = make_config({"model.num_layers": 1, **changes})
    model = models.build(config.model, config.data.vocab_size)
    key = jax.random.key(config.train.seed)
    together = jax.jit(lambda key: nn.unbox(models.init(model, key)))(key)
    alone = models.draw(model, key)
    assert jax.tree.structure(alone) == jax.tree.structure(together)
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
