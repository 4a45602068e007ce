"""The variance of scores over seeds, pooled over the rows of a sweep.

The variance of a row with one run is unknown. With `--noise_floor`, base is run with several seeds.
The variance of base's scores is pooled with the variances of all other rows that have several runs.
The pooled variance is then used for every row. A row with a run that failed to train is excluded:
its variance is not pooled and is used for that row only (Mosbach et al. 2021, Agarwal et al.
2021).

The pooled variance is s² = Σ νᵢ sᵢ² / Σ νᵢ with νᵢ = runs − 1 degrees of freedom, as in an analysis
of variance. A run failed to train if its lowest development perplexity is above `FAILED` times
base's final one. The rule was fixed before any run and does not depend on BLEU.
"""

import dataclasses
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

FAILED = 1.5  # times base's final perplexity


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A variance with its degrees of freedom."""

    variance: float
    freedom: float


@dataclasses.dataclass(frozen=True)
class SeedVariance:
    """The variance over seeds of the scores of a sweep.

    Attributes:
      pooled: the estimate for all rows that are not excluded.
      rows: the rows whose runs it is computed from, base first.
      base_deviation: the standard deviation of base's runs alone.
      excluded: for each row with a run that failed to train, the estimate from its own runs.
    """

    pooled: Estimate
    rows: Sequence[str]
    base_deviation: float
    excluded: Mapping[str, Estimate]

    def of(self, row: str) -> Estimate:
        """Returns the estimate to use for a row: the pooled estimate, or its own if excluded.

        All rows with the pooled estimate get the same object; see `of_difference`.
        """
        return self.excluded.get(row, self.pooled)

    def draw_deviations(
        self, rows: Iterable[str], random: np.random.Generator, samples: int
    ) -> dict[str, Float[np.ndarray, "samples"]]:
        """Draws random standard deviations over seeds, which reflect the estimates' uncertainty.

        The variance is drawn from the scaled inverse chi-squared distribution of an estimate. Rows
        with the pooled estimate get the same draws.

        Args:
          rows: names of rows.
          random: the random generator, whose state advances.
          samples: the number of draws.

        Returns:
          The drawn deviations of each row.
        """
        estimates = {row: self.of(row) for row in rows}
        drawn = {
            each: (each.variance * each.freedom / random.chisquare(each.freedom, samples)) ** 0.5
            for each in dict.fromkeys(estimates.values())
        }
        return {row: drawn[each] for row, each in estimates.items()}


def estimate(scores: Sequence[float]) -> Estimate | None:
    """Returns the sample variance of scores; None for fewer than two."""
    if len(scores) < 2:
        return None
    return Estimate(statistics.variance(scores), len(scores) - 1)


def pool(
    scores: Mapping[str, Sequence[float]], base: str, failed: Collection[str] = ()
) -> SeedVariance | None:
    """Pools the variance of scores over seeds.

    Args:
      scores: the scores of each row's runs.
      base: the base row, which is never excluded.
      failed: rows with a run that failed to train, which are excluded.

    Returns:
      The pooled variance; None if base has fewer than two runs.
    """
    estimates: dict[str, Estimate] = {}
    for row, row_scores in scores.items():
        row_estimate = estimate(row_scores)
        if row_estimate:
            estimates[row] = row_estimate
    if base not in estimates:
        return None
    of_base = estimates.pop(base)
    excluded = {row: each for row, each in estimates.items() if row in failed}
    pooled = {base: of_base, **{r: each for r, each in estimates.items() if r not in excluded}}
    freedom = sum(each.freedom for each in pooled.values())
    variance = sum(each.freedom * each.variance for each in pooled.values()) / freedom
    return SeedVariance(Estimate(variance, freedom), list(pooled), of_base.variance**0.5, excluded)


def has_failed(lowest_ppl: float, base_ppl: float) -> bool:
    """Returns True if a run failed to train.

    Args:
      lowest_ppl: the lowest development perplexity of the run.
      base_ppl: the final development perplexity of base.
    """
    return lowest_ppl > FAILED * base_ppl


def of_difference(
    estimates: tuple[Estimate, Estimate], runs: tuple[int, int]
) -> list[tuple[float, float]]:
    """Returns the variance over seeds of a difference of two means, in independent parts.

    An estimate shared by both sides gives one part, s² (1/n₁ + 1/n₂), as in Student's t for two
    samples.

    Args:
      estimates: the variance of the score of one run, for each side.
      runs: the number of runs on each side.

    Returns:
      Variances, each with its degrees of freedom.
    """
    ours, theirs = estimates
    if ours is theirs:
        return [(ours.variance * sum(1 / n for n in runs), ours.freedom)]
    return [(side.variance / n, side.freedom) for side, n in zip(estimates, runs, strict=True)]
