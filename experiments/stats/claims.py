"""Tests of published claims on the runs of a sweep.

A claim is a list of inequalities between rows, such as "base > F none". Differences are tested with
Welch's t-test on the scores of the seeds. The sentences are the same in all runs, so they are not
resampled. An inequality agrees if the 95% interval of the difference lies above the inequality's
bound, and disagrees if the interval lies below the bound. The bound is 0, or -`MARGIN` for ≥.
A claim agrees if all its inequalities agree. It disagrees if an inequality disagrees at the 95%
level after a Bonferroni correction for the number of its inequalities.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.results import frames
from experiments.stats import differences, multiple, verdicts
from transformer_jax.evaluation import bleu

MARGIN = 1.0  # BLEU; for an inequality with ≥, a row may be lower by less than this
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
    """Returns each run's BLEU on development sentences longer than all training sentences."""
    del split
    lengths = sweep.lengths[sweep.lengths["beyond_training"].astype(bool)]
    scores = dict(zip(lengths["config_hash"], lengths["score"], strict=True))
    return [scores.get(run, math.nan) for run in sweep.of(row)["config_hash"]]


def _lost_on_long(sweep: frames.Sweep, row: str, split: str) -> list[float]:
    """Returns by how many percent each run's BLEU is lower on long than on short sentences.

    These are the longest and shortest buckets with at least `bleu.FEWEST` development sentences.
    """
    # In percent of BLEU, since a model that is bad at all lengths has little BLEU to lose.
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
    """A quantity by which a claim compares rows, such as BLEU.

    Attributes:
      of_runs: a function that returns the quantity for each run of a row, NaN if a run does not
        have it. Its arguments are a sweep, a row, and "dev" or "test".
      label: the text to append to an inequality of this quantity; "" for BLEU.
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
      strictly: True for >; False for ≥, with which `higher` may be lower than `lower` by less than
        `MARGIN`.
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
    """A published claim, which agrees with a sweep if all its inequalities agree."""

    text: str
    source: str
    inequalities: Sequence[Inequality]


@dataclasses.dataclass(frozen=True)
class Result:
    """The test of an inequality.

    Attributes:
      inequality: the inequality.
      runs: the number of runs of the higher row and of the lower one.
      verdict: AGREES, DISAGREES, NOT_RESOLVED, or the reason why it could not be tested.
      difference: the mean difference; NaN if it could not be tested.
      half_width: the half-width of its 95% interval; NaN for single runs.
      refutes_claim: True if the inequality disagrees at the 95% level after a Bonferroni
        correction for the number of inequalities of the claim.
    """

    inequality: Inequality
    runs: tuple[int, int]
    verdict: str
    difference: float = math.nan
    half_width: float = math.nan
    refutes_claim: bool = False


def compared_rows(claims: Sequence[Claim]) -> set[str]:
    """Returns the names of all rows that are in an inequality of a claim."""
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
      names: for each row, the variant for --tune to test in place of the row; None to test the rows
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
    return (AGREES if words == {AGREES} else verdicts.NOT_RESOLVED), results


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
        if name is None:  # a row that was not tuned has no variant to test
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
    gap = _welch(*sides)
    beyond = gap.mean - (0 if inequality.strictly else -MARGIN)
    p_value = gap.p_value(abs(beyond))
    verdict = verdicts.NOT_RESOLVED
    if p_value < multiple.LEVEL:
        verdict = AGREES if beyond > 0 else DISAGREES
    refutes = verdict == DISAGREES and p_value < multiple.LEVEL / tests
    return Result(inequality, runs, verdict, gap.mean, gap.half_width, refutes)


def _welch(higher: Sequence[float], lower: Sequence[float]) -> differences.Difference:
    """Returns the difference of two means with Welch's standard error; NaN for single runs."""
    mean = statistics.fmean(higher) - statistics.fmean(lower)
    runs = (len(higher), len(lower))
    if min(runs) < 2:
        return differences.Difference(mean, math.nan, runs)
    parts = [statistics.variance(side) / len(side) for side in (higher, lower)]
    variance = sum(parts)
    if not variance:
        return differences.Difference(mean, math.nan, runs)
    squares = sum(part**2 / (number - 1) for part, number in zip(parts, runs, strict=True))
    return differences.Difference(mean, variance**0.5, runs, variance**2 / squares, True)
