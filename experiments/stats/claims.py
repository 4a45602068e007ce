"""Published claims, each a list of inequalities between rows, tested on the runs of a sweep.

Differences are Welch's over seeds; the sentences are the same in all runs and are not resampled. An
inequality agrees if its 95% interval lies above its bound, and disagrees if it lies below. A claim
agrees if all of its inequalities do. It disagrees if one disagrees at 95% for all inequalities of
the claim together (Bonferroni).
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.results import frames
from experiments.stats import differences, verdicts
from transformer_jax.evaluation import bleu

MARGIN = 1.0  # BLEU; a row that is lower by less than this counts as no lower
AGREES = "agrees"
DISAGREES = "disagrees"
NOT_RUN = "not run"
NOT_MEASURABLE = "not measurable"
FAILED = "failed"


def _bleu(sweep: frames.Sweep, row: str, split: str) -> list[float]:
    column = f"{frames.SPLITS[split]}bleu"
    runs = sweep.of(row)
    return runs[column].tolist() if column in runs else [math.nan] * len(runs)


def _beyond_training(sweep: frames.Sweep, row: str, split: str) -> list[float]:
    """Returns each run's BLEU on the development sentences longer than any trained on."""
    del split
    lengths = sweep.lengths[sweep.lengths["beyond_training"].astype(bool)]
    scores = dict(zip(lengths["config_hash"], lengths["score"], strict=True))
    return [scores.get(run, math.nan) for run in sweep.of(row)["config_hash"]]


def _lost_on_long(sweep: frames.Sweep, row: str, split: str) -> list[float]:
    """Returns the loss of BLEU from the shortest to the longest sentences, in percent, by run.

    Buckets of fewer than `bleu.FEWEST` development sentences do not count.
    """
    # Relative, since a model that is bad at all lengths has little BLEU to lose.
    del split
    lengths = sweep.lengths[~sweep.lengths["beyond_training"].astype(bool)]
    lengths = lengths[(lengths["unit"] == "tokens") & (lengths["sentences"] >= bleu.FEWEST)]
    lost = []
    for run in sweep.of(row)["config_hash"]:
        scores = lengths.loc[lengths["config_hash"] == run, "score"].tolist()
        measurable = len(scores) > 1 and scores[0]
        lost.append(100 * (1 - scores[-1] / scores[0]) if measurable else math.nan)
    return lost


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number that rows are compared by.

    Attributes:
      of_runs: returns the number of each run of a row, NaN for a run without one. Its arguments
        are a sweep, a row, and "dev" or "test".
      label: the text to append to an inequality of this quantity.
    """

    of_runs: Callable[[frames.Sweep, str, str], list[float]]
    label: str = ""


BLEU = Quantity(_bleu)
BEYOND_TRAINING = Quantity(_beyond_training, ", beyond training")
LOST_ON_LONG = Quantity(_lost_on_long, ", points lost on long")


@dataclasses.dataclass(frozen=True)
class Inequality:
    """A claim that a quantity is higher in one row than in another.

    Attributes:
      higher: the row with the higher value.
      lower: the row with the lower value.
      of: the quantity.
      strictly: False if the first row need only be no lower, by `MARGIN`.
    """

    higher: str
    lower: str
    of: Quantity = BLEU
    strictly: bool = True

    def __str__(self) -> str:
        sign = ">" if self.strictly else "≥"
        return f"{self.higher} {sign} {self.lower}{self.of.label}"


@dataclasses.dataclass(frozen=True)
class Claim:
    """A published claim, which holds if all of its inequalities do."""

    text: str
    source: str
    inequalities: Sequence[Inequality]


@dataclasses.dataclass(frozen=True)
class Result:
    """The test of an inequality.

    Attributes:
      inequality: the inequality.
      runs: the number of runs of the higher row and of the lower one.
      verdict: AGREES, DISAGREES, UNDECIDED, or the reason why it could not be tested.
      difference: the mean difference; NaN if it could not be tested.
      half_width: the half-width of its 95% interval; NaN for single runs.
      refutes_claim: whether the inequality disagrees at 95% for all inequalities of the claim
        together (Bonferroni).
    """

    inequality: Inequality
    runs: tuple[int, int]
    verdict: str
    difference: float = math.nan
    half_width: float = math.nan
    refutes_claim: bool = False


def compared_rows(claims: Sequence[Claim]) -> set[str]:
    """Returns the rows that claims compare."""
    return {
        row for claim in claims for each in claim.inequalities for row in (each.higher, each.lower)
    }


def judge(
    claim: Claim,
    sweep: frames.Sweep,
    names: Mapping[str, str] | None = None,
    split: str = "dev",
) -> tuple[str, list[Result]]:
    """Tests a claim.

    Args:
      claim: the claim.
      sweep: the results.
      names: the variant to test in place of each row, such as the best one; None to test the rows
        themselves.
      split: the set whose BLEU is compared.

    Returns:
      The verdict on the claim, and the results of its inequalities.
    """
    results = [
        _test(each, sweep, names, split, len(claim.inequalities)) for each in claim.inequalities
    ]
    words = {result.verdict for result in results}
    if any(result.refutes_claim for result in results):
        return DISAGREES, results
    for reason in (FAILED, NOT_RUN, NOT_MEASURABLE):
        if reason in words:
            return reason, results
    return (AGREES if words == {AGREES} else verdicts.UNDECIDED), results


def _test(
    inequality: Inequality,
    sweep: frames.Sweep,
    names: Mapping[str, str] | None,
    split: str,
    tests: int,
) -> Result:
    failed = set(sweep.failures["row"])
    sides = []
    for row in (inequality.higher, inequality.lower):
        name = row if names is None else names.get(row)
        if name is None:  # not tuned, so that its runs have no scores
            sides.append([math.nan] * len(sweep.of(row)))
        else:
            sides.append(inequality.of.of_runs(sweep, name, split))
    runs = (len(sides[0]), len(sides[1]))
    if failed & {inequality.higher, inequality.lower}:
        return Result(inequality, runs, FAILED)
    if np.isnan([*sides[0], *sides[1]]).any():
        return Result(inequality, runs, NOT_MEASURABLE)
    if not all(sides):
        return Result(inequality, runs, NOT_RUN)
    higher, lower = map(statistics.fmean, sides)
    gap = differences.from_variances(higher - lower, 0.0, sides)
    beyond = gap.mean - (0 if inequality.strictly else -MARGIN)
    p_value = gap.p_value(abs(beyond)) if gap.half_width else 1.0  # single or equal runs
    verdict = verdicts.UNDECIDED
    if p_value < differences.LEVEL:
        verdict = AGREES if beyond > 0 else DISAGREES
    refutes = verdict == DISAGREES and p_value < differences.LEVEL / tests
    return Result(inequality, runs, verdict, gap.mean, gap.half_width or math.nan, refutes)
