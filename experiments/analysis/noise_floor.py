"""How far a score moves from seed to seed, for rows that have too few seeds to say it themselves.

Base is run with several seeds (`--noise_floor`). The deviation of its scores, pooled with that of
the other rows that have several, stands for the seeds of every row: a row of one seed is one draw
of many, and they are taken to vary as base does. A row with a run that failed to train is excluded
from the pool and keeps its own variance (Mosbach et al. 2021, Agarwal et al. 2021).

Pooled variance (as in any analysis of variance): s² = Σ νᵢ sᵢ² / Σ νᵢ with νᵢ = runs − 1, and
Σ νᵢ degrees of freedom. A run failed to train if its lowest development perplexity is above
`FAILED` times base's final one: a rule that was fixed beforehand and does not look at BLEU.
"""

import dataclasses
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

FAILED = 1.5  # times base's final perplexity


@dataclasses.dataclass(frozen=True)
class Spread:
    """An estimate of the variance of one run's score over seeds, with its degrees of freedom."""

    variance: float
    freedom: float


@dataclasses.dataclass(frozen=True)
class Floor:
    """What seeds do to the scores of a sweep."""

    pooled: Spread  # the estimate that stands for all rows but those excluded
    rows: Sequence[str]  # those whose runs it is of, base first
    own: float  # the deviation of base alone
    excluded: Mapping[str, Spread]  # of rows with a run that failed to train, their own estimates

    def spread(self, row: str) -> Spread:
        """The estimate for a row; that of two rows is one object where it is the pooled one."""
        return self.excluded.get(row, self.pooled)

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


def measure(
    scores: Mapping[str, Sequence[float]], base: str, failed: Collection[str] = ()
) -> Floor | None:
    """Pools the variance of scores over seeds; returns None if base has fewer than two runs.

    Args:
      scores: of each row's runs.
      base: the row that counts in any case.
      failed: rows with a run that failed to train, which are excluded.
    """
    several = {row: spread for row, found in scores.items() if (spread := own_spread(found))}
    if base not in several:
        return None
    own = several.pop(base)
    excluded = {row: spread for row, spread in several.items() if row in failed}
    alike = {base: own, **{row: each for row, each in several.items() if row not in excluded}}
    freedom = sum(each.freedom for each in alike.values())
    variance = sum(each.freedom * each.variance for each in alike.values()) / freedom
    return Floor(Spread(variance, freedom), list(alike), own.variance**0.5, excluded)


def has_failed(lowest_ppl: float, base_ppl: float) -> bool:
    """Returns whether a run failed to train, by its lowest perplexity and base's final one."""
    return lowest_ppl > FAILED * base_ppl


def parts(spreads: tuple[Spread, Spread], runs: tuple[int, int]) -> list[tuple[float, float]]:
    """Variances over seeds of a difference of two means, each estimate's part with its freedom.

    One estimate that serves both sides is one part: s² (1/n₁ + 1/n₂), as in Student's t of two
    samples.
    """
    ours, theirs = spreads
    if ours is theirs:
        return [(ours.variance * sum(1 / n for n in runs), ours.freedom)]
    return [(side.variance / n, side.freedom) for side, n in zip(spreads, runs, strict=True)]
