"""Rank correlation of rows: Kendall's tau-b with the paper, and the agreement of two sweeps.

Intervals are computed by a bootstrap. Each draw resamples the sentences, in the same way for all
rows, and the runs of each row separately. If there is a pooled variance over seeds, runs are not
resampled. Instead, a normal random number that stands for the seeds is added to each row's mean.
Its standard deviation is drawn too, since the pooled variance is itself an estimate.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from experiments.stats import differences, seed_variance

SEPARATED = 0.5  # BLEU; pairs of rows that differ by less in the paper are not counted


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number, and the lower and upper ends of its 95% interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Tau:
    """Kendall's tau-b with the paper, and the number of pairs of rows that it is computed over."""

    estimate: Estimate
    num_pairs: int


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The agreement of two sweeps in the order of the rows that both have.

    Attributes:
      signs: the share of rows whose difference from base has the same sign in both sweeps.
      pairs: the share of pairs of rows, base included, that have the same order in both sweeps.
        Magnusson et al. 2025 (DataDecide) call it decision accuracy.
      tau: Kendall's tau-b between the orders of the two sweeps.
      num_pairs: the number of pairs of rows.
    """

    signs: Estimate
    pairs: Estimate
    tau: Estimate
    num_pairs: int


def tau(
    rows: Mapping[str, differences.Scores],
    paper: Mapping[str, float],
    variance: seed_variance.SeedVariance | None = None,
) -> Tau | None:
    """Returns Kendall's tau-b between our order of rows and the paper's.

    Args:
      rows: bootstrap scores of each row's runs.
      paper: the paper's score of each row.
      variance: the pooled variance over seeds, if there is one.

    Returns:
      The correlation over pairs that the paper separates by `SEPARATED`; None if there are none.
    """
    scores = np.array([paper[name] for name in rows])
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(rows)), 2)
        if round(abs(scores[i] - scores[j]), 6) >= SEPARATED
    ]
    if not pairs:
        return None
    first, second = np.transpose(pairs)
    means = _resample(rows, variance, seed=2)
    ours, theirs = (np.sign(each[..., first] - each[..., second]) for each in (means, scores))
    return Tau(_estimate(tau_b(ours, theirs[None])), len(pairs))


def agreement(
    sides: Sequence[Mapping[str, differences.Scores]],
    references: Mapping[str, str],
    variances: Sequence[seed_variance.SeedVariance | None] = (None, None),
) -> Agreement:
    """Compares the order of rows by score between two sweeps.

    The intervals are biased towards no agreement, since resampling adds noise to noisy scores.

    Args:
      sides: for each sweep, the bootstrap scores of the rows. Both sweeps have the same rows.
      references: for each row except base, the reference row, to which the row's score is compared.
      variances: the pooled variance over seeds of each sweep, if there is one.
    """
    names = list(sides[0])
    place = {name: number for number, name in enumerate(names)}
    from_base = [(place[row], place[other]) for row, other in references.items()]
    pairs = list(itertools.combinations(range(len(names)), 2))
    both = [
        _resample({name: side[name] for name in names}, variance, seed=3 + number)
        for number, (side, variance) in enumerate(zip(sides, variances, strict=True))
    ]
    signs = [_signs(means, from_base) for means in both]
    ordered = [_signs(means, pairs) for means in both]
    return Agreement(
        _estimate((signs[0] == signs[1]).mean(1)),
        _estimate((ordered[0] == ordered[1]).mean(1)),
        _estimate(tau_b(*ordered)),
        len(pairs),
    )


def _resample(
    rows: Mapping[str, differences.Scores],
    variance: seed_variance.SeedVariance | None,
    seed: int,
) -> Float[np.ndarray, "samples rows"]:
    """Returns each row's mean score on each bootstrap sample of sentences and seeds.

    The first sample has the measured scores.
    """
    random = np.random.default_rng(seed)
    samples = next(iter(rows.values())).shape[1]
    deviations = variance.draw_deviations(rows, random, samples) if variance else {}
    means = []
    for name, scores in rows.items():
        if variance:
            noise = random.normal(size=samples) * deviations[name] / len(scores) ** 0.5
            noise[0] = 0
            means.append(scores.mean(0) + noise)
        else:
            chosen = random.integers(len(scores), size=scores.shape)
            chosen[:, 0] = np.arange(len(scores))
            # The mean of n redrawn runs varies by (n − 1) / n of the variance of n new ones.
            wider = (len(scores) / max(len(scores) - 1, 1)) ** 0.5
            spread = wider * (scores - scores.mean(0))
            means.append(scores.mean(0) + np.take_along_axis(spread, chosen, 0).mean(0))
    return np.transpose(means)


def tau_b(
    ours: Float[np.ndarray, "samples pairs"], theirs: Float[np.ndarray, "_ pairs"]
) -> Float[np.ndarray, "samples"]:
    """Returns Kendall's tau-b over given pairs of rows.

    tau-b is the number of concordant pairs minus the number of discordant pairs, divided by the
    geometric mean of the numbers of untied pairs in the two orders. `scipy.stats.kendalltau` would
    use all pairs of rows, including pairs that the paper does not separate.

    Args:
      ours: the sign of the difference of each pair of rows in one order.
      theirs: the sign of the difference of each pair of rows in the other order.

    Returns:
      tau-b of each sample; 0 where either order separates no pair.
    """
    untied = np.abs(ours).sum(1) * np.abs(theirs).sum(1)
    return (ours * theirs).sum(1) / np.sqrt(np.maximum(untied, 1))


def _signs(
    means: Float[np.ndarray, "samples rows"], pairs: Sequence[tuple[int, int]]
) -> Float[np.ndarray, "samples pairs"]:
    first, second = np.transpose(pairs)
    return np.sign(np.round(means[:, first] - means[:, second], 9))


def _estimate(samples: Float[np.ndarray, "samples"]) -> Estimate:
    low, high = np.quantile(samples[1:], [0.025, 0.975])
    return Estimate(float(samples[0]), float(low), float(high))
