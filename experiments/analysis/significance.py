"""Whether a row differs from base: over the sentences it was scored on, and over its seeds.

Two things make a difference in BLEU uncertain. Another development set would have other sentences:
that part is the paired bootstrap's (Koehn 2004), which draws sentences with replacement, the same
for both rows. Another seed would have made another model: that part is the variance between runs.
They are independent, so their variances add, and Student's t with Welch's degrees of freedom
accounts for how few seeds there are. Approximate randomisation (Riezler and Maxwell 2005) asks
besides how often a difference as large would arise if it did not matter which row wrote which
translation.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats
from jaxtyping import Int

from experiments.analysis import intervals
from transformer_jax.evaluation import bleu

DRAWS = 1000  # of the bootstrap, and of approximate randomisation
SMALL = 0.3  # the paper's differences below this are ties, in BLEU
OFTEN = 0.8  # how often a difference that could have been shown is shown
WITHIN = 0.5  # an interval inside ± this says that there is no difference worth the name
APART = 0.5  # rows that the paper separates by as much are to be ranked

UNDECIDED = "undecided"
RULES = (
    f"where the paper's difference is {SMALL} or more: reproduced, if our interval excludes 0 and "
    "has the paper's sign, contradicts, if it excludes 0 and has the other; where it is less: tie "
    f"as in the paper, if our interval lies within ± {WITHIN}, contradicts, if not and it excludes "
    "0; otherwise, and always with one seed, undecided. In brackets after undecided: the smallest "
    f"true difference whose interval would exclude 0 in {OFTEN:.0%} of such comparisons."
)

Counts = Int[np.ndarray, "sentences 10"]  # of one run; see `bleu.counts`


@dataclasses.dataclass(frozen=True)
class Difference:
    """A row against base, in BLEU.

    Attributes:
      mean: difference of the means over seeds.
      half: half of its 95% interval over sentences, and over seeds where both rows have several.
      p: of approximate randomisation, over sentences.
      seeds: runs of the row with fewer.
      freedom: Welch's degrees of freedom, on which the interval rests.
    """

    mean: float
    half: float
    p: float
    seeds: int
    freedom: float = np.inf

    @property
    def excludes_0(self) -> bool:
        """Whether 0 lies outside the interval."""
        return abs(self.mean) > self.half

    @property
    def shows(self) -> float:
        """The smallest true difference whose interval would exclude 0 `OFTEN` enough."""
        # Half is t(0.975) standard errors; in the other cases the estimate falls short of the truth
        # by more than t(OFTEN) of them.
        outer, inner = scipy.stats.t.ppf([0.975, OFTEN], self.freedom)
        return self.half * (1 + float(inner / outer))


def draws(sentences: int, rounds: int = DRAWS, seed: int = 0) -> Int[np.ndarray, "draws sentences"]:
    """How often each sentence is drawn, for a number of bootstrap samples."""
    random = np.random.default_rng(seed)
    return random.multinomial(sentences, np.full(sentences, 1 / sentences), size=rounds)


def scores(counts: Counts, variant: str, weights: Int[np.ndarray, "draws sentences"]) -> np.ndarray:
    """Corpus BLEU of one run on each sample of its sentences."""
    summed = weights.astype(np.float64) @ counts  # exact, and much faster than in whole numbers
    return np.array([bleu.from_counts(row, variant) for row in summed.astype(np.int64)])


def difference(
    ours: Mapping[int, Counts], theirs: Mapping[int, Counts], variant: str
) -> Difference:
    """Compares two rows, by the runs of each seed."""
    weights = _with_whole(draws(len(next(iter(ours.values())))))
    found = [
        np.array([scores(run, variant, weights) for run in side.values()])
        for side in (ours, theirs)
    ]
    sides = [side[:, 0].tolist() for side in found]
    gaps = found[0].mean(0) - found[1].mean(0)
    mean, variance, freedom = float(gaps[0]), float(np.var(gaps[1:], ddof=1)), np.inf
    seeds = min(map(len, sides))
    if seeds > 1:
        variance, freedom = intervals.welch(sides, variance)
    half = float(scipy.stats.t.ppf(0.975, freedom)) * variance**0.5
    return Difference(mean, half, _randomised(ours, theirs, variant), seeds, float(freedom))


def _with_whole(weights: Int[np.ndarray, "draws sentences"]) -> Int[np.ndarray, "_ sentences"]:
    """Samples after one first that has each sentence once: what was measured."""
    return np.concatenate([np.ones_like(weights[:1]), weights])


def _randomised(ours: Mapping[int, Counts], theirs: Mapping[int, Counts], variant: str) -> float:
    """How often rows that exchange translations at random differ as much as they do.

    Runs of the same place in both rows exchange sentences; each sentence is exchanged in all of
    them or in none.
    """
    pairs = list(zip(ours.values(), theirs.values(), strict=False))
    sentences = len(pairs[0][0])
    swaps = np.random.default_rng(1).integers(2, size=(DRAWS, sentences))
    swaps = np.concatenate([np.zeros((1, sentences), np.int64), swaps])  # the first as measured
    ours_first, theirs_first = np.hstack([1 - swaps, swaps]), np.hstack([swaps, 1 - swaps])
    gaps = [
        scores(both, variant, ours_first) - scores(both, variant, theirs_first)
        for both in map(np.concatenate, pairs)
    ]
    observed, *exchanged = np.abs(np.mean(gaps, axis=0))
    return (1 + np.count_nonzero(np.array(exchanged) >= observed - 1e-12)) / (1 + DRAWS)


def verdict(ours: Difference, paper: float) -> str:
    """What our difference from base says of the paper's, by `RULES`."""
    if ours.seeds < 2:
        return UNDECIDED
    is_tie = abs(paper) < SMALL
    if is_tie and abs(ours.mean) + ours.half <= WITHIN:
        return "tie as in the paper"
    if not ours.excludes_0:
        return UNDECIDED
    return "contradicts" if is_tie or ours.mean * paper < 0 else "reproduced"


def tau(
    rows: Mapping[str, Mapping[int, Counts]], paper: Mapping[str, float], variant: str
) -> tuple[float, float, float, int] | None:
    """Kendall's tau-b between ours and the paper's order of rows that the paper keeps apart.

    Returns:
      tau-b, both ends of its 95% interval, a bootstrap's over sentences, the same for all rows, and
      over each row's seeds, and the number of pairs of rows; None if there is none.
    """
    names = [name for name in rows if rows[name]]
    apart = [
        (i, j)
        for i, j in itertools.combinations(range(len(names)), 2)
        if round(abs(paper[names[i]] - paper[names[j]]), 6) >= APART
    ]
    if not apart:
        return None
    signs = np.sign([paper[names[i]] - paper[names[j]] for i, j in apart])
    some = next(iter(rows[names[0]].values()))
    weights = _with_whole(draws(len(some)))
    random = np.random.default_rng(2)
    means = []
    for name in names:
        found = np.array([scores(run, variant, weights) for run in rows[name].values()])
        chosen = random.integers(len(found), size=found.shape)
        chosen[:, 0] = np.arange(len(found))  # the first sample is what was measured
        means.append(np.take_along_axis(found, chosen, 0).mean(0))
    taus = np.array([_tau_b(signs, sample, apart) for sample in np.transpose(means)])
    low, high = np.quantile(taus[1:], [0.025, 0.975])
    return float(taus[0]), float(low), float(high), len(apart)


def _tau_b(signs: np.ndarray, means: np.ndarray, apart: Sequence[tuple[int, int]]) -> float:
    """Concordant less discordant pairs, over the geometric mean of pairs untied in each order.

    scipy.stats.kendalltau would take all pairs, also those that the paper does not keep apart.
    """
    ours = np.sign([means[i] - means[j] for i, j in apart])
    untied = np.count_nonzero(ours)
    return float(signs @ ours) / (len(apart) * untied) ** 0.5 if untied else 0.0
