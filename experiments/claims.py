"""What papers say of the variations, beside what the runs of a sweep say."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments import intervals, results
from transformer_jax.evaluation import bleu

Measure = Callable[[Mapping[str, Any]], float | None]  # None: the result has nothing to measure


def whole(result: Mapping[str, Any]) -> float:
    """BLEU of the development set."""
    return result["bleu"][bleu.MAIN]["score"]


def beyond_training(result: Mapping[str, Any]) -> float | None:
    """BLEU of the sentences whose source is longer than any that was trained on."""
    beyond = result["bleu_beyond_training"]
    return beyond["score"] if beyond else None


def lost_on_long(result: Mapping[str, Any]) -> float | None:
    """The percentage of the shortest sentences' BLEU that is lost on the longest.

    A percentage, since a model that is bad at all lengths has little BLEU to lose.
    """
    scores = [bucket["score"] for bucket in result["bleu_by_length"]]
    return 100 * (1 - scores[-1] / scores[0]) if len(scores) > 1 and scores[0] else None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """That a measure is higher in one row than in another, or, not `strictly`, no lower."""

    higher: str
    lower: str
    measure: Measure = whole
    strictly: bool = True

    @property
    def text(self) -> str:
        """For the table."""
        return f"{self.higher} {'>' if self.strictly else '≥'} {self.lower}"


@dataclasses.dataclass(frozen=True)
class Claim:
    """A published claim: all of its comparisons hold."""

    text: str
    source: str
    comparisons: Sequence[Comparison]


_POSITIONS = ("K ALiBi", "K T5 bias", "K rotary", "K sinusoidal", "K learned")
CLAIMS = (
    Claim(
        "no positions hurts",
        "Vaswani et al. 2017, section 3.5",
        [Comparison("base", "F none")],
    ),
    Claim(
        "attention helps a recurrent model",
        "Bahdanau et al. 2015",
        [Comparison("J GRU additive", "J GRU")],
    ),
    Claim(
        "a recurrent model without attention loses most on long sentences",
        "Bahdanau et al. 2015; of the Transformer, Vaswani et al. 2017",
        [
            Comparison("J GRU", "J GRU additive", lost_on_long),
            Comparison("J GRU", "base", lost_on_long),
        ],
    ),
    Claim(
        "the Transformer translates better than a recurrent model with attention",
        "Vaswani et al. 2017, Table 2",
        [Comparison("base", "J GRU additive")],
    ),
    Claim(
        "beyond the trained length ALiBi ≥ T5 bias > rotary > sinusoidal > learned",
        "Press et al. 2022",
        [
            Comparison(higher, lower, beyond_training, strictly=higher != "K ALiBi")
            for higher, lower in itertools.pairwise(_POSITIONS)
        ],
    ),
)
COMPARED = {row for claim in CLAIMS for c in claim.comparisons for row in (c.higher, c.lower)}


def verdict(gap: float | None, half: float | None, strictly: bool = True) -> str:
    """What a difference and half its interval say of the claim that it is above 0, or not below."""
    if gap is None:
        return "not run"
    if half is None:
        return "undecided"
    if gap + half < 0:
        return "disagrees"
    return "agrees" if gap - half > 0 or not strictly else "undecided"


def judge(claim: Claim, sweep: results.Sweep) -> tuple[str, list[list[str]]]:
    """The verdict over a claim; each comparison's text, runs a side, difference and verdict."""
    rows = {row.name: row for row in sweep.rows}
    parts = []
    for comparison in claim.comparisons:
        sides = [
            [v for v in map(comparison.measure, rows[name].results.values()) if v is not None]
            for name in (comparison.higher, comparison.lower)
        ]
        gap, half = intervals.difference(*sides)
        runs = " and ".join(str(len(side)) for side in sides)
        found = verdict(gap, half, comparison.strictly)
        parts.append([comparison.text, runs, intervals.written(gap, half), found])
    verdicts = [part[-1] for part in parts]
    for decisive in ("disagrees", "not run", "undecided"):
        if decisive in verdicts:
            return decisive, parts
    return "agrees", parts


def table(sweep: results.Sweep) -> list[list[str]]:
    """The claims as lines of a table, heads first."""
    lines = [["claim", "source", "verdict", "comparison", "runs", "difference", "by itself"]]
    for claim in CLAIMS:
        found, parts = judge(claim, sweep)
        start = [claim.text, claim.source, found]
        for part in parts:
            lines.append([*start, *part])
            start = [""] * 3
    return lines
