"""Whether rows stand in the paper's order: Kendall's tau-b, over sentences and seeds."""

import itertools
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from experiments.analysis import noise_floor, significance

APART = 0.5  # rows that the paper separates by as much are to be ranked


def tau(
    rows: Mapping[str, significance.Runs],
    paper: Mapping[str, float],
    variant: str,
    floor: noise_floor.Floor | None = None,
) -> tuple[float, float, float, int] | None:
    """Kendall's tau-b between ours and the paper's order of rows that the paper keeps apart.

    Returns:
      tau-b, both ends of its 95% interval, a bootstrap's over sentences, the same for all rows, and
      over each row's seeds or, with a noise floor, normal draws of a deviation that is itself drawn
      from what so few runs leave possible, and the number of pairs of rows; None if there is none.
    """
    names = [name for name in rows if rows[name]]
    apart = [
        (i, j)
        for i, j in itertools.combinations(range(len(names)), 2)
        if round(abs(paper[names[i]] - paper[names[j]]), 6) >= APART
    ]
    if not apart:
        return None
    weights = significance.samples(len(next(iter(rows[names[0]].values()))))
    random = np.random.default_rng(2)
    deviations = floor.deviations(names, random, len(weights)) if floor else {}
    means = np.transpose([
        resampled(rows[name], variant, weights, random, deviations.get(name)) for name in names
    ])  # fmt: skip
    first, second = np.transpose(apart)
    theirs = np.sign([[paper[names[i]] - paper[names[j]] for i, j in apart]])
    taus = tau_b(np.sign(means[:, first] - means[:, second]), theirs)
    low, high = np.quantile(taus[1:], [0.025, 0.975])
    return float(taus[0]), float(low), float(high), len(apart)


def resampled(
    runs: significance.Runs,
    variant: str,
    weights: Int[np.ndarray, "samples sentences"],
    random: np.random.Generator,
    deviations: Float[np.ndarray, "samples"] | None = None,
) -> Float[np.ndarray, "samples"]:
    """A row's mean score on each sample: over runs drawn anew, or moved by their known deviation.

    The first sample is what was measured.
    """
    found = np.array([significance.scores(run, variant, weights) for run in runs.values()])
    if deviations is not None:
        moved = random.normal(size=found.shape[1]) * deviations / len(found) ** 0.5
        moved[0] = 0
        return found.mean(0) + moved
    chosen = random.integers(len(found), size=found.shape)
    chosen[:, 0] = np.arange(len(found))
    return np.take_along_axis(found, chosen, 0).mean(0)


def tau_b(
    ours: Float[np.ndarray, "samples pairs"], theirs: Float[np.ndarray, "_ pairs"]
) -> Float[np.ndarray, "samples"]:
    """Concordant less discordant pairs, over the geometric mean of pairs untied in each order.

    Each is given by its signs on some samples; 0 where one does not tell any rows apart.
    scipy.stats.kendalltau would take all pairs, also those that the paper does not keep apart.
    """
    untied = np.abs(ours).sum(1) * np.abs(theirs).sum(1)
    return (ours * theirs).sum(1) / np.sqrt(np.maximum(untied, 1))
