"""Translations do not depend on devices, batches, order or threads."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer_jax
from tests import random_parameters
from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.data import batching, toy
from transformer_jax.decoding import beam_search, translator
from transformer_jax.distributed import sharding


@pytest.fixture(scope="module")
def sentences():
    pairs, _ = toy.sentences(45, 1, 3)
    return [pair.english for pair in pairs]


def translate(trained, sentences, devices=1, changes=None):
    loaded = transformer_jax.load(trained)
    found = translator.Translator(
        loaded.model,
        jax.device_get(loaded.params),
        loaded.tokenizer,
        config_lib.replace(loaded.config, changes or {}),
        sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1), jax.devices()[:devices]),
    )
    return found, found.translate(sentences)


@pytest.mark.parametrize("beam_size", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_translation_depends_on_its_sentence_alone(trained, sentences, beam_size, monkeypatch):
    how = {"decode.beam_size": beam_size, "decode.batch_sentences": 32}
    rows, batches = [], batching.padded_batches
    monkeypatch.setattr(
        batching, "padded_batches", lambda *given: rows.append(given[1]) or batches(*given)
    )
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    alone, expected = translate(trained, sentences, 1, how)
    assert alone._searches == 1
    assert len(set(expected)) > 5
    _, on_eight = translate(trained, sentences, 8, how)
    assert on_eight == expected
    _, reversed_ = translate(trained, sentences[::-1], 1, {**how, "decode.batch_sentences": 16})
    assert reversed_[::-1] == expected
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    several, side_by_side = translate(trained, sentences, 1, how)
    assert several._searches == 2
    assert side_by_side == expected
    # Sentences too long for a batch go one to a device, others in the largest batches allowed.
    assert rows == [1, 32, 8, 32, 1, 16, 1, 16]


CASES = {
    "transformer": {"model.norm_placement": "pre", "model.position": "t5"},
    "learned positions": {"model.position": "learned"},
    "lstm": {"model.architecture": "lstm", "model.recurrent_attention": "additive"},
    "conv": {"model.architecture": "conv"},
}


@pytest.mark.parametrize("name", CASES)
def test_weights_are_cast_once_and_change_no_translation(make_config, name):
    overrides = CASES[name]
    if "model.architecture" in overrides and name != "conv":
        overrides = {**overrides, "model.position": "none"}
    config = make_config({**overrides, "model.num_layers": 1, "model.compute_dtype": "bfloat16"})
    model: Any = models.build(config.model, 50)
    row = sequences.Sequences(*(jnp.array([x]) for x in ([5, 6, 7, 2], [1] * 4, [0, 1, 2, 3])))
    params = random_parameters.of(model)
    weights = translator.cast(params, config.model.dtype)
    search: Any = beam_search.BeamSearch(model, config.decode)
    expected, found = search(params, row), search(weights, row)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_array_equal(found.scores, expected.scores)
    # What the steps still cast has fewer dimensions than a matrix, or is no parameter.
    beam = search._start(weights, row)
    shapes = {x.shape for x in jax.tree.leaves(params) if x.ndim > 1}
    assert casts(search._several_steps, params, beam, shapes)
    assert not casts(search._several_steps, weights, beam, shapes)


def casts(function, params, beam, shapes):
    """Returns the shapes of float32 weights that a program casts to bfloat16."""
    found = set()

    def look(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "convert_element_type":
                before, after = equation.invars[0].aval, equation.outvars[0].aval
                if (before.dtype, after.dtype) == (jnp.float32, jnp.bfloat16):
                    found.add(before.shape)
            for inner in jax.tree.leaves(equation.params, is_leaf=is_jaxpr):
                if is_jaxpr(inner):
                    look(getattr(inner, "jaxpr", inner))

    look(jax.make_jaxpr(function)(params, beam).jaxpr)
    return found & shapes


def is_jaxpr(x):
    return hasattr(x, "eqns") or hasattr(x, "jaxpr")
