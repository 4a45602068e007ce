"""Cells, attention and convolutions against loops."""

import contextlib
import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_parameters
from transformer_jax import errors, models, sequences
from transformer_jax.data import batching
from transformer_jax.models import (
    convolutional,
    dropout,
    interface,
    masks,
    recurrent_attention,
    recurrent_cells,
)

VOCABULARY = 50
SOURCE, TARGET = [5, 9, 31, 7], [12, 8, 33]
LSTM = {"model.architecture": "lstm", "model.position": "none"}


def randomly(module, *arguments, method: Any = "__call__"):
    """Returns a module's result with random parameters, and the parameters by name."""
    init = functools.partial(module.init, method=method)
    blank = nn.unbox(jax.eval_shape(init, jax.random.key(0), *arguments))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), blank)
    apply = jax.jit(functools.partial(module.apply, method=method))
    return np.asarray(apply(params, *arguments)), params["params"]


@pytest.fixture
def seen(make_config):
    """A config; outputs of 3 positions, the encoder's of 4, and what each position sees."""
    rng = np.random.default_rng(0)
    config = make_config().model
    x, encoded = (rng.normal(size=(2, n, config.d_model)).astype(np.float32) for n in (3, 4))
    mask = rng.random((2, 3, 4)) < 0.6
    mask[:, :, 0] = True
    return config, x, encoded, mask


def weighted(scores, vectors):
    """Σ softmax(scores) vectors, in float64."""
    weights = np.exp(np.array(scores, np.float64))
    return sum(w * v for w, v in zip(weights / weights.sum(), vectors, strict=True))


def assert_close(found, expected):
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def elman(h, x, u):
    return (np.tanh(x + h @ u),)


def hochreiter(h, c, x, u):
    i, f, g, o = np.split(x + h @ u, 4)
    c = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(g)
    return np.tanh(c) * sigmoid(o), c


def cho(h, x, u):
    u_z, u_r, u_n = np.split(u, 3, axis=1)
    x_z, x_r, x_n = np.split(x, 3)
    new = np.tanh(x_n + sigmoid(x_r + h @ u_r) * (h @ u_n))
    kept = sigmoid(x_z + h @ u_z)
    return (kept * h + (1 - kept) * new,)


EQUATIONS: dict[str, Any] = {"rnn": elman, "lstm": hochreiter, "gru": cho}


def dense(x, p):
    return x @ p["kernel"] + p.get("bias", 0)


def unrolled(name, p, xs):
    """Returns a cell's states after each input, from zeros: inputs, parts, features."""
    kernel = p["from_state"]["kernel"]
    states = [np.zeros((recurrent_cells.CELLS[name].parts, len(kernel)))]
    for x in xs:
        states.append(np.array(EQUATIONS[name](*states[-1], dense(x, p["from_input"]), kernel)))
    return np.array(states[1:])


@pytest.mark.parametrize(("name", "equations"), EQUATIONS.items())
def test_a_cells_step_is_its_papers(name, equations):
    cell = recurrent_cells.CELLS[name](4, jnp.dtype("float32"))
    rng = np.random.default_rng(0)
    state = [rng.normal(size=(2, 4)).astype(np.float32) for _ in range(cell.parts)]
    x = rng.normal(size=(2, 5)).astype(np.float32)

    def step(cell, state, x):
        return jnp.stack(cell.advance(state, cell.from_input(x)))

    found, params = randomly(cell, tuple(map(jnp.asarray, state)), jnp.asarray(x), method=step)
    of_input, of_state = params["from_input"], params["from_state"]
    for row in range(2):
        projected = x[row] @ of_input["kernel"] + of_input["bias"]
        assert projected.shape == (cell.gates * 4,)
        expected = equations(*(part[row] for part in state), projected, of_state["kernel"])
        np.testing.assert_allclose(found[:, row], np.stack(expected), rtol=1e-5, atol=1e-6)


def test_each_sentence_is_read_from_an_empty_state():
    cell, rng = recurrent_cells.CELLS["rnn"](4, jnp.dtype("float32")), np.random.default_rng(0)
    x, fresh = rng.normal(size=(1, 4, 5)).astype(np.float32), [True, False, True, False]

    def read(cell, x, fresh):
        return recurrent_cells.run(cell, x, fresh, reverse=False)[0]

    found, params = randomly(cell, jnp.asarray(x), jnp.asarray([fresh]), method=read)
    of_input, of_state = params["from_input"], params["from_state"]
    h = np.full(4, np.nan)
    for t, begins in enumerate(fresh):
        projected = x[0, t] @ of_input["kernel"] + of_input["bias"]
        (h,) = elman(np.zeros(4) if begins else h, projected, of_state["kernel"])
        np.testing.assert_allclose(found[0, t], h, rtol=1e-5, atol=1e-6)


def test_a_sentences_ends_are_found_in_its_row():
    """Each target position gets its source's first and last position, also of one token."""
    source = np.array([[1, 2, 2, 2, 3, 0], [1, 1, 1, 1, 1, 2], [1, 0, 0, 0, 0, 0]])
    target = np.array([[1, 1, 2, 3], [1, 2, 2, 0], [1, 1, 1, 0]])
    found = masks.ends(jnp.asarray(target[:, :, None] == source[:, None, :]))
    for row, position in zip(*np.nonzero(target), strict=True):
        there = [i for i, segment in enumerate(source[row]) if segment == target[row, position]]
        assert [int(end[row, position]) for end in found] == [there[0], there[-1]]
    for end in found:  # padding without a source, too, reads from its row
        assert all(0 <= place < 6 for place in np.asarray(end).flat)


@pytest.mark.parametrize("width", range(2, 10))
def test_halves_for_each_direction_need_an_even_width(make_config, width):
    config = make_config({"model.architecture": "gru", "model.position": "none"}).model
    config = dataclasses.replace(config, d_model=width)
    refused = pytest.raises(errors.UserError, match="even d_model") if width % 2 else None
    with refused or contextlib.nullcontext():
        models.build(config, VOCABULARY)


def luong(p, h, encoded):
    context = weighted([h @ m for m in encoded], encoded)
    return np.tanh(np.concatenate([context, h]) @ p["combine"]["kernel"])


def bahdanau(p, s, encoded):
    sums = [dense(s, p["from_state"]) + dense(m, p["from_memory"]) for m in encoded]
    return weighted([np.tanh(each) @ p["score"]["kernel"][:, 0] for each in sums], encoded)


def test_dot_attention_is_luongs(seen):
    config, x, encoded, mask = seen
    found, params = randomly(
        recurrent_attention.DotAttention(config),
        jnp.asarray(x),
        interface.Source(*map(jnp.asarray, (encoded, encoded, mask))),
        method="after",
    )
    expected = np.zeros_like(x)
    for b, t in np.ndindex(*x.shape[:2]):
        expected[b, t] = luong(params, x[b, t], encoded[b][mask[b, t]])
    assert_close(found, expected)


def test_additive_attention_is_bahdanaus(seen):
    config, x, encoded, mask = seen

    def look(module, state, encoded, mask):
        return module.before(state, interface.Source(module.keys(encoded), encoded, mask))

    found, params = randomly(
        recurrent_attention.AdditiveAttention(config),
        *map(jnp.asarray, (x, encoded, mask)),
        method=look,
    )
    expected = np.zeros_like(x)
    for b, t in np.ndindex(*x.shape[:2]):
        expected[b, t] = bahdanau(params, x[b, t], encoded[b][mask[b, t]])
    assert_close(found, expected)


def of_pair(p, name, attention):
    """The outputs for SOURCE and TARGET, after each token that is read, of two layers of a cell."""

    def embedded(tokens):
        return p["embedding"][tokens] * np.sqrt(p["embedding"].shape[1])

    x, states, found = embedded([*SOURCE, 2]), [], []
    for n in range(2):
        left = unrolled(name, p[f"forwards_{n}"], x)
        right = unrolled(name, p[f"backwards_{n}"], x[::-1])[::-1]
        ends = np.concatenate([left[-1], right[0]], axis=-1)
        states.append([np.tanh(dense(end, p[f"bridge_{n}_{k}"])) for k, end in enumerate(ends)])
        y = np.concatenate([left, right], axis=-1)[:, 0]
        x = x + y if n else y
    for token in [1, *TARGET]:
        h = embedded(token)
        if attention == "additive":  # the last layer's state before the step
            h = np.concatenate([h, bahdanau(p["attention"], states[1][0], x)])
        for n, state in enumerate(states):
            of_input, of_state = (p[f"decoder_{n}"][key] for key in ("from_input", "from_state"))
            states[n] = EQUATIONS[name](*state, dense(h, of_input), of_state["kernel"])
            h = h + states[n][0] if n else states[n][0]
        found.append(luong(p["attention"], h, x) if attention == "dot" else h)
    return np.array(found)


@pytest.mark.parametrize(("name", "attention"), [("lstm", "additive"), ("gru", "dot")])
def test_two_layers_with_attention_are_their_papers(make_config, name, attention):
    kind = {"model.architecture": name, "model.recurrent_attention": attention}
    config = make_config({**kind, "model.position": "none", "model.num_layers": 2}).model
    model = models.build(config, VOCABULARY)
    params = random_parameters.of(model)
    batch = jax.tree.map(jnp.asarray, batching.fill([[(SOURCE, TARGET)]], 5, 4))
    found = jax.jit(models.outputs, static_argnums=0)(model, params, batch)
    exact = jax.tree.map(lambda x: np.array(x, np.float64), params["params"])
    assert_close(found[0], of_pair(exact, name, attention))


@pytest.mark.parametrize("size", [3, 4])
def test_an_encoders_convolution_sees_what_xlas_does(make_config, size):
    """XLA's padding is "SAME", with the odd position at the end."""
    changes = {"model.architecture": "conv", "model.kernel_size": size, "model.num_layers": 1}
    model, tokens = models.build(make_config(changes).model, VOCABULARY), [4, 5, 6, 7, 8, 9, 10]
    one, other = (
        jax.tree.map(jnp.asarray, batching.fill([[(ids, [])]], 8, 1).source)
        for ids in (tokens, [*tokens[:3], 11, *tokens[4:]])
    )
    params = random_parameters.of(model)
    encode: Any = functools.partial(model.apply, params, method="encode")
    before, after = (encode(ids).keys for ids in (one, other))
    there = jnp.zeros(8).at[3].set(1)[None, None]
    sees = jax.lax.conv(there, jnp.ones((1, 1, size)), (1,), "SAME")[0, 0]
    np.testing.assert_array_equal(jnp.any(before != after, axis=-1)[0], sees > 0)


def test_a_convolution_is_gated(seen):
    config, x, _, _ = seen
    found, params = randomly(convolutional.GatedConvolution(config), jnp.asarray(x))
    for b, t in np.ndindex(*x.shape[:2]):
        both = x[b, t] @ params["kernel"]["kernel"] + params["kernel"]["bias"]
        value, gate = both[: config.d_model], both[config.d_model :]
        assert_close(found[b, t], value / (1 + np.exp(-gate)))


def test_a_convolutional_decoders_attention_is_gehrings(seen):
    config, x, keys, mask = seen
    rng = np.random.default_rng(2)
    values, embedded = (rng.normal(size=like.shape).astype(np.float32) for like in (keys, x))
    found, params = randomly(
        convolutional.StepAttention(config),
        *map(jnp.asarray, (x, embedded)),
        interface.Source(*map(jnp.asarray, (keys, values, mask))),
    )
    query, output, half = params["query"], params["output"], np.sqrt(0.5)
    expected = np.zeros_like(x)
    for b, t in np.ndindex(*x.shape[:2]):
        asked = (x[b, t] @ query["kernel"] + query["bias"] + embedded[b, t]) * half
        context = weighted([asked @ k for k in keys[b][mask[b, t]]], values[b][mask[b, t]])
        context = context * np.sqrt(mask[b, t].sum())
        expected[b, t] = (x[b, t] + context @ output["kernel"] + output["bias"]) * half
    assert_close(found, expected)


def test_a_convolutional_encoders_values_are_gehrings(make_config):
    """They are its outputs, which are the keys, plus its embeddings."""
    model = models.build(make_config({"model.architecture": "conv"}).model, VOCABULARY)
    rows = jnp.array([[5, 6, 7, 0]]), jnp.array([[1, 1, 1, 0]]), jnp.array([[0, 1, 2, 0]])
    source = sequences.Sequences(*rows)
    params = random_parameters.of(model)
    found: Any = model.apply(params, source, method="encode")
    read = model.apply(params, rows[0], rows[2], dropout.NONE, method="_embed")
    np.testing.assert_allclose(found.values, (found.keys + read) * np.sqrt(0.5), rtol=1e-5)


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
    with pytest.raises(errors.UserError, match=message):
        models.build(make_config(overrides).model, VOCABULARY)
