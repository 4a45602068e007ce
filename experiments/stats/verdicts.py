"""Verdicts: what a row's difference from base says about the paper's difference.

Three kinds of hypotheses are tested by Student's t, each kind with Holm's correction for the number
of rows, so that the family-wise error rate of each kind is at most 5%:

1. for all rows, that the difference is 0;
2. for rows in which the paper has no difference, or where there is no paper, that the difference
   lies outside ± `Scale.equivalence`. This is Schuirmann's pair of one-sided tests (1987), each at
   half the level, so that the 95% interval lies within the bounds;
3. for rows in which the paper has a difference, that ours is as large or larger.

  word                        the paper's difference   rejected
  same direction              yes                      1, with the paper's sign
  opposite                    yes                      1, with the other sign
  smaller than the paper's    yes                      3, not 1
  no difference, as the paper no                       2
  differs, paper has none     no                       1, not 2
  not resolved                any                      none
  better, worse               there is no paper        1, not 2
  no difference               there is no paper        2
  failed k of n               any                      not tested

BLEU and the logarithm of perplexity (ln PPL) are two families of tests. Each has its own `Scale`.
"""

import dataclasses
from collections.abc import Mapping

from experiments.stats import differences, multiple

SAME = "same direction"
OPPOSITE = "opposite"
AS_PAPER = "no difference, as the paper"
PAPER_HAS_NONE = "differs, paper has none"
SMALLER = "smaller than the paper's"
BETTER = "better"
WORSE = "worse"
NO_DIFFERENCE = "no difference"
NOT_RESOLVED = "not resolved"


@dataclasses.dataclass(frozen=True)
class Scale:
    """Constants of the tests for one measure.

    Attributes:
      name: the name of the measure.
      paper_counts: the size from which a difference of the paper counts as a difference.
      equivalence: the size up to which a difference is irrelevant.
      higher_is_better: whether higher values are better.
    """

    name: str
    paper_counts: float
    equivalence: float
    higher_is_better: bool = True


# The paper reports one run a row. T5's runs on WMT English–German vary by a standard deviation of
# 0.112 BLEU (Raffel et al. 2020, Table 1 and section 3.1.3), so differences of two single runs up
# to 1.96 √2 · 0.112 = 0.31 may be chance. Half a point of BLEU is what the community calls small.
BLEU = Scale("BLEU", paper_counts=0.311, equivalence=0.5)
F1 = Scale("F1", paper_counts=0.311, equivalence=0.5)  # as for BLEU; no table of F1 has a paper
# 0.01 lies in the gap between the paper's differences of 0.008 (N=8) and 0.016 (h=4). 0.03 nats are
# 3% of perplexity, about 0.5 BLEU on Multi30k.
LOG_PPL = Scale("ln PPL", paper_counts=0.01, equivalence=0.03, higher_is_better=False)
SCALES = {"bleu": BLEU, "f1": F1}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verdict on a row.

    Attributes:
      word: one of the words of the module.
      p_value: the p-value of no difference, corrected for the number of rows; NaN if not tested.
      failed: the number of runs that failed to train.
      runs: the number of runs of a row of which some failed to train.
    """

    word: str
    p_value: float = float("nan")
    failed: int = 0
    runs: int = 0

    @property
    def is_significant(self) -> bool:
        """True if the difference is significantly different from 0, for all rows together."""
        return self.p_value < multiple.LEVEL

    @property
    def is_decided(self) -> bool:
        """True if the tests decided something about the row."""
        return self.word != NOT_RESOLVED and not self.failed


def judge(
    gaps: Mapping[str, differences.Difference],
    scale: Scale,
    paper: Mapping[str, float] | None = None,
) -> dict[str, Verdict]:
    """Returns the verdict on each row.

    Args:
      gaps: the difference from base of each row.
      scale: the constants of the measure.
      paper: the paper's difference from base, for each row for which the paper has a score.
    """
    paper = paper or {}
    tested = {row: gap for row, gap in gaps.items() if gap.over_seeds}
    with_effect = {row: paper[row] for row in tested if has_effect(paper.get(row), scale)}
    p_zero = multiple.holm({row: gap.p_value(abs(gap.mean)) for row, gap in tested.items()})
    p_outside = multiple.holm(
        {
            row: gap.p_value(scale.equivalence - abs(gap.mean))
            for row, gap in tested.items()
            if row not in with_effect
        }
    )
    p_as_large = multiple.holm(
        {
            row: tested[row].p_value(abs(theirs) - _along(tested[row].mean, theirs))
            for row, theirs in with_effect.items()
        }
    )
    found = {}
    for row, gap in gaps.items():
        word = NOT_RESOLVED
        if p_outside.get(row, 1.0) < multiple.LEVEL:
            word = AS_PAPER if row in paper else NO_DIFFERENCE
        elif p_zero.get(row, 1.0) < multiple.LEVEL:
            if row in with_effect:
                word = SAME if _along(gap.mean, paper[row]) > 0 else OPPOSITE
            elif row in paper:
                word = PAPER_HAS_NONE
            else:
                word = BETTER if (gap.mean > 0) == scale.higher_is_better else WORSE
        elif p_as_large.get(row, 1.0) < multiple.LEVEL:
            word = SMALLER
        found[row] = Verdict(word, p_zero.get(row, float("nan")))
    return found


def has_effect(theirs: float | None, scale: Scale) -> bool:
    """Returns True if a difference of the paper counts as a difference."""
    return theirs is not None and abs(theirs) >= scale.paper_counts


def failed(number: int, runs: int) -> Verdict:
    """Returns the verdict on a row of which some runs failed to train."""
    return Verdict(f"failed {number} of {runs}", failed=number, runs=runs)


def detectable(
    gaps: Mapping[str, differences.Difference], found: Mapping[str, Verdict]
) -> float | None:
    """Returns the smallest true difference that the test of a typical row would mostly detect.

    The test has the level at which Holm's procedure stopped. None if no row was tested.
    """
    tested = {row: gap for row, gap in gaps.items() if gap.over_seeds}
    if not tested:
        return None
    left = max(sum(not found[row].is_significant for row in tested), 1)
    sizes = sorted(gap.detectable(multiple.LEVEL / left) for gap in tested.values())
    return sizes[len(sizes) // 2]


def _along(ours: float, theirs: float) -> float:
    """Returns our difference, signed positive in the direction of the paper's."""
    return ours if theirs > 0 else -ours
