"""What one step draws: its dropout is no other step's, and no other part's of the same step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax import models
from transformer_jax.data import batching
from transformer_jax.models import dropout
from transformer_jax.training import sharding
from transformer_jax.training import step as step_lib

PAIR = ([5, 9, 7], [8, 6, 4, 9])


@pytest.fixture
def loss_of(make_config):
    """A function from step, rows and dropout rate to the loss of a step of two parts."""
    config = make_config({"train.accumulation_steps": 2})
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    model = models.build(config.model, 20)
    advance = step_lib.make_step(model, config, mesh)

    def measure(step, rows, rate):
        state = step_lib.init_state(model, config, mesh)._replace(step=jnp.int32(step))
        hyper = step_lib.hyperparameters(config)
        hyper = hyper._replace(rates=dropout.Rates(jnp.float32(rate)))
        batch = sharding.put(batching.fill(rows, 4, 5), mesh)
        return float(advance(state, batch, hyper, jax.random.key(0))[1].smoothed_loss)

    return measure


def test_each_step_drops_other_elements(loss_of):
    rows = [[PAIR], [PAIR]]
    assert loss_of(3, rows, 0.5) == loss_of(3, rows, 0.5) != loss_of(4, rows, 0.5)
    assert loss_of(3, rows, 0.0) == loss_of(4, rows, 0.0)


def test_each_part_of_a_step_drops_other_elements(loss_of):
    first, second = [[PAIR], []], [[], [PAIR]]
    assert loss_of(3, first, 0.5) != loss_of(3, second, 0.5)
    assert loss_of(3, first, 0.0) == loss_of(3, second, 0.0)


def test_scheduled_sampling_grows_evenly_from_none(make_config):
    overrides = {
        "model.architecture": "lstm",
        "model.position": "none",
        "train.num_steps": 100,
        "train.scheduled_sampling": 1.0,
        "model.dropout_rate": 0.0,
    }
    config = make_config(overrides)
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    model = models.build(config.model, 20)
    advance = step_lib.make_step(model, config, mesh)
    hyper = step_lib.hyperparameters(config)
    # Far targets: a word of the model's own then shows in the loss.
    rows = [[([5], [9, 4] * 100)]] * 4

    def share_read_anew(step):
        """How much of the way the loss has gone from teacher forcing to its own words."""
        batch = sharding.put(batching.fill(rows, 4, 201), mesh)
        state = step_lib.init_state(model, config, mesh)
        params = jax.tree.map(lambda x: 8 * x, state.params)
        state = state._replace(step=jnp.int32(step), params=params)
        return float(advance(state, batch, hyper, jax.random.key(0))[1].true_loss)

    forced, half, own = (share_read_anew(step) for step in (0, 50, 100))
    assert forced < own
    np.testing.assert_allclose((half - forced) / (own - forced), 0.5, atol=0.15)
