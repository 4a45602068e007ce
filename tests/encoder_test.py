"""Invariants of an encoder alone: outputs depend on the whole text, and on nothing else."""

import inspect
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_parameters
from transformer_jax import models, sequences
from transformer_jax.data import tokenizer
from transformer_jax.evaluation import attention_weights
from transformer_jax.models import encoder

VOCABULARY = 50
VARIANTS = [
    {},
    {"model.embedding_norm": True, "model.position": "learned", "model.feed_forward": "gelu"},
    {"model.norm_placement": "pre", "model.norm": "rms_norm", "model.position": "t5"},
    {"model.position": "alibi", "model.num_kv_heads": 2},
    {"model.position": "rotary", "model.feed_forward": "swiglu"},
    {"model.position": "relative"},
]
every_variant = pytest.mark.parametrize("overrides", VARIANTS, ids=str)
jitted_outputs = jax.jit(models.outputs, static_argnums=0)


@pytest.fixture
def make_model(make_config):
    def make(overrides):
        kind = {"model.architecture": "encoder", "model.num_layers": 1 if overrides else 2}
        model = models.build(make_config({**kind, **overrides}).model, VOCABULARY)
        return model, random_parameters.of(model)

    return make


def text(seed, length, second=0):
    """Returns a random text after its BOS, with a second sentence if that has a length."""
    words = np.random.default_rng(seed).integers(4, VOCABULARY, length + second).tolist()
    return [1, *words[:length], *([tokenizer.EOS, *words[length:]] if second else [])]


TEXTS = [text(0, 5), text(1, 3, 4), text(2, 1), text(3, 2, 2)]


def batch_of(rows, length):
    """Returns texts in rows, written by a loop."""
    arrays = np.zeros((3, len(rows), length), np.int32)
    for row, texts in enumerate(rows):
        start = 0
        for segment, tokens in enumerate(texts, start=1):
            for place, token in enumerate(tokens):
                arrays[:, row, start + place] = token, segment, place
            start += len(tokens)
    source = sequences.Sequences(*[np.zeros((len(rows), 2), np.int32)] * 3)
    return sequences.Batch(source, sequences.Sequences(*arrays), np.zeros_like(arrays[0]))


def outputs(model, params, rows, length=24):
    return np.asarray(jitted_outputs(model, params, batch_of(rows, length)))


@every_variant
def test_each_position_sees_every_other_of_its_text(make_model, overrides):
    model, params = make_model(overrides)
    before = outputs(model, params, [TEXTS])
    lengths = [len(tokens) for tokens in TEXTS]
    for place in range(lengths[1]):
        changed = list(TEXTS[1])
        changed[place] = 3
        after = outputs(model, params, [[TEXTS[0], changed, *TEXTS[2:]]])
        moved = np.abs(after - before)[0].max(axis=-1)
        own = slice(lengths[0], lengths[0] + lengths[1])
        assert moved[own].min() > 1e-5
        moved[own] = 0
        assert not moved.any(), "another text, or padding, knows of it"


@every_variant
def test_packing_and_padding_change_no_texts_outputs(make_model, overrides):
    model, params = make_model(overrides)
    packed = outputs(model, params, [TEXTS])[0]
    start = 0
    for tokens in TEXTS:
        alone = outputs(model, params, [[tokens]], 10)[0, : len(tokens)]
        found = packed[start : start + len(tokens)]
        np.testing.assert_allclose(found, alone, rtol=2e-4, atol=2e-5)
        start += len(tokens)


def test_a_window_limits_what_it_sees(make_model):
    model, params = make_model({"model.window": 1})
    before, after = (outputs(model, params, [[[1, 5, 6, 7, 8, last]]]) for last in (9, 10))
    moved = np.abs(after - before)[0].max(axis=-1)
    assert not moved[:4].any()
    assert moved[4:6].min() > 1e-5


def test_sentences_are_told_apart_by_the_end_of_the_first():
    rows = [TEXTS, [[1, 2, 5, 2, 6], [1, 7]]]
    expected = np.zeros((2, 24), int)
    for row, texts in enumerate(rows):
        flat = [
            int(tokenizer.EOS in tokens[:place]) for tokens in texts for place in range(len(tokens))
        ]
        expected[row, : len(flat)] = flat
    target = jax.tree.map(jnp.asarray, batch_of(rows, 24).target)
    found = np.asarray(encoder.sentence_of(target))
    np.testing.assert_array_equal(np.where(target.segments > 0, found, 0), expected)


def test_which_sentence_a_word_stands_in_changes_its_output(make_model):
    model, params = make_model({})
    same = jax.tree.map(jnp.copy, params)
    same["params"]["sentences"] = jnp.broadcast_to(same["params"]["sentences"][:1], (2, 16))
    before, after = (outputs(model, each, [TEXTS])[0] for each in (params, same))
    moved = np.abs(after - before).max(axis=-1)
    assert not moved[: len(TEXTS[0])].any()
    assert moved[len(TEXTS[0]) :][: len(TEXTS[1])].min() > 1e-5


def test_each_sentences_vector_is_read(make_model):
    model, params = make_model({})

    def total(sentences):
        changed = {"params": {**params["params"], "sentences": sentences}}
        return jnp.sum(jitted_outputs(model, changed, batch_of([TEXTS], 24)) ** 2)

    gradient = jax.grad(total)(params["params"]["sentences"])
    assert abs(np.asarray(gradient)).max(axis=1).min() > 1e-3


def test_its_attention_is_sown_for_maps(make_model):
    model, params = make_model({})
    found = attention_weights.sown(model, params, batch_of([TEXTS], 24))
    assert [array.shape for array in found.values()] == [(1, 4, 24, 24)] * 2
    segments = batch_of([TEXTS], 24).target.segments[0]
    apart = segments[:, None] != segments[None, :]
    for array in found.values():
        np.testing.assert_allclose(array.sum(axis=-1), 1, rtol=1e-5)
        assert not array[0][:, apart].any()


def test_its_map_is_of_both_sentences_after_one_another(make_model):
    model, params = make_model({})
    tokenizer = types.SimpleNamespace(
        encode=lambda lines: [[5 + len(word) for word in line.split()] for line in lines],
        pieces=lambda ids: [f"\u2581{token}" for token in ids],
    )
    of_text: Any = inspect.unwrap(attention_weights.of_text)
    (maps,) = of_text(model, params, tokenizer, model.config, ["a dog", "Hund"])
    assert maps.rows == maps.columns == ["_1", "_6", "_8", "_2", "_9"]
    alone = attention_weights.sown(model, params, batch_of([[[1, 6, 8, 2, 9]]], 5))
    expected = np.stack([array[0] for array in alone.values()])
    np.testing.assert_allclose(maps.weights, expected, rtol=1e-5)
