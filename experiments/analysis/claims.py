"""What papers say of the variations, beside what the runs of a sweep say."""

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.analysis import significance, tuning
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu

MARGIN = 1.0  # BLEU by which a row may be lower and still count as no lower


def _lost_on_long(result: Mapping[str, Any]) -> float | None:
    """The percentage of the shortest sentences' BLEU that is lost on the longest.

    A percentage, since a model that is bad at all lengths has little BLEU to lose. Buckets of fewer
    than `bleu.FEWEST` sentences do not count.
    """
    buckets = [b for b in result["bleu_by_length"] if b["sentences"] >= bleu.FEWEST]
    if len(buckets) < 2 or not buckets[0]["score"]:
        return None
    return 100 * (1 - buckets[-1]["score"] / buckets[0]["score"])


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What rows are compared by: of a result (None: it has nothing to measure), and its label."""

    measure: Callable[[Mapping[str, Any]], float | None]
    label: str = ""


WHOLE = Quantity(lambda result: result["bleu"][bleu.MAIN]["score"] if result["bleu"] else None)
BEYOND_TRAINING = Quantity(  # of sentences whose source is longer than any that was trained on
    lambda result: (result["bleu_beyond_training"] or {}).get("score"), ", beyond training"
)
LOST_ON_LONG = Quantity(_lost_on_long, ", points lost on long")


@dataclasses.dataclass(frozen=True)
class Inequality:
    """That a quantity is higher in one row than in another, or, not `strictly`, no lower."""

    higher: str
    lower: str
    of: Quantity = WHOLE
    strictly: bool = True

    def __str__(self) -> str:
        sign = ">" if self.strictly else "≥"
        return f"{self.higher} {sign} {self.lower}{self.of.label}"


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
        [Inequality("J GRU", other, LOST_ON_LONG) for other in ("J GRU additive", "base")],
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
            Inequality(higher, lower, BEYOND_TRAINING, strictly=higher != "K ALiBi")
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
    "All rows have one recipe. With --tune, further verdicts compare each row at its best value, "
    "which is chosen on the development set and scored on the test set; BLEU by length stays that "
    "of the development set."
)
NOTE = (
    f"{VERDICTS} Lost on long sentences: by how many percent BLEU is lower in the longest bucket "
    f"of at least {bleu.FEWEST} sentences than in the shortest; differences in points. {RECIPES}"
)


@dataclasses.dataclass(frozen=True)
class _Link:
    """What the runs say of an inequality, and whether that refutes the whole claim."""

    runs: tuple[int, int]
    verdict: str
    difference: str = ""
    refutes: bool = False


def _compare(inequality: Inequality, rows: Mapping[str, results.Row], links: int) -> _Link:
    """One of so many links of a claim."""
    pair = [rows[name] for name in (inequality.higher, inequality.lower)]
    found = [[*map(inequality.of.measure, row.results.values())] for row in pair]
    sides = [[value for value in side if value is not None] for side in found]
    runs = (len(found[0]), len(found[1]))
    if any(row.failures for row in pair):
        return _Link(runs, "failed")
    if sides != found:
        return _Link(runs, "not measurable")
    if not all(sides):
        return _Link(runs, "not run")
    higher, lower = map(statistics.fmean, sides)
    gap = significance.estimated(higher - lower, 0.0, sides)
    beyond = gap.mean - (0 if inequality.strictly else -MARGIN)
    chance = gap.chance(abs(beyond)) if gap.half else 1.0  # one seed, or what does not vary
    verdict = "undecided"
    if chance < significance.LEVEL:
        verdict = "agrees" if beyond > 0 else "disagrees"
    refutes = verdict == "disagrees" and chance < significance.LEVEL / links
    return _Link(runs, verdict, tables.difference(gap.mean, gap.half or None), refutes)


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
                link.difference,
                link.verdict,
                *[""] * len(at_best),
                results.unequal(higher[0], lower[0]) if higher and lower else "",
            ])  # fmt: skip
    heads = ["claim", "runs", "difference", "verdict", *tuning_head, "parameters"]
    sources = "; ".join(f"[{number}] {claim.source}" for number, claim in enumerate(stated, 1))
    return table_lib.Section([tables.Printed(heads, lines, "Claims", f"{sources}.")], [note])
