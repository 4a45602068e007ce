"""Residual connections and norms against their equations."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.models import layers

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 3, 64)).astype(np.float32)


def standardised(x):
    """Returns LayerNorm of x with a scale of 1 and a bias of 0."""
    spread = np.sqrt(((x - x.mean(-1, keepdims=True)) ** 2).mean(-1, keepdims=True) + 1e-6)
    return (x - x.mean(-1, keepdims=True)) / spread


class Around(nn.Module):
    """A sub-layer f(x) = 3x - 1 with its residual connection and norm."""

    placement: layers.Residual

    def __call__(self, x):
        return self.placement.add(x, 3 * self.placement.before(x) - 1, None)


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("post", standardised(X + (3 * X - 1))),
        ("pre", X + (3 * standardised(X) - 1)),
    ],
)
def test_norms_stand_where_their_equations_have_them(make_config, placement, expected):
    config = make_config({"model.norm_placement": placement, "model.d_model": 64}).model
    module = Around(layers.NORM_PLACEMENTS[placement](config))
    found, _ = module.init_with_output(jax.random.key(0), jnp.asarray(X))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", layers.NORMS)
def test_norms_add_a_millionth_to_the_variance(make_config, norm):
    x = 1e-3 * X
    centred = x - x.mean(-1, keepdims=True) if norm == "layer_norm" else x
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    module = layers.make_norm(make_config({"model.norm": norm}).model)
    found, _ = module.init_with_output(jax.random.key(0), jnp.asarray(x))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
