"""What papers say of the variations, beside what the runs of a sweep say."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments import intervals, results
from transformer_jax.evaluation import bleu

Measure = Callable[[Mapping[str, Any]], float]


def whole(result: Mapping[str, Any]) -> float:
    """BLEU of the development set."""
    return result["bleu"][bleu.MAIN]["score"]


def beyond_training(result: Mapping[str, Any]) -> float:
    """BLEU of the sentences whose source is longer than any that was trained on."""
    return result["bleu_beyond_training"]["score"]


def lost_on_long(result: Mapping[str, Any]) -> float:
    """BLEU of the shortest sentences minus BLEU of the longest."""
    buckets = result["bleu_by_length"]
    return buckets[0]["score"] - buckets[-1]["score"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """That a measure is higher in one row than in another."""

    higher: str
    lower: str
    measure: Measure = whole


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
        "Bahdanau et al. 2015",
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
            Comparison(higher, lower, beyond_training)
            for higher, lower in itertools.pairwise(_POSITIONS)
        ],
    ),
)
COMPARED = {row for claim in CLAIMS for c in claim.comparisons for row in (c.higher, c.lower)}


def verdict(gap: float | None, half: float | None) -> str:
    """What a difference says of the claim that it is above 0."""
    if gap is None:
        return "not run"
    if half is None or abs(gap) <= half:
        return "undecided"
    return "agrees" if gap > 0 else "disagrees"


def judge(claim: Claim, sweep: results.Sweep) -> tuple[str, list[tuple[str, str]]]:
    """The verdict over a claim, and each comparison's difference and verdict."""
    rows = {row.name: row for row in sweep.rows}
    parts = []
    for comparison in claim.comparisons:
        sides = [
            [comparison.measure(result) for result in rows[name].results.values()]
            for name in (comparison.higher, comparison.lower)
        ]
        gap, half = intervals.difference(*sides)
        parts.append((intervals.written(gap, half), verdict(gap, half)))
    verdicts = [part for _, part in parts]
    for decisive in ("disagrees", "not run", "undecided"):
        if decisive in verdicts:
            return decisive, parts
    return "agrees", parts


def table(sweep: results.Sweep) -> list[list[str]]:
    """The claims as lines of a table, heads first."""
    lines = [["claim", "source", "verdict", "comparison", "difference", "by itself"]]
    for claim in CLAIMS:
        found, parts = judge(claim, sweep)
        start = [claim.text, claim.source, found]
        for comparison, part in zip(claim.comparisons, parts, strict=True):
            lines.append([*start, f"{comparison.higher} > {comparison.lower}", *part])
            start = [""] * 3
    return lines
