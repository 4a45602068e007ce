"""How far a score moves from seed to seed, for rows that have too few seeds to say it themselves.

Base is run with several seeds (`--noise_floor`). The deviation of its scores, pooled with that of
the other rows that have several, stands for the seeds of every row: a row of one seed is one draw
of many, and they are taken to vary as base does. Where a row's own runs say otherwise it is set
apart: it neither gives to the pool nor takes from it.

Pooled variance (as in any analysis of variance): s² = Σ νᵢ sᵢ² / Σ νᵢ with νᵢ = runs − 1, and
Σ νᵢ degrees of freedom. A row is set apart where sᵢ² / s_base² is too large for an F distribution
with νᵢ and ν_base degrees of freedom, one-sided, at 5% for all such rows together (Holm 1979).
"""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import scipy.special
from jaxtyping import Float

from experiments.analysis import intervals

LEVEL = 0.05


@dataclasses.dataclass(frozen=True)
class Spread:
    """An estimate of the variance of one run's score over seeds, with its degrees of freedom."""

    variance: float
    freedom: float

    def with_freedom(self, freedom: float) -> "Spread":
        """The same variance, told by as many runs at least."""
        return Spread(self.variance, max(self.freedom, freedom))


@dataclasses.dataclass(frozen=True)
class Floor:
    """What seeds do to the scores of a sweep."""

    pooled: Spread  # the estimate that stands for all rows but those set apart
    rows: Sequence[str]  # those whose runs it is of, base first
    own: float  # the deviation of base alone
    apart: Mapping[str, Spread]  # of rows that vary clearly more, their own estimates
    chances: Mapping[str, float]  # p that a row varies no more than base, corrected by Holm

    def spread(self, row: str) -> Spread:
        """The estimate for a row; that of two rows is one object where it is the pooled one."""
        return self.apart.get(row, self.pooled)

    def deviations(
        self, rows: Iterable[str], random: np.random.Generator, samples: int
    ) -> dict[str, Float[np.ndarray, "samples"]]:
        """Deviations over seeds that so few runs leave possible, by row, one a sample.

        Each estimate is drawn once (scaled inverse chi-squared), for all rows that it stands for.
        """
        spreads = {row: self.spread(row) for row in rows}
        drawn = {
            each: (each.variance * each.freedom / random.chisquare(each.freedom, samples)) ** 0.5
            for each in dict.fromkeys(spreads.values())
        }
        return {row: drawn[each] for row, each in spreads.items()}


def own_spread(scores: Sequence[float]) -> Spread | None:
    """What runs say of themselves; None of fewer than two."""
    return Spread(statistics.variance(scores), len(scores) - 1) if len(scores) > 1 else None


def measure(scores: Mapping[str, Sequence[float]], base: str) -> Floor | None:
    """The floor of rows whose runs have such scores; None if base has fewer than two."""
    several = {row: spread for row, found in scores.items() if (spread := own_spread(found))}
    if base not in several:
        return None
    own = several.pop(base)
    chances = intervals.holm({row: _larger(spread, own) for row, spread in several.items()})
    apart = {row: several[row] for row, chance in chances.items() if chance < LEVEL}
    alike = {base: own, **{row: each for row, each in several.items() if row not in apart}}
    freedom = sum(each.freedom for each in alike.values())
    variance = sum(each.freedom * each.variance for each in alike.values()) / freedom
    return Floor(Spread(variance, freedom), list(alike), own.variance**0.5, apart, chances)


def _larger(spread: Spread, base: Spread) -> float:
    """The chance of so large a ratio of variances if both rows vary alike."""
    if not base.variance:
        return float(not spread.variance)
    ratio = spread.variance / base.variance
    return float(scipy.special.fdtrc(spread.freedom, base.freedom, ratio))


def parts(spreads: tuple[Spread, Spread], runs: tuple[int, int]) -> list[tuple[float, float]]:
    """Variances over seeds of a difference of two means, each estimate's part with its freedom.

    One estimate that serves both sides is one part: s² (1/n₁ + 1/n₂), as in Student's t of two
    samples.
    """
    ours, theirs = spreads
    if ours is theirs:
        return [(ours.variance * sum(1 / n for n in runs), ours.freedom)]
    return [(side.variance / n, side.freedom) for side, n in zip(spreads, runs, strict=True)]
