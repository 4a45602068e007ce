"""Attention against loops written in NumPy."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax import errors, models
from transformer_jax.distributed import sharding
from transformer_jax.models import attention, decoder, encoder, kernels, masks, transformer
from transformer_jax.training import step as step_lib


def attend_in_loops(arrays, mask, window):
    """Computes section 3.2.1, one query, one head and one key at a time."""
    queries, keys, values, bias = arrays
    batch, heads, length, d_k = queries.shape
    group = heads // keys.shape[1]
    out = np.zeros((batch, heads, length, values.shape[-1]))
    for b in range(batch):
        for h in range(heads):
            k = h // group
            for t in range(length):
                weights = {}
                for s in range(keys.shape[2]):
                    if mask[b, 0, t, s] and (not window or abs(t - s) <= window):
                        product = sum(queries[b, h, t, c] * keys[b, k, s, c] for c in range(d_k))
                        weights[s] = math.exp(product / math.sqrt(d_k) + bias[0, h, t, s])
                for s, weight in weights.items():
                    out[b, h, t] += weight / sum(weights.values()) * values[b, k, s]
    return out


@functools.partial(jax.jit, static_argnums=2)
def attend(arrays, mask, window):
    queries, keys, values, bias = map(jnp.asarray, arrays)
    places, there = (jnp.arange(x.shape[2])[None] for x in (queries, keys))
    seen = jnp.asarray(mask) & masks.within_window(places, there, window)
    return attention.attend(queries, attention.KeysValues(keys, values), seen, bias)


def example(batch, heads, kv_heads, d_k, d_v):
    """Queries, keys, values and bias of 5 queries and 7 keys, and a mask."""
    rng = np.random.default_rng(0)
    shapes = [(heads, 5, d_k), (kv_heads, 7, d_k), (kv_heads, 7, d_v)]
    arrays = [*(rng.normal(size=(batch, *s)) for s in shapes), rng.normal(size=(1, heads, 5, 7))]
    mask = rng.random((batch, 1, 5, 7)) < 0.6
    mask[:, :, range(5), range(5)] = True  # a query must see something
    return arrays, mask


@pytest.mark.parametrize(
    ("heads", "kv_heads", "d_k", "d_v"), [(4, 4, 3, 3), (4, 2, 5, 2), (4, 1, 2, 5), (1, 1, 3, 3)]
)
@pytest.mark.parametrize("window", [0, 2])
def test_equals_loops(heads, kv_heads, d_k, d_v, window):
    arrays, mask = example(2, heads, kv_heads, d_k, d_v)
    found = attend(arrays, mask, window)
    expected = attend_in_loops(arrays, mask, window)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("heads", "kv_heads", "d_k", "d_v"),
    [(4, 4, 8, 8), (4, 4, 16, 5), (4, 2, 3, 12), (4, 2, 8, 8), (4, 1, 16, 5)],
)
def test_the_fused_kernel_has_the_same_arguments(heads, kv_heads, d_k, d_v):
    """Widths, scale, mask and bias as the kernel gets them; the kernel itself needs a GPU."""
    arrays, mask = example(2, heads, kv_heads, d_k, d_v)
    queries, keys, values, bias = (jnp.asarray(x, jnp.float32) for x in arrays)

    def total(function, *arguments):
        return jnp.sum(function(*arguments) ** 2)

    def plain(queries, keys, values, bias):
        return attention.attend(
            queries, attention.KeysValues(keys, values), jnp.asarray(mask), bias
        )

    def fused(queries, keys, values, bias):
        return kernels.fused(queries, keys, values, jnp.asarray(mask), bias, implementation="xla")

    found, expected = (
        jax.jit(jax.value_and_grad(functools.partial(total, each), argnums=(0, 1, 2, 3)))(
            queries, keys, values, bias
        )
        for each in (fused, plain)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected
    )


def test_the_kernel_is_chosen_from_device_type_and_shapes(make_config, monkeypatch):
    fitting = {
        "model.attention_kernel": "fused",
        "model.compute_dtype": "bfloat16",
        "model.d_k": 64,
        "model.d_v": 60,
    }

    def chosen(changes=None, queries=40, keys=34, platform="gpu"):
        model = make_config({**fitting, **(changes or {})}).model
        return kernels.takes(kernels.on(model, platform), queries, keys)

    assert not chosen(platform="cpu")
    assert not chosen(platform="tpu")
    assert chosen()
    assert not chosen(keys=33)
    assert not chosen(queries=1)
    assert not chosen({"model.d_v": 129})
    assert not chosen({"model.compute_dtype": "float32"})
    assert not chosen({"model.attention_kernel": "plain"})
    assert not chosen({"model.attention_dropout_rate": 0.1})
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    odd = make_config({**fitting, "data.source_length": 63})
    for model, expected in (
        (transformer.Transformer, "encoder plain, decoder fused, cross plain"),
        (decoder.DecoderOnly, "joint plain"),
        (encoder.EncoderOnly, "encoder fused"),
    ):
        assert kernels.describe(odd, model) == expected


def test_gradients_are_those_of_the_loops():
    arrays, mask = example(1, 4, 2, 3, 2)
    weights = np.random.default_rng(1).normal(size=(1, 4, 5, 2))

    def total(arrays):
        return (attend_in_loops(arrays, mask, 2) * weights).sum()

    found = jax.grad(lambda arrays: (attend(arrays, mask, 2) * weights).sum())(
        [jnp.asarray(array) for array in arrays]
    )
    for array, gradient in zip(arrays, found, strict=True):
        expected = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            kept, ends = array[place], []
            for step in (1e-5, -1e-5):
                array[place] = kept + step
                ends.append(total(arrays))
            array[place] = kept
            expected[place] = (ends[0] - ends[1]) / 2e-5
        assert np.abs(gradient - expected).max() <= 1e-4 * np.abs(expected).max()


def test_every_third_layer_of_an_interleaved_stack_has_no_window(make_config):
    changes = {
        "model.num_layers": 6,
        "model.attention_pattern": "interleaved",
        "model.window": 2,
        "model.global_every": 3,
    }
    places = jnp.arange(8)[None]
    found = masks.by_layer(make_config(changes).model, places, places)
    near = abs(np.arange(8)[:, None] - np.arange(8)) <= 2
    for layer, seen in enumerate(found, start=1):
        np.testing.assert_array_equal(seen[0, 0], np.ones((8, 8)) if layer % 3 == 0 else near)


@pytest.mark.parametrize("changes", [{"model.window": 0}, {"model.global_every": 9}])
def test_an_interleaved_stack_without_both_kinds_of_layer_is_refused(make_config, changes):
    config = make_config(
        {"model.window": 1, "model.attention_pattern": "interleaved", "model.global_every": 2}
        | changes
    )
    with pytest.raises(errors.UserError, match=r"attention_pattern=interleaved needs"):
        step_lib.state_shapes(
            models.build(config.model, 9), config, sharding.make_mesh(config.mesh)
        )


def test_masks_are_what_their_names_say():
    segments = np.array([[1, 1, 2, 2, 2, 0]])
    positions = np.array([[0, 1, 0, 1, 2, 0]])
    same = masks.same_segment(jnp.asarray(segments), jnp.asarray(segments))
    causal = masks.causal(jnp.asarray(positions), jnp.asarray(positions))
    window = masks.within_window(jnp.asarray(positions), jnp.asarray(positions), 1)
    for t in range(6):
        for s in range(6):
            assert same[0, 0, t, s] == (segments[0, t] == segments[0, s])
            assert causal[0, 0, t, s] == (positions[0, s] <= positions[0, t])
            assert window[0, 0, t, s] == (abs(positions[0, s] - positions[0, t]) <= 1)
    assert masks.within_window(jnp.asarray(positions), jnp.asarray(positions), 0).all()
