"""The pieces that are measured on a lent machine."""

import dataclasses
import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.benchmarks import timing, worker
from transformer_jax import config as config_lib

DTYPE = "bfloat16"
CEILING = timing.TimedRow("product", "ours:ceiling", {"dtype": DTYPE})


@dataclasses.dataclass
class Piece:
    """What is measured.

    Attributes:
      asked: all that its result depends on besides code and machine; what was asked otherwise is
        measured anew.
      measure: what is recorded, from its name.
    """

    asked: Any
    measure: Callable[[str], Mapping[str, Any]]


def timed(rows: Sequence[timing.TimedRow], repeats: int, seconds: float) -> Piece:
    """Rows that take turns; others are compared with the first that is not the ceiling."""
    first = next((row for row in rows if row is not CEILING), CEILING)

    def measure(name: str) -> Mapping[str, Any]:
        records = timing.measure(name, rows, [first.name], repeats, seconds)
        (base,) = (one for one in records if one["row"] == first.name)
        for one in records:
            pairs = zip(one["seconds"], base["seconds"], strict=True)
            one["seconds_ratio"] = statistics.median(own / others for own, others in pairs)
        return {"machine": base["machine"], "rows": records}

    return Piece([[row.where, row.options] for row in rows], measure)


def stated(row: timing.TimedRow) -> Piece:
    """What a contender finds before it is timed."""

    def measure(name: str) -> Mapping[str, Any]:
        started = worker.Worker(row.where, row.options)
        started.close()
        return {"machine": started.ready.pop("machine"), "facts": started.ready}

    return Piece([row.where, row.options], measure)


def all_pieces(
    base: config_lib.Config,
    big: config_lib.Config,
    sentences: Sequence[int],
    repeats: int,
    seconds: float,
) -> dict[str, Piece]:
    """Everything, by name: of base and big, and of so many sentences that base translates at once.

    Each row works for so many seconds in each of the rounds.
    """

    def row(name: str, where: str, config: config_lib.Config, **options: Any) -> timing.TimedRow:
        options |= {"config": config_lib.to_dict(config), "dtype": DTYPE}
        return timing.TimedRow(name, f"made_up:{where}", options)

    in_turn = functools.partial(timed, repeats=repeats, seconds=seconds)
    found = {"ceiling": in_turn([CEILING])}
    paper = {"base": base, "big": big}
    for name, config in paper.items():
        found[name] = in_turn([CEILING, row(name, "training", config, kernel="plain")])
    for name, config in paper.items():
        kernels = [row(kernel, "training", config, kernel=kernel) for kernel in ("plain", "fused")]
        found[f"{name}-fused"] = in_turn([CEILING, *kernels])
    found["agreement"] = stated(row("agreement", "agreement", base, kernel="fused"))
    for number in sentences:
        search = row(f"{number} sentences", "search", base, sentences=number)
        found[f"decoding-{number}"] = in_turn([search])
    return found
