"""Verdicts: whether a sweep reproduces the paper's differences from base.

Tests are corrected for the number of rows by Holm's method.
"""

import dataclasses
from collections.abc import Mapping

from experiments.stats import differences

SMALL = 0.3  # BLEU; differences of the paper below this are ties
EQUIVALENCE = 0.5  # BLEU; differences inside ± this are not relevant
REPRODUCED = "reproduced"
TIE = "tie as in the paper"
CONTRADICTS = "contradicts"
UNDECIDED = "undecided"
WORDS = (REPRODUCED, TIE, CONTRADICTS, UNDECIDED)
RULES = (
    f"where the paper's difference is at least {SMALL}: reproduced, if ours differs significantly "
    "from 0 with the paper's sign; contradicts, if with the other sign. Where it is smaller: tie "
    f"as in the paper, if ours lies significantly within ± {EQUIVALENCE}; contradicts, if not and "
    "ours differs significantly from 0. Otherwise, and always with one seed and no pooled variance "
    "over seeds: undecided. Significance: at 95% for all rows together (Holm 1979)."
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of testing whether a row's difference from base agrees with the paper's.

    Attributes:
      word: one of `WORDS`.
      level: the p-value below which Holm's procedure would have rejected the next hypothesis that
        a difference is 0: 0.05 / (number of hypotheses not rejected). The detectable difference is
        computed at this level.
      is_significant: True if the difference is significantly different from 0, at 95% for all rows
        together.
    """

    word: str
    level: float
    is_significant: bool = False


def judge(
    gaps: Mapping[str, differences.Difference], paper: Mapping[str, float]
) -> dict[str, Verdict]:
    """Compares each row's difference from base with the paper's, by `RULES`.

    Two hypotheses are tested, each with Holm's correction for the number of rows. The first, tested
    for all rows, is that the difference is 0. The second, tested for rows for which the paper has a
    tie, is that the difference lies outside ± `EQUIVALENCE`. The second test is Schuirmann's pair
    of one-sided tests (1987), each at half the level, so that a tie requires the 95% interval to
    lie within the bounds.

    Args:
      gaps: the difference from base of each row.
      paper: the paper's difference from base, for each row for which the paper has a score.

    Returns:
      The verdict on each row that is in both mappings.
    """
    tested = {row: gap for row, gap in gaps.items() if row in paper and gap.over_seeds}
    ties = {row: gap for row, gap in tested.items() if abs(paper[row]) < SMALL}
    is_0 = holm({row: gap.p_value(abs(gap.mean)) for row, gap in tested.items()})
    is_outside = holm({row: gap.p_value(EQUIVALENCE - abs(gap.mean)) for row, gap in ties.items()})
    significant = {row for row, p in is_0.items() if round(p, 9) < differences.LEVEL}
    words = {row: UNDECIDED for row in gaps if row in paper}
    for row, gap in tested.items():
        if row in ties and round(is_outside[row], 9) <= differences.LEVEL:
            words[row] = TIE
        elif row in significant:
            is_opposite = row in ties or gap.mean * paper[row] < 0
            words[row] = CONTRADICTS if is_opposite else REPRODUCED
    level = differences.LEVEL / max(len(is_0) - len(significant), 1)  # of Holm's last step
    return {row: Verdict(word, level, row in significant) for row, word in words.items()}


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Returns p-values corrected for their number (Holm 1979).

    Rejecting the hypotheses with corrected p-values below 0.05 keeps the family-wise error rate at
    most 5%, whatever the dependence between the tests.
    """
    corrected, highest = {}, 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[name]))
        corrected[name] = highest
    return corrected
