"""Scheduled sampling, and what the recurrent and convolutional models refuse."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.data import batching

VOCABULARY = 50
LSTM = {"model.architecture": "lstm", "model.position": "none"}


@pytest.fixture
def sampled(make_config):
    """Logits of one sentence pair with a chance of own words, by target."""
    config = make_config({**LSTM, "model.recurrent_attention": "dot"}).model
    model = models.build(config, VOCABULARY)
    example = sequences.Sequences(*[jnp.zeros((1, 1), jnp.int32)] * 3)
    init = jax.jit(lambda key: nn.unbox(model.init(key, example, example)))
    params = jax.tree.map(lambda x: 3 * x, init(jax.random.key(0)))
    logits = jax.jit(models.logits, static_argnums=0)

    def run(target, chance, seed=0):
        batch = batching.fill([[([5, 9, 31], target)]], 4, 6)
        sampling = None if chance is None else jnp.float32(chance)
        key = jax.random.key(seed)
        return np.asarray(logits(model, params, batch, key=key, sampling=sampling))[0]

    return run


def test_sampling_with_chance_0_is_teacher_forcing(sampled):
    target = [7, 8, 9, 10, 11]
    np.testing.assert_allclose(sampled(target, 0.0), sampled(target, None), rtol=1e-5, atol=1e-6)


def test_sampling_with_chance_1_never_reads_the_target(sampled):
    one, other = [7, 8, 9, 10, 11], [20, 30, 40, 41, 42]
    np.testing.assert_array_equal(sampled(one, 1.0), sampled(other, 1.0))
    assert np.abs(sampled(one, None) - sampled(other, None)).max() > 1e-3
    # What it reads is drawn: another key, other words.
    assert np.abs(sampled(one, 1.0, seed=0) - sampled(one, 1.0, seed=1)).max() > 1e-3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.architecture": "lstm"}, r"has no use for model\.position=sinusoidal"),
        ({**LSTM, "model.d_model": 15}, r"needs an even d_model"),
        ({"model.recurrent_attention": "dot"}, r"=transformer has no use for model\.recurrent_att"),
        ({**LSTM, "model.window": 3}, r"=lstm has no use for model\.window=3: set model\.window=0"),
        ({"model.architecture": "conv", "model.norm": "rms_norm"}, r"no use for model\.norm=rms"),
        ({**LSTM, "model.recurrent_attention": "dto"}, r"'dto' is unknown.*did you mean dot\?"),
        ({"model.architecture": "conv", "model.position": "rotary"}, r"no self-attention"),
        ({"model.architecture": "conv", "model.position": "t5"}, r"no self-attention"),
    ],
)
def test_parts_that_an_architecture_lacks_are_refused(make_config, overrides, message):
    with pytest.raises(config_lib.UserError, match=message):
        models.build(make_config(overrides).model, VOCABULARY)
