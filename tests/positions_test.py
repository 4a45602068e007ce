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
    x = np.random.default_rng(0).normal(size=(1, 3, 2, 4))
    found = positions.Rotary(sizes(d_model=8, max_positions=16)).rotate(
        jnp.asarray(x), jnp.array([[5, 11]])
    )
    for t, pos in enumerate((5, 11)):
        for h in range(3):
            for i in range(2):
                turned = complex(x[0, h, t, 2 * i], x[0, h, t, 2 * i + 1]) * cmath.exp(
                    1j * pos / 10000 ** (2 * i / 4)
                )
                np.testing.assert_allclose(found[0, h, t, 2 * i], turned.real, atol=1e-5)
                np.testing.assert_allclose(found[0, h, t, 2 * i + 1], turned.imag, atol=1e-5)


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


def test_alibi_subtracts_slope_times_distance():
    places = jnp.array([[0, 1, 5]])
    found = positions.Alibi(sizes(num_heads=8)).bias(places, places)
    for h in range(8):
        for t, query in enumerate((0, 1, 5)):
            for s, key in enumerate((0, 1, 5)):
                assert found[0, h, t, s] == -(2.0 ** -(h + 1)) * abs(key - query)


def t5_bucket(offset, causal):
    """The bucket of a key that stands `offset` after its query."""
    table = jnp.tile(jnp.arange(32.0)[:, None], (1, 4))
    query, key = (jnp.array([[place]]) for place in (max(-offset, 0), max(offset, 0)))
    kind = positions.T5Bias(sizes(), causal=causal)
    found = np.asarray(kind.apply({"params": {"table": table}}, query, key, method="bias"))
    return int(found[0, 0, 0, 0])


def test_t5_buckets_of_an_encoder_tell_before_from_after():
    assert [t5_bucket(-distance, False) for distance in range(8)] == list(range(8))
    assert [t5_bucket(distance, False) for distance in range(1, 8)] == list(range(17, 24))
    # From 8 to 128 the others grow by 16^(1/8) = sqrt(2).
    assert [t5_bucket(-d, False) for d in (8, 11, 12, 17, 23, 33, 127, 500)] == [
        8, 8, 9, 10, 11, 12, 15, 15,
    ]  # fmt: skip


def test_t5_buckets_of_a_decoder_are_all_before():
    assert [t5_bucket(-distance, True) for distance in range(16)] == list(range(16))
    assert [t5_bucket(-d, True) for d in (16, 19, 127, 500)] == [16, 17, 31, 31]
    assert t5_bucket(3, True) == 0


@pytest.mark.parametrize("kind", [positions.T5Bias, positions.Learned])
def test_tables_begin_as_draws_of_the_embeddings_size(kind):
    """Their standard deviation is 1 / sqrt(d_model): 0.125, of 2,048 draws or more."""
    module, places = kind(sizes(d_model=64, num_heads=64, max_positions=64)), jnp.array([[0, 1]])
    method, arguments = (
        ("bias", (places, places))
        if kind is positions.T5Bias
        else ("embed", (jnp.zeros((1, 2, 64)), places))
    )
    variables = module.init(jax.random.key(0), *arguments, method=method)
    (table,) = jax.tree.leaves(variables)
    assert table.size >= 2048
    assert float(table.std()) == pytest.approx(0.125, rel=0.1)
    assert float(table.mean()) == pytest.approx(0, abs=0.02)


def test_no_position_changes_nothing():
    kind = positions.NoPosition(sizes(d_model=4, max_positions=3))
    x = jnp.ones((1, 2, 4))
    places = jnp.array([[0, 1]])
    assert kind.embed(x, places) is x
    assert kind.bias(places, places) is None
    heads = jnp.ones((1, 1, 2, 2))
    assert kind.rotate(heads, places) is heads
    assert kind.relate_keys(heads, places, places) is None
    assert kind.relate_values(heads, places, places) is None
