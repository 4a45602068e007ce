"""Rows at their best over a tuned field: chosen on the development set, scored on the test set.

A value that is chosen by the sentences that it is then scored on looks better than it is, the more
so the more values there are. So a tuned sweep needs a test set (evaluation.score_test).
"""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.analysis import significance
from experiments.sweep import results
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.evaluation import bleu, measures

SETS = "chosen on the development set, scored on the test set"


@dataclasses.dataclass(frozen=True)
class Tried:
    """A row with one value of the tuned field."""

    value: Any
    row: results.Row
    counts: significance.Runs  # of the test set's sentences, by seed
    chosen_by: float  # the mean score on the development set
    score: float  # the mean score on the test set
    nats: float  # the mean loss of a token on the development set: ln PPL


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A row over the grid."""

    tried: Sequence[Tried]  # its values with results, the row's own first if it has any
    missing: Sequence[Any]  # values that have not failed, of which no run has left its sentences
    is_at_edge: bool = False  # whether the best value is the lowest or highest of several
    add: Any = None  # the value to try next, if there is one beyond that edge

    @property
    def best(self) -> Tried:
        """The value with the highest score on the development set."""
        return max(self.tried, key=lambda each: each.chosen_by)

    @property
    def worst(self) -> Tried:
        """The value with the lowest score on the development set."""
        return min(self.tried, key=lambda each: each.chosen_by)


def tune(sweep: results.Sweep, measure: str = bleu.MAIN) -> dict[str, Tuned]:
    """Each row over the tuned field; without those of which no run has left its sentences."""
    found: dict[str, Tuned] = {}
    for field, row in itertools.product(sweep.tune, sweep.rows):
        config = sweep.config(row)
        variants = {config_lib.get(config, field): row, **row.tuned}
        tried = [each for pair in variants.items() if (each := _tried(sweep, measure, *pair))]
        scored = {each.value for each in tried}
        missing = [v for v, each in variants.items() if v not in scored and not each.failures]
        if tried:
            found[row.name] = whole = Tuned(tried, missing)
            values, best = [*variants], whole.best
            if (
                best.chosen_by > whole.worst.chosen_by
                and not any(isinstance(each, str) for each in values)  # names have no order
                and best.value in (min(values), max(values))
            ):
                add = beyond(values, best.value)
                allowed = add if _is_allowed(config, field, add) else None
                found[row.name] = dataclasses.replace(whole, is_at_edge=True, add=allowed)
    return found


def _tried(sweep: results.Sweep, measure: str, value: Any, row: results.Row) -> Tried | None:
    dev, test = (results.counts(sweep, row, measure, of) for of in ("dev", "test"))
    if not dev or not test:
        return None
    score = measures.MEASURES[measure].from_counts
    chosen_by, scored = (
        statistics.fmean(score(run.sum(0)) for run in counts.values()) for counts in (dev, test)
    )
    nats = statistics.fmean(math.log(ppl) for ppl in row.of("ppl"))
    return Tried(value, row, test, chosen_by, scored, nats)


def beyond(values: Sequence[float], edge: float) -> float:
    """The number that goes on beyond one end of others, by ratio or step, as they go.

    They go by ratio where their ratios are more alike than their steps.
    """
    ordered = sorted(values, reverse=edge == min(values))
    pairs = list(itertools.pairwise(ordered))
    steps = [abs(later - earlier) for earlier, later in pairs]
    last, step = ordered[-1], ordered[-1] - ordered[-2]
    found = last + step
    if min(values) > 0:
        ratios = [max(pair) / min(pair) for pair in pairs]
        if max(ratios) / min(ratios) <= max(steps) / min(steps):
            found = last * last / ordered[-2]
    return round(found) if isinstance(edge, int) else float(f"{found:.6g}")


def _is_allowed(config: config_lib.Config, field: str, value: Any) -> bool:
    try:
        config_lib.replace(config, {field: value})
    except errors.UserError:
        return False
    return True


def at_best(row: results.Row, tuned: Tuned | None) -> results.Row:
    """Returns a row at its best, whose results have the test set's BLEU.

    Without `tuned`, its runs have no counts of sentences, and its results no BLEU.
    """
    best = tuned.best.row if tuned else row
    found: dict[int, Mapping[str, Any]] = {}
    for seed, result in best.results.items():
        scores = {}
        if tuned:
            score = bleu.from_counts(tuned.best.counts[seed].sum(0), bleu.MAIN)
            scores = {bleu.MAIN: {**result["bleu"][bleu.MAIN], "score": score}}
        found[seed] = {**result, "bleu": scores}
    return dataclasses.replace(best, results=found)
