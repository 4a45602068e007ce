"""Differences between the mean scores of rows, with their uncertainty over seeds and sentences.

A difference d = Σₖ cₖ yₖ is a weighted sum of the scores yₖ of runs, with the weights of `seeds`.
Its variance is

  V = max(0, B − r Σ cₖ²) + P,   P = σ² Σ cₖ² + τ² Σₛ (Σₖ cₖ)²

where the inner sum of the last term is over the runs with seed s.

- B = Σⱼ (Σₖ cₖ uₖⱼ)² is the variance over sentences j; uₖⱼ is the deviation of run k due to
  sentence j (see `scores`).
- P is the variance over seeds; σ² and τ² are those of `seeds`. If two rows have the same n
  seeds, P = 2 σ²/n.
- The interaction of run and sentence contributes to both B and σ². So that it counts once, its
  variance r per run is estimated from the deviations u, as σ² is from scores, and subtracted
  from B.

The 95% interval is d ± t(0.975, ν) √V with Satterthwaite's degrees of freedom (1946)

  ν = 2 V² / g'Ag,   g = (Σ cₖ², Σₛ (Σₖ cₖ)²)

where A is the covariance matrix of the estimates of σ² and τ². B is taken as known. A row that is
not pooled has its own variance s²/n with n − 1 degrees of freedom, which adds 2 (s²/n)² / (n − 1)
to g'Ag. With one run in all rows, σ² is unknown; V is then B alone, and `over_seeds` is False.
"""

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np
import scipy.special
from jaxtyping import Float

from experiments.stats import multiple, scores, seeds

POWER = 0.8  # probability with which a test detects a difference that is called detectable


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference of a row's mean score from another row's.

    Attributes:
      mean: the difference.
      standard_error: its standard error; NaN if nothing is known of its uncertainty.
      runs: the number of runs of the row, and of the other row.
      freedom: the degrees of freedom of the standard error.
      over_seeds: True if the standard error includes the variance over seeds.
    """

    mean: float
    standard_error: float
    runs: tuple[int, int]
    freedom: float = np.inf
    over_seeds: bool = False

    @property
    def half_width(self) -> float:
        """The half-width of the 95% interval."""
        return _quantile(1 - multiple.LEVEL / 2, self.freedom) * self.standard_error

    @property
    def excludes_0(self) -> bool:
        """True if 0 lies outside the interval."""
        return abs(self.mean) > self.half_width

    def p_value(self, distance: float) -> float:
        """Returns the two-sided p-value of the hypothesis of a difference of `mean` ± `distance`.

        Args:
          distance: the distance. If it is 0 or negative, the p-value is 1.
        """
        if not self.standard_error > 0:
            return 1.0
        return min(
            1.0, 2 * float(scipy.special.stdtr(self.freedom, -distance / self.standard_error))
        )

    def detectable(self, level: float = multiple.LEVEL) -> float:
        """Returns the smallest true difference that a test at `level` detects with `POWER`.

        A two-sided test detects a difference if t > t(1 − level/2). A noncentral t exceeds this
        bound with probability `POWER` if its noncentrality is the returned difference, in standard
        errors.
        """
        required = _quantile(1 - level / 2, self.freedom)
        if np.isinf(self.freedom):
            return self.standard_error * (required + _quantile(POWER, self.freedom))
        noncentrality = scipy.special.nctdtrinc(self.freedom, 1 - POWER, required)
        return self.standard_error * float(noncentrality)


class Means:
    """The mean scores of rows.

    Attributes:
      runs: the scores of each row's runs, by row and seed.
      components: the pooled variances over seeds; None if no row has two runs.
      pooled: the rows that share the estimated variances.
      own: the variance over seeds of each row that is not pooled; NaN for a single run.
      of_sentences: r, the variance of the interaction of a run and sentences.
      weights: the weights of the runs in each row's mean.
    """

    def __init__(self, runs: scores.Runs, base: str, failed: Collection[str] = ()):
        """Estimates the means.

        Args:
          runs: the runs of each row that has any.
          base: the base row.
          failed: rows with a run that failed to train, which are not pooled.
        """
        self.runs = {row: of_row for row, of_row in runs.items() if of_row}
        values = {row: [run.score for run in each.values()] for row, each in self.runs.items()}
        kept = {row: each for row, each in values.items() if row not in failed}
        outlying = seeds.outlying(kept, base)
        self.pooled = [row for row in kept if row not in outlying]
        self.own = {
            row: float(np.var(each, ddof=1)) if len(each) > 1 else np.nan
            for row, each in values.items()
            if row not in self.pooled
        }
        keys = [(row, seed) for row, each in self.runs.items() for seed in each]
        listed = [run for each in self.runs.values() for run in each.values()]
        is_pooled = np.array([row not in self.own for row, _ in keys], bool)
        self._rows = np.array([row for row, _ in keys])
        self._scores = np.array([run.score for run in listed])
        lengths = {len(run.deviations) for run in listed}
        self.over_sentences = lengths != {0} and len(lengths) == 1
        self._deviations = (
            np.array([run.deviations for run in listed])
            if self.over_sentences
            else np.zeros((len(keys), 0))
        )
        chosen = [key for key, each in zip(keys, is_pooled, strict=True) if each]
        self._is_pooled = is_pooled
        self._design = seeds.design(tuple(r for r, _ in chosen), tuple(s for _, s in chosen))
        self.components = self._design.fit(self._scores[is_pooled]) if chosen else None
        ratio = self.components.ratio if self.components else 0.0
        weights = {row: (self._rows == row) / len(each) for row, each in self.runs.items()}
        if chosen:
            for row, of_runs in zip(self._design.rows, self._design.weights(ratio), strict=True):
                weights[row] = np.zeros(len(keys))
                weights[row][is_pooled] = of_runs
        self.weights = weights
        self.of_sentences = self._of_sentences()

    def _of_sentences(self) -> float:
        """Returns r, estimated from the components of the deviations that estimate σ²."""
        if self.components is None:
            return 0.0
        basis = self._design.basis
        if self.components.seed:
            basis = basis[:, self._design.is_residual]
        components = basis.T @ self._deviations[self._is_pooled]
        return float((components**2).sum() / basis.shape[1])

    def mean(self, row: str) -> float:
        """Returns a row's mean, adjusted for the seeds of its runs."""
        return float(self.weights[row] @ self._scores)

    def difference(self, row: str, other: str) -> Difference:
        """Returns the difference between the means of two rows."""
        runs = (len(self.runs[row]), len(self.runs[other]))
        return self._estimate(self.weights[row] - self.weights[other], (row, other), runs)

    def interval(self, row: str) -> Difference:
        """Returns a row's mean as a difference from 0, with its uncertainty."""
        return self._estimate(self.weights[row], (row,), (len(self.runs[row]), 0))

    def _estimate(
        self, weights: Float[np.ndarray, "runs"], rows: Sequence[str], runs: tuple[int, int]
    ) -> Difference:
        own = [row for row in rows if row in self.own]
        over_sentences = float(((weights @ self._deviations) ** 2).sum())
        over_sentences = max(0.0, over_sentences - self.of_sentences * float(weights @ weights))
        over_seeds, uncertainty = 0.0, 0.0
        if self.components is not None:
            pooled = weights[self._is_pooled]
            gradient = np.array([pooled @ pooled, ((pooled @ self._design.z) ** 2).sum()])
            over_seeds += float(gradient @ [self.components.run, self.components.seed])
            uncertainty += float(gradient @ self.components.covariance @ gradient)
        for row in own:
            part = self.own[row] / len(self.runs[row])
            over_seeds += part
            uncertainty += 2 * part**2 / max(len(self.runs[row]) - 1, 1)
        is_known = not np.isnan(over_seeds) and (
            self.components is not None or len(own) == len(rows)
        )
        if not is_known:
            over_seeds = uncertainty = 0.0
        variance = over_sentences + over_seeds
        freedom = 2 * variance**2 / uncertainty if uncertainty > 0 else np.inf
        mean = float(weights @ self._scores)
        # A variance of 0, as of models that learned nothing, does not mean precision.
        error = variance**0.5 if variance > 0 else np.nan
        return Difference(mean, error, runs, freedom, is_known and over_seeds > 0)

    def draw(
        self, rows: Sequence[str], samples: int, seed: int
    ) -> Float[np.ndarray, "samples rows"]:
        """Draws means of rows as other seeds and sentences would give them.

        The deviations over sentences are normal. Those over seeds have t distributions, since their
        variances are estimates. The first sample has the means themselves.
        """
        random = np.random.default_rng(seed)
        weights = np.array([self.weights[row] for row in rows])
        sums = weights @ self._deviations
        covariance = sums @ sums.T - self.of_sentences * weights @ weights.T
        drawn = random.multivariate_normal(
            np.zeros(len(rows)), covariance, samples, check_valid="ignore", method="eigh"
        )
        noise = random.normal(size=(samples, len(self._scores)))
        if self.components is not None:
            freedom = self.components.freedom
            scale = (freedom / random.chisquare(freedom, (samples, 1))) ** 0.5
            of_seeds = random.normal(size=(samples, self._design.z.shape[1]))
            pooled = noise[:, self._is_pooled] * self.components.run**0.5
            pooled += of_seeds @ self._design.z.T * self.components.seed**0.5
            noise[:, self._is_pooled] = scale * pooled
        else:
            noise[:, self._is_pooled] = 0
        for row, variance in self.own.items():
            freedom = max(len(self.runs[row]) - 1, 1)
            scale = (freedom / random.chisquare(freedom, (samples, 1))) ** 0.5
            noise[:, self._rows == row] *= scale * np.nan_to_num(variance) ** 0.5
        drawn += noise @ weights.T
        drawn[0] = 0
        return weights @ self._scores + drawn


def _quantile(share: float, freedom: float) -> float:
    # scipy.stats.t.ppf is slow for single numbers.
    return float(scipy.special.stdtrit(freedom, share))
