"""Rows that take turns, so that what slows the machine for a while slows all alike."""

import contextlib
import dataclasses
import importlib.util
import logging
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmarks import worker

_log = logging.getLogger("transformer_jax.benchmark")

SECONDS_A_SAMPLE, FEWEST_STEPS = 4.0, 2
FEW_SECONDS, MANY_STEPS = 0.02, 50

# What is kept of a row, by name: what its contender says, and what follows from its times.
Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TimedRow:
    """What is to be timed."""

    name: str  # as tables show it
    where: str  # the function that makes its contender, as `worker.Worker` takes it
    options: Mapping[str, Any]  # its arguments
    says: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what that cannot say itself
    needs: str = "jax"  # a package that may be absent


def measure(
    name: str,
    rows: Sequence[TimedRow],
    peers: Sequence[str],
    repeats: int,
    sample_seconds: float = SECONDS_A_SAMPLE,
) -> list[Record]:
    """Times a workload's rows in turn, those that are installed: `sample_seconds` each a round."""
    timed: list[tuple[worker.Worker, int, Record]] = []
    with contextlib.ExitStack() as stack:
        for row in rows:
            if not importlib.util.find_spec(row.needs):
                _log.info("left out: %s: %s is not installed", row.name, row.needs)
                continue
            _log.info("%s: %s: starting", name, row.name)
            started = worker.Worker(row.where, row.options)
            stack.callback(started.close)
            seconds, _ = started.run(1)
            if seconds < FEW_SECONDS:  # one alone may have been read ahead, or not be timed well
                seconds = started.run(MANY_STEPS)[0] / MANY_STEPS
            dtype = row.options.get("dtype", "float32")
            about = {"workload": name, "row": row.name, "dtype": dtype, "seconds": []}
            steps = max(FEWEST_STEPS, round(sample_seconds / seconds))
            timed.append((started, steps, {**about, **row.says, **started.ready}))
        for done in range(1, repeats + 1):
            for started, steps, record in timed:
                started.run(1)  # not timed: what the system took from the idle process comes back
                seconds, record["peak_bytes"] = started.run(steps)
                record["seconds"].append(seconds / steps)
            _log.info("%s: %d of %d rounds timed", name, done, repeats)
    records = [record for _, _, record in timed]
    compare(records, peers)
    return records


def compare(records: Sequence[Record], peers: Sequence[str]) -> None:
    """Adds what follows from the times of rows that took turns.

    Those are medians; rates; ratios of rates by round, as (median, least, most), to the peer's, the
    first row that has one of the peers' names; and a training's share of the rate of a product of
    matrices of its type.
    """
    peer = next((one for one in records if one["row"] in peers), None)
    products = [one for one in records if "flops" in one and "positions" not in one]
    for one in records:
        one["median_seconds"] = statistics.median(one["seconds"])
        for measure in ("flops", "positions", "tokens", "sentences"):
            if measure in one:
                one[f"{measure}_per_second"] = one[measure] / one["median_seconds"]
    for one in records:
        ceiling = [each for each in products if each["dtype"] == one["dtype"]]
        if ceiling and "flops" in one and "positions" in one:
            one["share_of_ceiling"] = one["flops_per_second"] / ceiling[0]["flops_per_second"]
        # Both train, or neither does.
        if peer and peer is not one and ("flops" in one) == ("flops" in peer):
            for measure in ("positions", "tokens", "sentences"):
                if measure in one and measure in peer:
                    one[f"{measure}_ratio_to_{peer['row']}"] = ratios(one, peer, measure)
            if "translations" in one and "translations" in peer:
                pairs = list(zip(one["translations"], peer["translations"], strict=True))
                one["same_translations"] = statistics.mean(ours == other for ours, other in pairs)


def ratios(one: Record, other: Record, measure: str) -> tuple[float, float, float]:
    """Median, least and most of a row's speed over another's in the same round.

    Speed is how much of a measure of a step's work is done in a second.
    """
    found = [
        (one[measure] / seconds) / (other[measure] / others)
        for seconds, others in zip(one["seconds"], other["seconds"], strict=True)
    ]
    return statistics.median(found), min(found), max(found)
