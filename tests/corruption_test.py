"""Corruption of texts against published examples and against all possible masks."""

import collections
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats

from transformer_jax.data import corruption, tokenizer

THANKS = "Thank you for inviting me to your party last week".split()  # figure 2 of T5's paper


def runs(mask):
    """Returns the number of runs of True elements in a mask."""
    return sum(key for key, _ in itertools.groupby(mask))


def test_the_worked_example_of_t5():
    corrupted = np.isin(THANKS, ["for", "inviting", "last"])
    words = [*THANKS, "<X>", "<Y>", "<Z>"]
    text = np.arange(len(THANKS))
    source, target = (
        " ".join(words[i] for i in side)
        for side in corruption.with_sentinels(text, corrupted, len(THANKS))
    )
    assert source == "Thank you <X> me to your party <Y> week"
    assert target == "<X> for inviting <Y> last <Z>"


def test_tokens_and_spans_are_as_many_as_t5s():
    # T5 fills 512 positions of input from 568 tokens, which leaves 114 positions of targets.
    chosen, spans = corruption.number_chosen(568), corruption.number_of_spans(568)
    assert 568 - chosen + spans + 1 == 512
    assert chosen + spans + 1 == 114
    rng = np.random.default_rng(0)
    for length in range(3, 700):
        mask = corruption.random_spans(length, rng)
        tokens = min(max(int(np.round(0.15 * length)), 1), length - 1)
        assert (mask.size, mask.sum()) == (length, tokens)
        assert runs(mask) == max(int(np.round(tokens / 3)), 1)


@pytest.mark.parametrize("length", [3, 9, 32])
def test_every_mask_with_these_numbers_is_equally_likely(length):
    chosen, spans = corruption.number_chosen(length), corruption.number_of_spans(length)
    possible = []
    for places in itertools.combinations(range(length), chosen):
        gaps = sum(later > earlier + 1 for earlier, later in itertools.pairwise(places))
        if gaps + 1 == spans:
            possible.append(tuple(np.isin(np.arange(length), places).tolist()))
    rng = np.random.default_rng(0)
    drawn = collections.Counter(
        tuple(corruption.random_spans(length, rng).tolist()) for _ in range(10 * len(possible))
    )
    assert set(drawn) <= set(possible)
    counts = [drawn[mask] for mask in possible]
    assert scipy.stats.chisquare(counts).pvalue > 0.01


def test_tokens_are_drawn_evenly():
    rng = np.random.default_rng(0)
    words = np.sum([corruption.random_tokens(20, rng) for _ in range(2000)], axis=0)
    assert words.sum() == 2000 * 3
    assert scipy.stats.chisquare(words).pvalue > 0.01


@pytest.mark.parametrize("shares", [(0.8, 0.1), (0.9, 0.1)])
def test_masked_replaced_and_kept_tokens_have_their_shares(shares):
    size, mask, token = 300, 302, 7  # ids between the vocabulary and the mask are tags
    rng = np.random.default_rng(0)
    text = np.full(20_000, token)
    chosen = corruption.random_tokens(len(text), rng)
    found = corruption.masked(text, chosen, shares, size, mask, rng)
    assert (found[~chosen] == token).all()
    hidden = int((found[chosen] == mask).sum())
    others = found[chosen & (found != mask) & (found != token)]
    for number, share in ((hidden, shares[0]), (len(others), shares[1])):
        low, high = scipy.stats.binom.interval(0.999, int(chosen.sum()), share)
        assert low <= number <= high
    unchanged = int((found[chosen] == token).sum())
    # A random token may be the token itself.
    assert unchanged <= 3 if sum(shares) == 1 else unchanged > 200
    # All tokens are equally likely, and special ones are never drawn.
    assert others.min() > tokenizer.UNK
    assert others.max() < size
    evenly: Any = scipy.stats.ks_1samp(
        others + rng.random(len(others)), scipy.stats.uniform(4, size - 4).cdf
    )
    assert evenly.pvalue > 0.01
