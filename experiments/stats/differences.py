"""The difference of a row's mean score from base's, with its uncertainty over sentences and seeds.

The variance over sentences is estimated by the paired bootstrap (Koehn 2004), which draws sentences
with replacement, the same sentences for both rows. The variance over seeds is the variance between
runs. The two variances are added. Student's t with Satterthwaite's degrees of freedom (1946)
accounts for the small number of seeds. The interaction of seed and sentence, that is the sentences
on which a run happens to be better or worse than other runs of its row, is a part of both
variances. The intervals are therefore slightly too wide.

The half-width of the 95% interval is

  half-width = t(0.975, ν) √V,  V = B + P,  P = s₁²/n₁ + s₂²/n₂,  ν = V² / (Σ part² / freedom)

B is the bootstrap's variance. s₁ and s₂ are the standard deviations over the n₁ and n₂ runs of the
two rows. The two terms of P are the parts in ν. Without B this is Welch's test (1947). With a
pooled variance s² for both rows, P is the single part s² (1/n₁ + 1/n₂); see `seed_variance`.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from experiments.results import frames
from experiments.stats import seed_variance

DRAWS = 1000  # bootstrap samples
LEVEL = 0.05  # level of significance of all tests of a table together
POWER = 0.8  # probability with which a test detects a difference that is called detectable

Counts = Int[np.ndarray, "sentences width"]  # of one run; see `frames.Sweep.counts`
Scores = Float[np.ndarray, "runs samples"]  # of one row; see `bootstrap_scores`
Estimates = tuple[seed_variance.Estimate, seed_variance.Estimate]  # of two rows


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference of a row's score from base's.

    Attributes:
      mean: the difference of the means over seeds.
      half_width: the half-width of its 95% interval.
      runs: the number of runs of the row, and of base.
      freedom: the degrees of freedom of the interval.
      over_seeds: True if the interval includes the variance over seeds of both rows.
    """

    mean: float
    half_width: float
    runs: tuple[int, int]
    freedom: float = np.inf
    over_seeds: bool = False

    @property
    def excludes_0(self) -> bool:
        """True if 0 lies outside the interval."""
        return abs(self.mean) > self.half_width

    @property
    def standard_error(self) -> float:
        """The standard error of the mean."""
        return self.half_width / _quantile(0.975, self.freedom)

    def p_value(self, distance: float) -> float:
        """Returns the two-sided p-value of the hypothesis that the difference is another value.

        Args:
          distance: the distance of that value from `mean`. For a distance of at most 0, the p-value
            is 1.
        """
        if not self.standard_error:
            return float(distance <= 0)
        scaled = -distance / self.standard_error
        return min(1.0, 2 * float(scipy.special.stdtr(self.freedom, scaled)))

    def detectable(self, level: float = LEVEL) -> float:
        """Returns the smallest true difference that a test at `level` detects with `POWER`."""
        return self.standard_error * _detectable_errors(self.freedom, level)


def _quantile(share: float, freedom: float) -> float:
    # scipy.stats.t.ppf is slow for single numbers.
    return float(scipy.special.stdtrit(freedom, share))


def _detectable_errors(freedom: float, level: float) -> float:
    """Returns the smallest true difference that a test detects with `POWER`, in standard errors.

    A two-sided test detects a difference if t > t(1 − level/2). The result is the noncentrality
    with which a noncentral t exceeds this bound with the probability `POWER`.
    """
    required = _quantile(1 - level / 2, freedom)
    if np.isinf(freedom):
        return required + _quantile(POWER, freedom)
    return float(scipy.special.nctdtrinc(freedom, 1 - POWER, required))


@functools.lru_cache(maxsize=4)
def sample_weights(sentences: int) -> Int[np.ndarray, "samples sentences"]:
    """Returns the number of times that each bootstrap sample contains each sentence.

    The first sample is the set itself, with each sentence once. `DRAWS` random samples follow.
    """
    shares = np.full(sentences, 1 / sentences)
    drawn = np.random.default_rng(0).multinomial(sentences, shares, DRAWS)
    return np.concatenate([np.ones((1, sentences), np.int64), drawn])


def bootstrap_scores(counts: Mapping[int, Counts], measure: str) -> Scores:
    """Returns the score of each run on each bootstrap sample of the sentences.

    Args:
      counts: per-sentence counts of each run, by seed.
      measure: "bleu" or "f1".

    Returns:
      [runs, 1 + DRAWS]; the first column has the scores of the whole set.
    """
    score = frames.MEASURES[measure].from_counts
    scores = []
    for run in counts.values():
        # Floating point is exact for these counts, and its product much faster.
        sums = sample_weights(len(run)).astype(np.float64) @ run
        scores.append(score(sums.astype(np.int64)))
    return np.array(scores)


def difference(ours: Scores, theirs: Scores, estimates: Estimates | None = None) -> Difference:
    """Returns the difference of a row's score from base's, with its interval.

    Args:
      ours: scores of the row's runs.
      theirs: scores of base's runs on the same samples of the same sentences.
      estimates: the variances over seeds of the row and of base; None to estimate them from these
        runs.
    """
    gaps = ours.mean(0) - theirs.mean(0)
    sides = [side[:, 0].tolist() for side in (ours, theirs)]
    over_sentences = float(np.var(gaps[1:], ddof=1))
    return from_variances(float(gaps[0]), over_sentences, sides, estimates)


def from_variances(
    mean: float,
    over_sentences: float,
    sides: Sequence[Sequence[float]],
    estimates: Estimates | None = None,
) -> Difference:
    """Returns a difference with the 95% interval computed from given variances.

    Args:
      mean: the difference.
      over_sentences: the variance of the difference over sentences.
      sides: the scores of the row's runs, and the scores of base's runs.
      estimates: the variances over seeds of the row and of base; None to estimate them from these
        scores.
    """
    ours, theirs = map(len, sides)
    own, base = map(seed_variance.estimate, sides)
    if estimates is None and own and base:
        estimates = own, base
    parts = seed_variance.of_difference(estimates, (ours, theirs)) if estimates else []
    variance, freedom = satterthwaite(over_sentences, parts)
    half_width = _quantile(0.975, freedom) * variance**0.5
    return Difference(mean, half_width, (ours, theirs), freedom, estimates is not None)


def satterthwaite(known: float, estimated: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns the sum of independent variances, and its degrees of freedom (Satterthwaite 1946).

    Args:
      known: a variance without uncertainty.
      estimated: further variances, each with its degrees of freedom.
    """
    variance = known + sum(part for part, _ in estimated)
    if not any(part for part, _ in estimated):
        return variance, np.inf
    return variance, variance**2 / sum(part**2 / freedom for part, freedom in estimated)
