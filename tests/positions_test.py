"""Position kinds against the formulas they come from."""

import cmath
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base as base_config
from transformer_jax import config as config_lib
from transformer_jax.models import positions


def sizes(**fields):
    values = {"d_model": 8, "max_positions": 16, "num_heads": 4, **fields}
    config = base_config.get_config().to_dict()["model"] | values
    return config_lib.ModelConfig(**config)


def test_sinusoidal_is_the_papers_formula():
    found = positions.encode_sinusoidal(jnp.array([[0, 1, 7, 90]]), 6)[0]
    for row, pos in zip(found, (0, 1, 7, 90), strict=True):
        for i in range(3):
            angle = pos / 10000 ** (2 * i / 6)
            np.testing.assert_allclose(row[2 * i], math.sin(angle), atol=1e-5)
            np.testing.assert_allclose(row[2 * i + 1], math.cos(angle), atol=1e-5)


def test_rotary_multiplies_by_a_complex_number():
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4))
    found = positions.Rotary(sizes(d_model=8, max_positions=16)).rotate(
        jnp.asarray(x), jnp.array([[5, 11]])
    )
    for t, pos in enumerate((5, 11)):
        for h in range(3):
            for i in range(2):
                turned = complex(x[0, t, h, 2 * i], x[0, t, h, 2 * i + 1]) * cmath.exp(
                    1j * pos / 10000 ** (2 * i / 4)
                )
                np.testing.assert_allclose(found[0, t, h, 2 * i], turned.real, atol=1e-5)
                np.testing.assert_allclose(found[0, t, h, 2 * i + 1], turned.imag, atol=1e-5)


def test_rotary_products_depend_on_distance_only():
    q, k = jax.random.normal(jax.random.key(0), (2, 1, 1, 1, 8))
    kind = positions.Rotary(sizes(d_model=8, max_positions=16))

    def product(query_position, key_position):
        query = kind.rotate(q, jnp.array([[query_position]]))
        return (query * kind.rotate(k, jnp.array([[key_position]]))).sum()

    np.testing.assert_allclose(product(3, 1), product(45, 43), rtol=1e-4)
    assert abs(product(3, 1) - product(3, 2)) > 1e-3


def test_learned_positions_never_read_beyond_their_table():
    kind = positions.Learned(sizes(d_model=4, max_positions=3))
    x = jnp.zeros((1, 4, 4))
    places = jnp.array([[0, 1, 2, 3]])
    variables = kind.init(jax.random.key(0), x, places, method="embed")
    found = kind.apply(variables, x, places, method="embed")
    assert np.isfinite(np.asarray(found)[0, :3]).all()
    assert np.isnan(np.asarray(found)[0, 3]).all()


def test_alibi_slopes_are_the_published_ones():
    assert positions.alibi_slopes(8) == [1 / 2**i for i in range(1, 9)]
    assert positions.alibi_slopes(16) == pytest.approx([2 ** (-i / 2) for i in range(1, 17)])


def test_no_position_changes_nothing():
    kind = positions.NoPosition(sizes(d_model=4, max_positions=3))
    x = jnp.ones((1, 2, 4))
    places = jnp.array([[0, 1]])
    assert kind.embed(x, places) is x
    assert kind.bias(places, places) is None
