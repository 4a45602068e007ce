"""Tests of published claims on the runs of a sweep, and the section of a report with them.

A claim is a list of inequalities between rows, such as "base > F none". The difference of two rows
and its interval are those of `stats.differences` on the development set, with the variance over
seeds pooled over the rows of the sweep. The interval is for other sentences too if the quantity has
deviations over sentences, as BLEU does. An inequality agrees if the 95% interval lies above its
bound, and disagrees if the interval lies below the bound. The bound is 0, or -`MARGIN` for ≥. A
claim agrees if all its inequalities agree. It disagrees if an inequality disagrees at the 95% level
after a Bonferroni correction for the number of its inequalities.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from experiments.results import comparison, documents, frames, sensitivity, tables
from experiments.stats import multiple, scores, verdicts
from experiments.sweep import cost
from transformer_jax.evaluation import bleu

MARGIN = 1.0  # BLEU; for an inequality with ≥, a row may be lower by less than this
AGREES = "agrees"
DISAGREES = "disagrees"
NOT_RUN = "not run"
NOT_MEASURABLE = "not measurable"
FAILED = "failed"

RULES = (
    "Claims: differences have 95% intervals like those of the rows, on the development set; for "
    "quantities other than BLEU they are over seeds, on these sentences. An inequality agrees if "
    f"the interval lies above 0 (≥: above −{MARGIN:g}) and disagrees if it lies below. A claim "
    "agrees if all its inequalities do, and disagrees if one does at 95% for all of the claim "
    "together (Bonferroni). A row with a run that failed is not compared."
)
RECIPE = (
    "All rows have one recipe. With --tune, further verdicts compare each row at its best value, "
    "chosen on the development set and scored on the test set; BLEU by length stays that of the "
    "development set."
)
LOST_ON_LONG_NOTE = (
    "Lost on long sentences: the percentage by which BLEU is lower in the longest bucket of at "
    f"least {bleu.FEWEST} sentences than in the shortest; differences in points."
)


def _bleu(sweep: frames.Sweep, row: str, split: str) -> dict[int, scores.Run]:
    counts = sweep.counts(row, "bleu", split)
    unknown = dict.fromkeys(sweep.of(row)["seed"], scores.Run(math.nan))
    return scores.from_counts(counts, "bleu") if counts else unknown


def _beyond_training(sweep: frames.Sweep, row: str, split: str) -> dict[int, scores.Run]:
    """Returns each run's BLEU on development sentences longer than all training sentences."""
    del split
    lengths = sweep.lengths[sweep.lengths["beyond_training"].astype(bool)]
    found = dict(zip(lengths["config_hash"], lengths["score"], strict=True))
    runs = sweep.of(row)
    return {
        seed: scores.Run(found.get(run, math.nan))
        for seed, run in zip(runs["seed"], runs["config_hash"], strict=True)
    }


def _lost_on_long(sweep: frames.Sweep, row: str, split: str) -> dict[int, scores.Run]:
    """Returns by how many percent each run's BLEU is lower on long than on short sentences.

    These are the longest and shortest buckets with at least `bleu.FEWEST` development sentences.
    """
    # In percent of BLEU, since a model that is bad at all lengths has little BLEU to lose.
    del split
    lengths = sweep.lengths[~sweep.lengths["beyond_training"].astype(bool)]
    lengths = lengths[(lengths["unit"] == "tokens") & (lengths["sentences"] >= bleu.FEWEST)]
    runs = sweep.of(row)
    lost = {}
    for seed, run in zip(runs["seed"], runs["config_hash"], strict=True):
        by_length = lengths.loc[lengths["config_hash"] == run, "score"].tolist()
        measurable = len(by_length) > 1 and by_length[0]
        lost[seed] = scores.Run(
            100 * (1 - by_length[-1] / by_length[0]) if measurable else math.nan
        )
    return lost


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A quantity by which a claim compares rows, such as BLEU.

    Attributes:
      of_runs: a function that returns the quantity of each run of a row, by seed; NaN if a run does
        not have it. Its arguments are a sweep, a row, and "dev" or "test".
      label: the text to append to an inequality of this quantity; "" for BLEU.
    """

    of_runs: Callable[[frames.Sweep, str, str], dict[int, scores.Run]]
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
      half_width: the half-width of its 95% interval; NaN if nothing is known of the variance over
        seeds.
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
    claims: Sequence[Claim],
    compared: comparison.Comparison,
    names: Mapping[str, str] | None = None,
    split: str = "dev",
) -> list[tuple[str, list[Result]]]:
    """Tests claims.

    Args:
      claims: the claims.
      compared: the rows.
      names: for each row, the variant for --tune to test in place of the row; None to test the rows
        themselves.
      split: the set whose BLEU is compared.

    Returns:
      For each claim, the verdict on it and the results of its inequalities.
    """
    rows = compared.rows["row"]
    names = dict(zip(rows, rows, strict=True)) if names is None else names
    quantities = dict.fromkeys(each.of for claim in claims for each in claim.inequalities)
    tests = {quantity: _Test(quantity, compared, names, split) for quantity in quantities}
    judged = []
    for claim in claims:
        results = [tests[each.of].result(each, claim) for each in claim.inequalities]
        words = {result.verdict for result in results}
        word = AGREES if words == {AGREES} else verdicts.NOT_RESOLVED
        for reason in (NOT_MEASURABLE, NOT_RUN, FAILED):
            word = reason if reason in words else word
        if any(result.refutes_claim for result in results):
            word = DISAGREES
        judged.append((word, results))
    return judged


class _Test:
    """The test of inequalities of one quantity."""

    def __init__(
        self,
        quantity: Quantity,
        compared: comparison.Comparison,
        names: Mapping[str, str],
        split: str,
    ):
        self._sweep = sweep = compared.sweep
        base, crashed = sweep.description.base_row, set(sweep.failures["row"])
        failed = {
            row: compared.failed[name] for row, name in names.items() if name in compared.failed
        }
        self._failed = {row for row, name in names.items() if name in crashed}
        self._failed |= failed.keys() - {base}
        self._runs = {row: quantity.of_runs(sweep, name, split) for row, name in names.items()}
        measured = {
            row: {seed: run for seed, run in runs.items() if not math.isnan(run.score)}
            for row, runs in self._runs.items()
        }
        self._means = comparison.means_of(measured, sweep.description, failed)
        self._equals = comparison.equal_rows(sweep.description)

    def result(self, inequality: Inequality, claim: Claim) -> Result:
        """Returns the result of an inequality of a claim."""
        rows = (inequality.higher, inequality.lower)
        sides = [self._runs.get(row, {}) for row in rows]
        runs = (len(sides[0]), len(sides[1]))
        if self._failed.intersection(rows):
            return Result(inequality, runs, FAILED)
        if not all(side or len(self._sweep.of(row)) for row, side in zip(rows, sides, strict=True)):
            return Result(inequality, runs, NOT_RUN)
        values = [run.score for side in sides for run in side.values()]
        if not all(sides) or np.isnan(values).any():  # a row that was not tuned has no variant
            return Result(inequality, runs, NOT_MEASURABLE)
        gap = self._means.difference(*(self._equals.get(row, row) for row in rows))
        beyond = gap.mean - (0 if inequality.strictly else -MARGIN)
        p_value = gap.p_value(abs(beyond)) if gap.over_seeds else 1.0
        verdict = verdicts.NOT_RESOLVED
        if p_value < multiple.LEVEL:
            verdict = AGREES if beyond > 0 else DISAGREES
        refutes = verdict == DISAGREES and p_value < multiple.LEVEL / len(claim.inequalities)
        half_width = gap.half_width if gap.over_seeds else math.nan
        return Result(inequality, runs, verdict, gap.mean, half_width, refutes)


def section(
    compared: comparison.Comparison, claims: Sequence[Claim], note: str
) -> documents.Section:
    """Returns a section with a table of claims, each followed by its inequalities.

    Args:
      compared: the rows.
      claims: the claims.
      note: a note on the rules of the tests.
    """
    is_tuned = bool(compared.sweep.description.tune)
    params = compared.rows["params"].astype(float)
    judged = judge(claims, compared)
    at_best = judge(claims, compared, sensitivity.best_names(compared), "test") if is_tuned else []
    lines = []
    for number, (claim, (verdict, results)) in enumerate(zip(claims, judged, strict=True), 1):
        line = {"claim": f"{claim.text} [{number}]", "verdict": verdict}
        if is_tuned:
            line["verdict_at_best"], _ = at_best[number - 1]
        lines.append(line)
        for result in results:
            share = params[result.inequality.higher] / params[result.inequality.lower] - 1
            lines.append({
                "claim": f"· {result.inequality}",
                "runs": " and ".join(map(str, result.runs)),
                "difference": result.difference,
                "half_width": result.half_width,
                "verdict": result.verdict,
                "params_share": share if abs(share) > cost.NOTABLE else np.nan,
            })  # fmt: skip
    columns = [
        tables.Column("claim", main=True),
        tables.Column("runs"),
        tables.Column("difference", "", "+.2f", "half_width", main=True),
        tables.Column("verdict", main=True),
    ]
    names = ["claim", "runs", "difference", "half_width", "verdict", "params_share"]
    if is_tuned:
        columns.append(tables.Column("each at its best", "verdict_at_best"))
        names.append("verdict_at_best")
    columns.append(tables.Column("parameters", "params_share", "+.0%"))
    frame = pd.DataFrame(lines, columns=names)
    sources = "; ".join(f"[{number}] {claim.source}" for number, claim in enumerate(claims, 1))
    title = "Claims, on the development set"
    table = tables.Table(frame, columns, title, f"{sources}.", "claims")
    return documents.Section([table], [note])
