"""Wrong translations for pair classification: other targets of equal length."""

import numpy as np
from jaxtyping import Int

from transformer_jax.data import token_cache

Lists = token_cache.Lists | list[list[int]]


def draw(targets: Lists, pairs: Int[np.ndarray, "pairs"], seed: int) -> Int[np.ndarray, "_"]:
    """Draws, for each pair, another pair whose target is shown as a wrong translation.

    The distinct targets of a length form a random cycle; the wrong target of a pair is its target's
    successor in the cycle. If a length has one distinct target, the wrong one is drawn from the
    nearest length. Where no target repeats and each length has several, every target is right and
    wrong equally often.

    Args:
      targets: lists of token ids.
      pairs: the numbers of the pairs' targets among those.
      seed: determines the draw.

    Returns:
      For each pair the number of another's target; empty if all targets are equal.
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
