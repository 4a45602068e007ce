"""Wrong translations for the pair task: other targets of equal length."""

import numpy as np
from jaxtyping import Int

from transformer_jax.data import token_cache

Lists = token_cache.Lists | list[list[int]]


def draw(targets: Lists, pairs: Int[np.ndarray, "pairs"], seed: int) -> Int[np.ndarray, "_"]:
    """Draws, for each pair, another pair whose target is shown as a wrong translation.

    The different targets of one length are put into a random cycle, and each is followed by the
    wrong one: so each is wrong as often as right, and neither a target nor a length says which it
    is. A pair whose target is the only one of its length is given a random target of the nearest
    length.

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
