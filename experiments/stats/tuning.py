"""Rows at their best value of a tuned field: chosen on the development set, scored on the test set.

Scores on the sentences by which a value was chosen overestimate it, the more so the more values
were tried. A sweep with --tune therefore needs a test set (`evaluation.score_test`).
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
    """A row with one value of the tuned field.

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
    """A row with all values of the tuned field.

    Attributes:
      tried: the values with results, the row's own first.
      missing: the values without results that have not failed.
      is_at_edge: whether the best value is the lowest or highest of several.
      next_value: the value to try next beyond that edge, if there is one.
    """

    tried: Sequence[Tried]
    missing: Sequence[Any]
    is_at_edge: bool = False
    next_value: Any = None

    @property
    def best(self) -> Tried:
        """The value with the highest score on the development set."""
        return max(self.tried, key=lambda each: each.dev_score)

    @property
    def worst(self) -> Tried:
        """The value with the lowest score on the development set."""
        return min(self.tried, key=lambda each: each.dev_score)


def tune(sweep: frames.Sweep, measure: str) -> dict[str, Tuned]:
    """Returns the results of each row with the values of the tuned field.

    A row without any value that was scored on both sets is left out.
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
    """Returns the number that continues a grid beyond `edge`, its lowest or highest value.

    The last ratio is repeated if the grid's ratios vary less than its steps, else the last step.
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
