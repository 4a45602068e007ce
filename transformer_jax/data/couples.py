"""Translations, and sentences that could be taken for them: what tells them apart is their meaning.

A couple is two sentence pairs that look alike: their sources, and likewise their targets, have as
many tokens, give or take `APART`, and share words; of either target both sources have as many
words. Of a couple one target is shown with both sources, and is the translation of one. So half of
what is shown is true, and neither the target, nor words that it has of the source, nor (but for
`APART`) lengths say which half.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize

from transformer_jax.data import token_cache

APART = 1  # tokens by which the lengths of a couple's sentences differ at most
TOGETHER = 1024  # pairs of about equal lengths among which couples are made

Lists = token_cache.Lists | list[list[int]]


def make(
    source: Lists, target: Lists, numbers: Int[np.ndarray, "pairs"], seed: int
) -> Int[np.ndarray, "couples 2"]:
    """Makes couples of pairs, by their numbers; those that look like no other are left out.

    Pairs are sorted by length, those of equal lengths at random, and cut into groups. In a group
    every second pair gets one of the others, in the way that lets the couples' sentences share most
    words in all; a word that comes twice in a sentence counts once.
    """
    lengths = np.array([(len(target[i]), len(source[i])) for i in numbers.tolist()]).reshape(-1, 2)
    draws = np.random.default_rng(seed).random(len(numbers))
    order = numbers[np.lexsort((draws, lengths[:, 1], lengths[:, 0]))]
    found = [np.zeros((0, 2), np.int64)]
    for start in range(0, len(order), TOGETHER):
        group = order[start : start + TOGETHER]
        shared = _shared([[side[i] for i in group.tolist()] for side in (source, target)])
        likeness = shared[::2, 1::2]
        possible = np.isfinite(likeness)
        # What cannot be costs more than all else together is worth.
        worth = np.where(possible, likeness, -1e6)
        one, other = optimize.linear_sum_assignment(worth, maximize=True)
        chosen = possible[one, other]
        found.append(np.stack([group[::2][one], group[1::2][other]], axis=1)[chosen])
    return np.concatenate(found)


def _shared(sides: list[list]) -> Float[np.ndarray, "pairs pairs"]:
    """Words that two pairs share, on both sides together; -inf where they can be no couple."""
    texts = [np.asarray(tokens) for side in sides for tokens in side]
    lengths = np.array([len(tokens) for tokens in texts])
    words, column = np.unique(np.concatenate(texts), return_inverse=True)
    has = np.zeros((len(texts), len(words)), np.float32)
    has[np.repeat(np.arange(len(texts)), lengths), column] = 1
    source, target = np.split(has, 2)
    of_both = source @ target.T  # words of source i that target j has
    unequal = of_both != np.diag(of_both)
    possible = ~(unequal | unequal.T)
    shared = np.zeros_like(of_both)
    for side, length in zip((source, target), np.split(lengths, 2), strict=True):
        number = side.sum(axis=1)
        common = side @ side.T
        one_text = (common == number) & (common == number[:, None])  # but for the order of words
        possible &= (abs(length[:, None] - length) <= APART) & ~one_text
        shared += common
    return np.where(possible, shared, -np.inf)
