"""Sampling against probabilities computed in loops."""

import inspect
import itertools
import math
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from configs import toy
from tests import random_parameters
from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import batching, tokenizer
from transformer_jax.decoding import sampling

WAYS = [
    sampling.Drawing("greedy", 1.0, 0, 0.0),
    sampling.Drawing("all", 1.0, 0, 0.0),
    sampling.Drawing("all", 0.5, 0, 0.0),
    sampling.Drawing("top_k", 1.0, 2, 0.0),
    sampling.Drawing("top_k", 2.0, 99, 0.0),
    sampling.Drawing("nucleus", 1.0, 0, 0.7),
    sampling.Drawing("nucleus", 0.5, 0, 0.7),
    sampling.Drawing("nucleus", 1.0, 0, 0.0),
]


def plain(logits, settings):
    """Returns the probability of each token, computed in loops."""
    weights = [math.exp(float(x) / settings.temperature) for x in logits]
    share = [weight / sum(weights) for weight in weights]
    left = sorted(range(len(logits)), key=lambda token: (-share[token], token))
    kept = []
    while left:
        enough = {
            "greedy": len(kept) == 1,
            "all": False,
            "top_k": len(kept) == settings.top_k,
            "nucleus": len(kept) >= 1 and sum(share[token] for token in kept) >= settings.top_p,
        }
        if enough[settings.method]:
            break
        kept.append(left.pop(0))
    total = sum(share[token] for token in kept)
    return [share[token] / total if token in kept else 0.0 for token in range(len(logits))]


@pytest.mark.parametrize("settings", WAYS, ids=str)
def test_probabilities_are_those_of_the_kept_tokens(settings):
    logits = 2 * np.random.default_rng(0).normal(size=(3, 4, 7)).astype(np.float32)
    logits[0, 0] = [1, 3, 0, 3, 1, 3, -1]  # equals
    found = np.exp(sampling.log_probabilities(jnp.asarray(logits), settings))
    for place in np.ndindex(3, 4):
        np.testing.assert_allclose(found[place], plain(logits[place], settings), rtol=1e-4)


def test_every_method_is_tested():
    assert {settings.method for settings in WAYS} == set(sampling.METHODS)


VOCABULARY, LENGTH, DRAWS = 5, 3, 3000  # padding, start, end, unknown and one word


@pytest.fixture(scope="module")
def model_and_params():
    base = config_lib.from_mapping(toy.get_config().to_dict())
    sizes = {"num_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 2, "d_k": 4, "d_v": 4}
    changes = {f"model.{name}": size for name, size in sizes.items()}
    config = config_lib.replace(base, {**changes, "model.architecture": "decoder"})
    model = models.build(config.model, VOCABULARY)
    return model, random_parameters.of(model)


def expected_texts(model, params, settings):
    """Returns the probability of every text by full forward passes."""
    prefixes = list(itertools.product(range(VOCABULARY), repeat=LENGTH - 1))
    batch = batching.fill([[((), prefix)] for prefix in prefixes], 1, LENGTH)
    logits = np.asarray(jax.jit(models.logits, static_argnums=0)(model, params, batch))
    found: dict[tuple[int, ...], float] = {}
    for prefix, rows in zip(prefixes, logits, strict=True):
        for last in range(VOCABULARY):
            text, probability = (*prefix, last), 1.0
            for place, token in enumerate(text):
                probability *= plain(rows[place], settings)[token]
            if tokenizer.EOS in text:
                end = text.index(tokenizer.EOS) + 1
                text = (*text[:end], *[0] * (LENGTH - end))
            found[text] = found.get(text, 0.0) + probability
    # Texts that differ after their EOS were counted together.
    return found


@pytest.mark.parametrize(
    "settings", [WAYS[0], WAYS[2], WAYS[5]], ids=lambda settings: settings.method
)
def test_texts_are_as_frequent_as_their_probabilities(model_and_params, settings):
    model, params = model_and_params
    expected = expected_texts(model, params, settings)
    assert sum(expected.values()) == pytest.approx(1, abs=1e-4)
    nothing = jnp.zeros(0, jnp.int32)
    found = sampling.continuations(
        model, params, nothing, DRAWS, LENGTH, settings, jax.random.key(0)
    )
    counts: dict[tuple[int, ...], int] = {}
    for text in map(tuple, np.asarray(found).tolist()):
        counts[text] = counts.get(text, 0) + 1
    assert {text for text in counts if not expected.get(text)} == set()
    # Those of which a few at least should come, and all others together.
    often = [text for text, likely in expected.items() if DRAWS * likely >= 5]
    seen = [counts.get(text, 0) for text in often]
    likely = [DRAWS * expected[text] for text in often]
    seen, likely = ([*some, DRAWS - sum(some)] for some in (seen, likely))
    assert sum((s - e) ** 2 / e for s, e in zip(seen, likely, strict=True) if e > 0.1) <= (
        stats.chi2.ppf(0.999, len(often))
    )


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_a_prompt_leaves_tokens_to_draw_where_positions_reach(make_config, monkeypatch, position):
    """The empty source's EOS and each token of a text take a position; no model is run."""
    changes = {"model.position": position, "model.max_positions": 7, "data.source_language": ""}
    run: Any = types.SimpleNamespace(
        config=make_config(changes),
        model=types.SimpleNamespace(one_sequence=True),
        params={},
        tokenizer=types.SimpleNamespace(
            encode=lambda lines: [[4] * len(line) for line in lines],
            decode=lambda texts: [f"{len(text)} tokens" for text in texts],
            vocab_size=VOCABULARY,
        ),
    )
    monkeypatch.setattr(
        sampling,
        "continuations",
        lambda model, params, prompt, number, length, *_: np.zeros((number, length), int),
    )
    draw = inspect.unwrap(sampling.texts)
    for prompt, length in itertools.product(range(10), range(1, 10)):
        if prompt < length and (position == "sinusoidal" or 1 + length <= 7):
            assert draw(run, "a" * prompt, 2, length, WAYS[1], 0) == [f"{length} tokens"] * 2
        else:
            said = "leaves none of" if prompt >= length else "positions allow, 6"
            with pytest.raises(errors.UserError, match=said):
                draw(run, "a" * prompt, 2, length, WAYS[1], 0)


def test_a_text_begins_with_its_prompt_and_depends_on_the_key_alone(model_and_params):
    model, params = model_and_params
    prompt = jnp.array([4, 3], jnp.int32)

    def texts(seed):
        key = jax.random.key(seed)
        return np.asarray(sampling.continuations(model, params, prompt, 50, 6, WAYS[1], key))

    one, other = texts(0), texts(1)
    assert (one[:, :2] == [4, 3]).all()
    np.testing.assert_array_equal(one, texts(0))
    assert (one != other).any()
    assert len({tuple(row) for row in one.tolist()}) > 10
    # Nothing follows EOS.
    for row in one.tolist():
        if tokenizer.EOS in row:
            assert not any(row[row.index(tokenizer.EOS) + 1 :])
