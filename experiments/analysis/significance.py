"""Whether a row differs from base: over the sentences it was scored on, and over its seeds.

Two things make a difference in BLEU uncertain. Another development set would have other sentences:
that part is the paired bootstrap's (Koehn 2004), which draws sentences with replacement, the same
for both rows. Another seed would have made another model: that part is the variance between runs.
Their variances add, and Student's t with Satterthwaite's degrees of freedom (1946) accounts for how
few seeds there are. What other sentences do to a single run is in both parts, so that intervals are
rather too wide:

  half = t(0.975, ν) √V,  V = B + P,  P = s₁²/n₁ + s₂²/n₂,  ν = V² / (Σ part² / its freedom)

B is the bootstrap's variance, s the deviations over n runs, each a part of P; this is Welch's test
(1947) but for B. With a noise floor s² is the pooled one for both rows, whatever their runs, and
P = s² (1/n₁ + 1/n₂) is a single part; rows excluded from the pool keep their own (`noise_floor`).
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.special
from jaxtyping import Int

from experiments.analysis import intervals, noise_floor
from transformer_jax import errors
from transformer_jax.drawing import tables
from transformer_jax.evaluation import measures

DRAWS = 1000  # of the bootstrap
SMALL = 0.3  # the paper's differences below this are ties, in BLEU
POWER = 0.8  # the chance of detecting a detectable difference
WITHIN = 0.5  # an interval inside ± this says that there is no difference worth the name
LEVEL = 0.05  # of all rows of a table together
UNDECIDED = "undecided"
VERDICTS = ("reproduced", "tie as in the paper", "contradicts", UNDECIDED)
RULES = (
    f"where the paper's difference is {SMALL} or more: reproduced, if ours is surely not 0 and has "
    "the paper's sign, contradicts, if it has the other; where it is less: tie as in the paper, if "
    f"ours surely lies within ± {WITHIN}, contradicts, if not and it is surely not 0; otherwise, "
    "and always with one seed and no noise floor, undecided. Surely: at 95% for all rows together "
    "(Holm 1979), so that more is asked than that one row's interval excludes 0."
)

Counts = Int[np.ndarray, "sentences width"]  # of one run; see `bleu.counts`, `parseval.counts`
Runs = Mapping[int, Counts]  # of a row, by seed
Spreads = tuple[noise_floor.Spread, noise_floor.Spread]  # of two rows


@dataclasses.dataclass(frozen=True)
class Difference:
    """A row against base, in BLEU."""

    mean: float  # difference of the means over seeds
    half: float  # of its 95% interval over sentences, and over seeds where their spread is known
    runs: tuple[int, int]  # of the row, and of base
    freedom: float = np.inf  # degrees of freedom, on which the interval rests
    knows_spread: bool = False  # whether the variance over seeds of both is known

    @property
    def over_seeds(self) -> bool:
        """True if the interval accounts for other seeds."""
        return min(self.runs) > 1 or self.knows_spread

    @property
    def excludes_0(self) -> bool:
        """Whether 0 lies outside the interval."""
        return abs(self.mean) > self.half

    @property
    def written(self) -> str:
        """As tables show it, marked if the interval excludes 0."""
        return tables.difference(self.mean, self.half) + " *" * self.excludes_0

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.half / _quantile(0.975, self.freedom)

    def chance(self, distance: float) -> float:
        """Two-sided p: how likely an estimate misses the truth by at least a distance."""
        if not self.error:
            return float(distance <= 0)
        return min(1.0, 2 * float(scipy.special.stdtr(self.freedom, -distance / self.error)))

    def detectable(self, level: float = LEVEL) -> float:
        """Returns the smallest true difference that a test at a level detects with `POWER`."""
        return self.error * _reach(self.freedom, level)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What a difference says of the paper's."""

    word: str  # the verdict, by `RULES`
    level: float  # at which this row was tested in the end for a difference
    is_sure: bool = False  # whether the difference is surely not 0, all rows together


def _quantile(share: float, freedom: float) -> float:
    """Student's t that a share lies below; the function of scipy.stats is slow, one by one."""
    return float(scipy.special.stdtrit(freedom, share))


def _reach(freedom: float, level: float) -> float:
    """Returns the standard errors from 0 to a true difference that is detected with `POWER`.

    A test asks for t(1 − level/2) of them, which a noncentral t with such a mean surpasses.
    """
    asked = _quantile(1 - level / 2, freedom)
    if np.isinf(freedom):
        return asked + _quantile(POWER, freedom)
    return float(scipy.special.nctdtrinc(freedom, 1 - POWER, asked))


def samples(sentences: int) -> Int[np.ndarray, "samples sentences"]:
    """How often each is drawn: once in the first sample, as measured, then `DRAWS` bootstraps."""
    shares = np.full(sentences, 1 / sentences)
    drawn = np.random.default_rng(0).multinomial(sentences, shares, DRAWS)
    return np.concatenate([np.ones((1, sentences), np.int64), drawn])


def scores(counts: Counts, variant: str, weights: Int[np.ndarray, "draws sentences"]) -> np.ndarray:
    """The score of one run on each sample of its sentences, by a key of `measures.MEASURES`."""
    summed = weights.astype(np.float64) @ counts  # exact, and much faster than in whole numbers
    score = measures.MEASURES[variant].from_counts
    return np.array([score(row) for row in summed.astype(np.int64)])


def difference(
    ours: Runs, theirs: Runs, variant: str, spreads: Spreads | None = None
) -> Difference:
    """Compares a row with base, by the counts of their runs and a key of `measures.MEASURES`.

    Spreads say how the scores of each vary over seeds; None: as those of these runs do. Raises
    UserError if their sentences cannot be the same, or there is only one.
    """
    lengths = {len(run) for side in (ours, theirs) for run in side.values()}
    if len(lengths) > 1 or min(lengths) < 2:
        raise errors.UserError(
            "rows that are compared were scored on "
            f"{' and '.join(f'{number:,}' for number in sorted(lengths))} sentences: all of them "
            "need the same ones, 2 or more"
        )
    weights = samples(*lengths)
    found = [
        np.array([scores(run, variant, weights) for run in side.values()])
        for side in (ours, theirs)
    ]
    gaps = found[0].mean(0) - found[1].mean(0)
    sides = [side[:, 0].tolist() for side in found]
    over_sentences = float(np.var(gaps[1:], ddof=1))
    return estimated(float(gaps[0]), over_sentences, sides, spreads)


def estimated(
    mean: float,
    sentences: float,
    sides: Sequence[Sequence[float]],
    spreads: Spreads | None = None,
) -> Difference:
    """A difference from what sentences and seeds say: its variance over sentences, and scores."""
    ours, theirs = map(len, sides)
    own, base = map(noise_floor.own_spread, sides)
    if spreads is None and own and base:
        spreads = own, base
    parts = noise_floor.parts(spreads, (ours, theirs)) if spreads else []
    variance, freedom = intervals.satterthwaite(sentences, parts)
    half = _quantile(0.975, freedom) * variance**0.5
    return Difference(mean, half, (ours, theirs), freedom, spreads is not None)


def verdicts(gaps: Mapping[str, Difference], paper: Mapping[str, float]) -> dict[str, Judgement]:
    """What each row's difference from base says of the paper's, by `RULES`.

    Two hypotheses are tested, that a difference is 0 and, where the paper has a tie, that it lies
    outside ± `WITHIN`, each in all rows together by Holm's correction; the second is Schuirmann's
    pair of one-sided tests (1987), both at half the level, so that the interval lies within.
    """
    tested = {row: gap for row, gap in gaps.items() if row in paper and gap.over_seeds}
    ties = {row: gap for row, gap in tested.items() if abs(paper[row]) < SMALL}
    is_0 = intervals.holm({row: gap.chance(abs(gap.mean)) for row, gap in tested.items()})
    is_outside = intervals.holm(
        {row: gap.chance(WITHIN - abs(gap.mean)) for row, gap in ties.items()}
    )
    sure = {row for row, chance in is_0.items() if round(chance, 9) < LEVEL}
    words = {row: UNDECIDED for row in gaps if row in paper}
    for row, gap in tested.items():
        if row in ties and round(is_outside[row], 9) <= LEVEL:
            words[row] = "tie as in the paper"
        elif row in sure:
            contradicts = row in ties or gap.mean * paper[row] < 0
            words[row] = "contradicts" if contradicts else "reproduced"
    level = LEVEL / max(len(is_0) - len(sure), 1)  # of Holm's last step
    return {row: Judgement(word, level, row in sure) for row, word in words.items()}
