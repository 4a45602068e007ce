"""Wrong translations for pair classification: targets of other pairs with a similar length.

A classifier could otherwise recognise many wrong translations by their length.
"""

import numpy as np
from jaxtyping import Int

from transformer_jax.data import token_cache

Lists = token_cache.Lists | list[list[int]]


def draw(targets: Lists, pairs: Int[np.ndarray, "pairs"], seed: int) -> Int[np.ndarray, "_"]:
    """Draws a wrong translation for each pair: the target of another pair.

    The distinct targets of each length are put into a random cycle. The wrong translation of a pair
    is the target that follows the pair's own target in this cycle. If a length has only one
    distinct target, the wrong translation is drawn from the targets of the nearest length.

    If no target repeats and each length has several targets, every target is a wrong translation
    exactly once.

    Args:
      targets: lists of token ids.
      pairs: the numbers of the pairs, which are indices of `targets`.
      seed: seed of the random numbers.

    Returns:
      For each pair, the number of the pair whose target is its wrong translation; an empty array if
      all targets are equal.
    """
    rng = np.random.default_rng(seed)
    lengths = np.array([len(targets[pair]) for pair in pairs.tolist()])
    wrong = np.empty_like(pairs)
    for length in np.unique(lengths):
        here = np.flatnonzero(lengths == length)
        texts = np.array([targets[pair] for pair in pairs[here].tolist()])
        _, first, text = np.unique(texts, axis=0, return_index=True, return_inverse=True)
        if len(first) > 1:
            cycle = rng.permutation(len(first))
            following = np.empty_like(cycle)
            following[cycle] = np.roll(cycle, -1)
            wrong[here] = pairs[here[first[following[text.reshape(-1)]]]]
        elif len(here) < len(pairs):
            distance = np.where(lengths == length, np.inf, np.abs(lengths - length))
            nearest = np.flatnonzero(distance == distance.min())
            wrong[here] = pairs[rng.choice(nearest, len(here))]
        else:
            return pairs[:0]
    return wrong
