"""Rank correlation of rows: Kendall's tau-b with the paper, and the agreement of two sweeps.

tau-b is (C − D) / √(T₁ T₂), with C concordant and D discordant pairs of rows, and T₁ and T₂ pairs
that are not tied in each order. With the paper, only pairs that it separates by `SEPARATED` count.

Intervals are quantiles of tau-b over `DRAWS` draws of the rows' means; see
`differences.Means.draw`. They say where tau-b would lie with other seeds and sentences. They are
not a test against chance. That test is a permutation test: it assigns our means to rows at random,
and counts how often tau-b is at least as large in absolute value.
"""

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from experiments.stats import differences

SEPARATED = 0.5  # BLEU; pairs of rows that differ by less in the paper are not counted
DRAWS = 10_000


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number, and the lower and upper ends of its 95% interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Tau:
    """Kendall's tau-b with the paper.

    Attributes:
      estimate: the correlation.
      num_pairs: the number of pairs of rows that it is computed over.
      p_value: the p-value of the permutation test.
    """

    estimate: Estimate
    num_pairs: int
    p_value: float


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
    means: differences.Means, paper: Mapping[str, float], without: Collection[str] = ()
) -> Tau | None:
    """Returns Kendall's tau-b between our order of rows and the paper's.

    Args:
      means: the rows' means.
      paper: the paper's score of each row.
      without: rows that are left out.

    Returns:
      The correlation over pairs that the paper separates by `SEPARATED`; None if there are none.
    """
    rows = [row for row in means.runs if row in paper and row not in without]
    scores = np.array([paper[row] for row in rows])
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(rows)), 2)
        if round(abs(scores[i] - scores[j]), 6) >= SEPARATED
    ]
    if not pairs:
        return None
    theirs = _signs(scores[None], pairs)
    drawn = means.draw(rows, DRAWS, seed=2)
    estimate = _estimate(tau_b(_signs(drawn, pairs), theirs))
    random = np.random.default_rng(4)
    shuffled = random.permuted(np.repeat(drawn[:1], DRAWS, axis=0), axis=1)
    by_chance = np.abs(tau_b(_signs(shuffled, pairs), theirs))
    extreme = int((by_chance >= abs(estimate.value) - 1e-9).sum())
    return Tau(estimate, len(pairs), (1 + extreme) / (1 + DRAWS))


def agreement(sides: Sequence[differences.Means], references: Mapping[str, str]) -> Agreement:
    """Compares the order of rows by score between two sweeps.

    The intervals are biased towards no agreement, since draws add noise to noisy scores.

    Args:
      sides: for each sweep, the means of the rows.
      references: for each row except base, the reference row, to which the row's score is compared.
    """
    names = list(dict.fromkeys([*references.values(), *references]))
    place = {name: number for number, name in enumerate(names)}
    from_base = [(place[row], place[other]) for row, other in references.items()]
    pairs = list(itertools.combinations(range(len(names)), 2))
    both = [side.draw(names, DRAWS, seed=3 + number) for number, side in enumerate(sides)]
    signs = [_signs(means, from_base) for means in both]
    ordered = [_signs(means, pairs) for means in both]
    return Agreement(
        _estimate((signs[0] == signs[1]).mean(1)),
        _estimate((ordered[0] == ordered[1]).mean(1)),
        _estimate(tau_b(*ordered)),
        len(pairs),
    )


def tau_b(
    ours: Float[np.ndarray, "samples pairs"], theirs: Float[np.ndarray, "_ pairs"]
) -> Float[np.ndarray, "samples"]:
    """Returns Kendall's tau-b over given pairs of rows.

    `scipy.stats.kendalltau` would use all pairs of rows, including pairs that the paper does not
    separate.

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
