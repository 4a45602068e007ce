"""Position kinds against the formulas they come from."""

import cmath
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base as base_config
from transformer_jax import config as config_lib
from transformer_jax.models import attention, positions


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
    kind, queries = positions.Alibi(sizes(num_heads=8)), jnp.ones((1, 8, 3, 4))
    found = kind.bias(queries, places[:, None] - places[..., None])
    for h in range(8):
        for t, query in enumerate((0, 1, 5)):
            for s, key in enumerate((0, 1, 5)):
                assert found[0, h, t, s] == -(2.0 ** -(h + 1)) * abs(key - query)


def t5_bucket(offset, causal):
    """The bucket of a key that stands `offset` after its query."""
    table = jnp.tile(jnp.arange(32.0)[:, None], (1, 4))
    kind = positions.T5Bias(sizes(), causal=causal)
    arguments = jnp.ones((1, 4, 1, 4)), jnp.array([[[offset]]])
    found = np.asarray(kind.apply({"params": {"table": table}}, *arguments, method="bias"))
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


K = 16  # Shaw et al.'s base model clips distances at it


def related_in_loops(x, places, seen, params):
    """Equations 3 and 4 of Shaw et al. 2018, one head, one query and one key at a time.

    Query heads share keys and values in pairs.
    """
    of_keys, of_values = (
        params["own_position"][name].reshape(2 * K + 1, 4, -1) for name in ("keys", "values")
    )
    heads = []
    for h in range(4):
        queries, keys, values = (
            np.split(x @ params[name]["kernel"], count, axis=-1)[h * count // 4]
            for name, count in (("query", 4), ("key", 2), ("value", 2))
        )
        rows = []
        for i, place in enumerate(places):
            e, added = {}, {}
            for j, other in enumerate(places):
                if seen[i, j]:
                    a = K + max(-K, min(K, other - place))
                    product = queries[i] @ (keys[j] + of_keys[a, h])
                    e[j] = math.exp(product / math.sqrt(queries.shape[-1]))
                    added[j] = values[j] + of_values[a, h]
            rows.append(sum(e[j] / sum(e.values()) * added[j] for j in e))
        heads.append(np.stack(rows))
    return np.concatenate(heads, axis=-1) @ params["output"]["kernel"]


@pytest.mark.parametrize("causal", [False, True])
def test_relative_positions_are_shaws_equations(causal):
    """The row is packed, and its first sentence longer than the clipping distance."""
    config = sizes(num_kv_heads=2, d_k=3, d_v=5, position="relative")
    places = np.concatenate([np.arange(K + 5), np.arange(4)])
    segments = np.repeat([1, 2], [K + 5, 4])
    seen = segments[:, None] == segments
    if causal:
        seen &= places[:, None] >= places
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(1, len(places), 8)))
    row = jnp.asarray(places)[None]
    module = attention.MultiHeadAttention(config, positions.Relative(config, causal=causal))

    def attend(module, x):
        keys_values, mask = module.keys_values(x, row), jnp.asarray(seen)[None, None]
        return module(x, row, attention.Attended(keys_values, mask, row))

    blank = jax.eval_shape(lambda: nn.unbox(module.init(jax.random.key(0), x, method=attend)))
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), blank)
    found = module.apply(params, x, method=attend)
    expected = related_in_loops(np.asarray(x[0]), places, seen, params["params"])
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)


def test_relative_positions_begin_glorot_uniform():
    """The whole table is within sqrt(6 / (rows + columns)), as in tensor2tensor."""
    kind = positions.Relative(sizes(num_heads=8, d_k=64))
    arguments = (jnp.zeros((1, 8, 2, 64)), jnp.array([[[0, 1], [-1, 0]]]))
    variables = kind.init(jax.random.key(0), *arguments, method="bias")
    (table,) = map(np.asarray, jax.tree.leaves(variables))
    limit = math.sqrt(6 / (33 + 512))
    assert table.shape == (33, 512)
    assert 0.99 * limit < abs(table).max() <= limit
    assert table.std() == pytest.approx(limit / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize("kind", [positions.T5Bias, positions.Learned])
def test_tables_begin_as_draws_of_the_embeddings_size(kind):
    """Their standard deviation is 1 / sqrt(d_model): 0.125, of 2,048 draws or more."""
    module = kind(sizes(d_model=64, num_heads=64, max_positions=64))
    method, arguments = (
        ("bias", (jnp.zeros((1, 64, 1, 4)), jnp.array([[[0, 1]]])))
        if kind is positions.T5Bias
        else ("embed", (jnp.zeros((1, 2, 64)), jnp.array([[0, 1]])))
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
    heads, offset = jnp.ones((1, 1, 2, 2)), places[:, None] - places[..., None]
    assert kind.rotate(heads, places) is heads
    assert kind.bias(heads, offset) is None
    assert kind.relate_values(heads, offset) is None
