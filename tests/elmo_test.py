"""ELMo against its equations in NumPy, and its invariants."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import encoder_test, random_parameters, recurrent_test
from transformer_jax import models
from transformer_jax.models import interface

TEXTS = encoder_test.TEXTS
LENGTH = 24


@pytest.fixture
def drawn(make_config):
    """Returns a model and random parameters."""
    config = make_config({"model.architecture": "elmo", "model.position": "none"})
    model = models.build(config.model, encoder_test.VOCABULARY)
    params = random_parameters.of(model)
    params["params"]["mixture"] = jnp.array([0.5, -0.3, 0.2])
    assert not isinstance(model, interface.Decoder)
    return model, params


@pytest.fixture
def run(drawn):
    """Returns a function from packed texts to outputs forwards and backwards."""
    predictions = jax.jit(models.predictions, static_argnums=0)

    def outputs_of(rows, length=LENGTH):
        batch = encoder_test.batch_of(rows, length)
        outputs = np.asarray(predictions(*drawn, batch).outputs)
        return outputs.reshape(len(rows), 2, length, -1)

    return outputs_of


def peters(p, tokens):
    """Returns the outputs of one text, forwards and backwards, by sections 3.1 and 3.2."""
    x = p["embedding"][tokens] * np.sqrt(p["embedding"].shape[1])
    left, right, layers = x, x, [x]
    for n in range(len(p["mixture"]) - 1):
        y = recurrent_test.unrolled("lstm", p[f"left_{n}"], left)[:, 0]
        z = recurrent_test.unrolled("lstm", p[f"right_{n}"], right[::-1])[::-1, 0]
        left, right = (left + y, right + z) if n else (y, z)
        layers.append(np.concatenate([left, right], axis=1))
    shares = np.exp(p["mixture"]) / np.exp(p["mixture"]).sum()
    mixed = p["scale"] * sum(share * h for share, h in zip(shares, layers, strict=True))
    half = mixed.shape[1] // 2
    whole = np.concatenate([mixed[-1, :half], mixed[0, half:]])
    text, before, after = (
        recurrent_test.dense(h, p[name])
        for name, h in (
            ("text", whole),
            ("from_left", left[:-1]),
            ("from_right", np.vstack([right[2:], 0 * right[:1]])),
        )
    )
    return np.stack([np.vstack([np.tanh(text), said]) for said in (before, after)])


def test_is_the_equations_of_one_text_after_another(drawn, run):
    exact = jax.tree.map(lambda x: np.array(x, np.float64), drawn[1]["params"])
    found = run([TEXTS])[0]
    expected = np.concatenate([peters(exact, tokens) for tokens in TEXTS], axis=1)
    np.testing.assert_allclose(found[:, : expected.shape[1]], expected, rtol=1e-4, atol=1e-5)


def test_each_direction_reads_the_tokens_on_its_side_and_not_the_token_itself(run):
    before = run([TEXTS])[0]
    start, words = len(TEXTS[0]), len(TEXTS[1])
    for place in range(1, words):
        changed = list(TEXTS[1])
        changed[place] = 3
        after = run([[TEXTS[0], changed, *TEXTS[2:]]])[0]
        moved = np.abs(after - before).max(axis=-1)
        own = moved[:, start : start + words].copy()
        moved[:, start : start + words] = 0
        assert not moved.any(), "another text, or padding, depends on it"
        forwards, backwards = own
        assert not forwards[1 : place + 1].any()
        assert (forwards[place + 1 :] > 1e-6).all()
        assert not backwards[place:].any()
        assert (backwards[1:place] > 1e-6).all()
        assert own[:, 0].min() > 1e-6  # of the whole text


def test_packing_and_padding_change_no_texts_outputs(run):
    packed = run([TEXTS])[0]
    start = 0
    for tokens in TEXTS:
        alone = run([[tokens]], 10)[0, :, : len(tokens)]
        found = packed[:, start : start + len(tokens)]
        np.testing.assert_allclose(found, alone, rtol=2e-4, atol=2e-5)
        start += len(tokens)


def test_both_directions_have_the_same_output_for_a_whole_text(run):
    found = run([TEXTS])[0]
    starts = np.cumsum([0, *(len(tokens) for tokens in TEXTS[:-1])])
    np.testing.assert_array_equal(found[0, starts], found[1, starts])


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_a_text_is_a_mixture_of_its_words_and_every_layer(make_config, layers):
    changes = {"model.architecture": "elmo", "model.position": "none", "model.num_layers": layers}
    model = models.build(make_config(changes).model, encoder_test.VOCABULARY)
    shapes = jax.eval_shape(lambda key: nn.unbox(models.init(model, key)), jax.random.key(0))
    assert shapes["params"]["mixture"].shape == (layers + 1,)


def test_scale_multiplies_the_mixture_of_a_text(make_config):
    config = make_config({"model.architecture": "elmo", "model.position": "none"})
    model = models.build(config.model, encoder_test.VOCABULARY)
    params = random_parameters.of(model)
    batch = encoder_test.batch_of([TEXTS[:1]], LENGTH)
    outputs = jax.jit(models.outputs, static_argnums=0)
    said = []
    for scale in (1.0, 2.0):
        params["params"]["scale"] = jnp.array(scale)
        said.append(np.arctanh(np.asarray(outputs(model, params, batch))[0, 0]))
    bias = np.asarray(params["params"]["text"]["bias"])
    np.testing.assert_allclose(said[1] - bias, 2 * (said[0] - bias), rtol=1e-3, atol=1e-4)


def test_both_directions_predict_the_labels(drawn):
    model, params = drawn
    batch = encoder_test.batch_of([TEXTS, TEXTS[:2]], LENGTH)
    batch = jax.tree.map(jnp.asarray, batch._replace(labels=batch.target.tokens))
    outputs, labels, segments = models.predictions(model, params, batch)
    np.testing.assert_array_equal(labels, np.hstack([batch.labels] * 2))
    np.testing.assert_array_equal(segments, np.hstack([batch.target.segments] * 2))
    np.testing.assert_allclose(
        outputs[:, :LENGTH], models.outputs(model, params, batch), rtol=1e-4, atol=1e-5
    )
