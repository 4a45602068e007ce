"""The results of --tune: the best value of the tuned field for each row.

The best value is chosen by the score on the development set, and reported with the score on the
test set. The score on the development set would be too high, since it was used for the choice. A
sweep with --tune therefore needs a test set (`evaluation.score_test`).
"""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

from experiments.results import frames
from transformer_jax import config as config_lib
from transformer_jax import errors


@dataclasses.dataclass(frozen=True)
class Tried:
    """The results of a row with one value of the tuned field.

    Attributes:
      value: the value.
      name: the name of the row's variant with this value; see `store.Description.variants`.
      dev_score: the mean score on the development set, by which a value is chosen.
      score: the mean score on the test set.
      nats: the mean loss of a token on the development set, ln PPL.
    """

    value: Any
    name: str
    dev_score: float
    score: float
    nats: float


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The results of a row with all values of the tuned field.

    Attributes:
      tried: the results of the values that have been run, the value of the row itself first.
      missing: the values that have neither a result nor a failed run.
      is_at_edge: True if the best value is the lowest or the highest value.
      next_value: the value to try next if the best value is at an edge; None if no further value is
        possible.
    """

    tried: Sequence[Tried]
    missing: Sequence[Any]
    is_at_edge: bool = False
    next_value: Any = None

    @property
    def best(self) -> Tried:
        """The result with the highest score on the development set."""
        return max(self.tried, key=lambda each: each.dev_score)

    @property
    def worst(self) -> Tried:
        """The result with the lowest score on the development set."""
        return min(self.tried, key=lambda each: each.dev_score)


def tune(sweep: frames.Sweep, measure: str) -> dict[str, Tuned]:
    """Returns the results of each row with the values of the field of --tune.

    A row is left out if none of its values was scored on both the development and the test set.

    Args:
      sweep: the results.
      measure: "bleu" or "f1".
    """
    tuned: dict[str, Tuned] = {}
    failed = set(sweep.failures["row"])
    for field, row in itertools.product(sweep.description.tune, sweep.description.rows):
        variants = sweep.description.variants(row)
        tried, missing = [], []
        for value, name in variants.items():
            result = _try(sweep, measure, value, name)
            if result:
                tried.append(result)
            elif name not in failed:
                missing.append(value)
        if not tried:
            continue
        whole = Tuned(tried, missing)
        if _is_at_edge(whole, list(variants)):
            value = beyond(list(variants), whole.best.value)
            allowed = value if _is_allowed(sweep.description.config(row), field, value) else None
            whole = dataclasses.replace(whole, is_at_edge=True, next_value=allowed)
        tuned[row] = whole
    return tuned


def _try(sweep: frames.Sweep, measure: str, value: Any, name: str) -> Tried | None:
    if not all(sweep.counts(name, measure, split) for split in frames.SPLITS):
        return None
    dev_score, score = (
        statistics.fmean(sweep.values(name, prefix + measure)) for prefix in frames.SPLITS.values()
    )
    nats = statistics.fmean(math.log(ppl) for ppl in sweep.values(name, "ppl"))
    return Tried(value, name, dev_score, score, nats)


def _is_at_edge(tuned: Tuned, values: Sequence[Any]) -> bool:
    if any(isinstance(value, str) for value in values):  # names have no order
        return False
    is_best = tuned.best.dev_score > tuned.worst.dev_score
    return is_best and tuned.best.value in (min(values), max(values))


def beyond(values: Sequence[float], edge: float) -> float:
    """Returns the number that continues a grid beyond its lowest or highest value.

    For example, the grid 0.5, 1, 2 is continued by 4, and the grid 1, 2, 3 by 4. The last ratio of
    neighbouring values is repeated if the ratios vary less than the steps between values. Otherwise
    the last step is repeated.

    Args:
      values: the grid.
      edge: the lowest or the highest value of the grid.
    """
    ordered = sorted(values, reverse=edge == min(values))
    pairs = list(itertools.pairwise(ordered))
    steps = [abs(later - earlier) for earlier, later in pairs]
    last, step = ordered[-1], ordered[-1] - ordered[-2]
    following = last + step
    if min(values) > 0:
        ratios = [max(pair) / min(pair) for pair in pairs]
        if max(ratios) / min(ratios) <= max(steps) / min(steps):
            following = last * last / ordered[-2]
    return round(following) if isinstance(edge, int) else float(f"{following:.6g}")


def _is_allowed(config: config_lib.Config, field: str, value: Any) -> bool:
    try:
        config_lib.replace(config, {field: value})
    except errors.UserError:
        return False
    return True
