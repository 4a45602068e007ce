"""What papers say of the variations, beside what the runs of a sweep say."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.analysis import intervals, tuning
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu

Measure = Callable[[Mapping[str, Any]], float | None]  # None: the result has nothing to measure
MARGIN = 1.0  # BLEU by which a row may be lower and still count as no lower


def whole(result: Mapping[str, Any]) -> float | None:
    """BLEU of the development set."""
    return result["bleu"][bleu.MAIN]["score"] if result["bleu"] else None


def beyond_training(result: Mapping[str, Any]) -> float | None:
    """BLEU of the sentences whose source is longer than any that was trained on."""
    beyond = result["bleu_beyond_training"]
    return beyond["score"] if beyond else None


def lost_on_long(result: Mapping[str, Any]) -> float | None:
    """The percentage of the shortest sentences' BLEU that is lost on the longest.

    A percentage, since a model that is bad at all lengths has little BLEU to lose. Buckets of fewer
    than `bleu.FEWEST` sentences do not count.
    """
    buckets = [b for b in result["bleu_by_length"] if b["sentences"] >= bleu.FEWEST]
    if len(buckets) < 2 or not buckets[0]["score"]:
        return None
    return 100 * (1 - buckets[-1]["score"] / buckets[0]["score"])


@dataclasses.dataclass(frozen=True)
class Inequality:
    """That a measure is higher in one row than in another, or, not `strictly`, no lower."""

    higher: str
    lower: str
    measure: Measure = whole
    strictly: bool = True

    def __str__(self) -> str:
        of: dict[Measure, str] = {
            beyond_training: ", beyond training",
            lost_on_long: ", % lost on long",
        }
        return (
            f"{self.higher} {'>' if self.strictly else '≥'} {self.lower}{of.get(self.measure, '')}"
        )


@dataclasses.dataclass(frozen=True)
class Claim:
    """A published claim: all of its inequalities hold."""

    text: str
    source: str
    inequalities: Sequence[Inequality]


_POSITIONS = ("K ALiBi", "K T5 bias", "K rotary", "K sinusoidal", "K learned")
CLAIMS = (
    Claim(
        "no positions hurts",
        "Vaswani et al. 2017, section 3.5, an argument without a measurement",
        [Inequality("base", "F none")],
    ),
    Claim(
        "attention helps a recurrent model",
        "Bahdanau et al. 2015",
        [Inequality("J GRU additive", "J GRU")],
    ),
    Claim(
        "a recurrent model (here a GRU) without attention loses most on long sentences",
        "Cho et al. 2014, Bahdanau et al. 2015; that the Transformer loses less is our addition",
        [Inequality("J GRU", other, lost_on_long) for other in ("J GRU additive", "base")],
    ),
    Claim(
        "the Transformer translates better than a recurrent model with attention",
        "Vaswani et al. 2017, Table 2",
        [Inequality("base", "J GRU additive")],
    ),
    Claim(
        "beyond the trained length ALiBi ≥ T5 bias > rotary > sinusoidal > learned",
        "Press et al. 2022, of language models' perplexity, each trained far beyond the distances "
        "that T5's table tells apart; learned is our addition",
        [
            Inequality(higher, lower, beyond_training, strictly=higher != "K ALiBi")
            for higher, lower in itertools.pairwise(_POSITIONS)
        ],
    ),
)


def compared(stated: Sequence[Claim]) -> set[str]:
    """The rows that claims compare."""
    return {row for claim in stated for c in claim.inequalities for row in (c.higher, c.lower)}


COMPARED = compared(CLAIMS)
VERDICTS = (
    "Claims: intervals are over seeds, by Welch; the development sentences are the same in all "
    f"runs. A link agrees if its 95% interval lies above 0 (≥: above −{MARGIN:g}) and disagrees if "
    "it lies below. A claim agrees if every link does, and "
    "disagrees if a link does at 95% for all links of the claim together (Bonferroni)."
)
RECIPES = (
    "All rows have one recipe; --tune gives verdicts with each row at its best besides, which the "
    "odd development sentences choose; its BLEU is then of the even ones, by length of all."
)
NOTE = (
    f"{VERDICTS} Lost on "
    "long sentences: the share of BLEU, from the shortest to the longest bucket of at least "
    f"{bleu.FEWEST} sentences, in percent. {RECIPES}"
)


@dataclasses.dataclass(frozen=True)
class _Link:
    """What the runs say of an inequality, and whether that refutes the whole claim."""

    runs: tuple[int, int]
    verdict: str
    gap: float | None = None
    half: float | None = None
    refutes: bool = False


def _verdict(gap: float | None, half: float | None, strictly: bool) -> str:
    """What a difference and half its interval say of the claim that it is above 0, or not below."""
    if gap is None:
        return "not run"
    threshold = 0 if strictly else -MARGIN
    if half is None or abs(gap - threshold) <= half:
        return "undecided"
    return "agrees" if gap > threshold else "disagrees"


def _compare(inequality: Inequality, rows: Mapping[str, results.Row], links: int) -> _Link:
    """One of so many links of a claim."""
    pair = [rows[name] for name in (inequality.higher, inequality.lower)]
    sides = [list(map(inequality.measure, row.results.values())) for row in pair]
    runs = (len(sides[0]), len(sides[1]))
    if any(row.failures for row in pair):
        return _Link(runs, "failed")
    known = [[value for value in side if value is not None] for side in sides]
    if known != sides:
        return _Link(runs, "not measurable")
    higher, lower = known
    gap, half = intervals.difference(higher, lower)
    _, wider = intervals.difference(higher, lower, level=1 - 0.05 / links)
    refutes = _verdict(gap, wider, inequality.strictly) == "disagrees"
    return _Link(runs, _verdict(gap, half, inequality.strictly), gap, half, refutes)


def judge(claim: Claim, rows: Mapping[str, results.Row]) -> tuple[str, list[_Link]]:
    """The verdict over a claim, and its links; rows are given by name."""
    links = [_compare(c, rows, len(claim.inequalities)) for c in claim.inequalities]
    verdicts = {link.verdict for link in links}
    if any(link.refutes for link in links):
        return "disagrees", links
    for reason in ("failed", "not run", "not measurable"):
        if reason in verdicts:
            return reason, links
    return "agrees" if verdicts == {"agrees"} else "undecided", links


def section(
    sweep: results.Sweep, stated: Sequence[Claim] = CLAIMS, note: str = NOTE
) -> table_lib.Section:
    """Claims in a table, each above the inequalities that it is made of, and how to read it."""
    rows = {row.name: row for row in sweep.rows}
    best = tuning.tune(sweep)
    tuned = {row.name: tuning.at_best(row, best.get(row.name)) for row in sweep.rows}
    tuning_head = ["each at its best"] if sweep.tune else []
    lines: list[list[str]] = []
    for number, claim in enumerate(stated, 1):
        found, links = judge(claim, rows)
        at_best = [judge(claim, tuned)[0]] if sweep.tune else []
        lines.append([f"{claim.text} [{number}]", "", "", found, *at_best, ""])
        for inequality, link in zip(claim.inequalities, links, strict=True):
            higher, lower = (rows[n].of("params") for n in (inequality.higher, inequality.lower))
            lines.append([
                f"· {inequality}",
                " and ".join(map(str, link.runs)),
                intervals.written(link.gap, link.half),
                link.verdict,
                *[""] * len(at_best),
                results.unequal(higher[0], lower[0]) if higher and lower else "",
            ])  # fmt: skip
    heads = ["claim", "runs", "difference", "verdict", *tuning_head, "parameters"]
    sources = "; ".join(f"[{number}] {claim.source}" for number, claim in enumerate(stated, 1))
    return table_lib.Section([tables.Printed(heads, lines, "Claims", f"{sources}.")], [note])
