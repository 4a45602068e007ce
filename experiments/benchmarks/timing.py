"""Rows that take turns, so that what slows the machine for a while slows all alike."""

import dataclasses
import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.benchmarks import speed_tables, worker

_log = logging.getLogger("transformer_jax.benchmark")

SECONDS_A_SAMPLE, FEWEST_STEPS = 4.0, 2
FEW_SECONDS, MANY_STEPS = 0.02, 50


@dataclasses.dataclass(frozen=True)
class Contender:
    """A row of the table.

    Attributes:
      name: as the table shows it.
      where: its class.
      options: its arguments.
      needs: a package that may be absent.
      shown: whether it has a line of its own, rather than being there to compare with.
    """

    name: str
    where: str
    options: Mapping[str, Any]
    needs: str = "jax"
    shown: bool = True


def measure(
    name: str,
    contenders: Sequence[Contender],
    repeats: int,
    work_of: Callable[[Contender, worker.Worker], speed_tables.StepWork],
    group: int = 0,
    sample_seconds: float = SECONDS_A_SAMPLE,
) -> list[speed_tables.SpeedRow]:
    """Times all contenders that are there in turn.

    Args:
      name: the workload's.
      contenders: rows to be.
      repeats: rounds.
      work_of: what one step of a contender does.
      group: tells these rows from others of the workload, with which they take no turns.
      sample_seconds: that a contender works in each round.
    """
    present: list[Contender] = []
    for contender in contenders:
        if importlib.util.find_spec(contender.needs):
            present.append(contender)
        else:
            _log.info("left out: %s: %s is not installed", contender.name, contender.needs)
    workers: list[tuple[worker.Worker, int]] = []
    try:
        for contender in present:
            _log.info("%s: %s: starting", name, contender.name)
            started = worker.Worker(contender.where, contender.options)
            seconds, _ = started.run(1)
            if seconds < FEW_SECONDS:  # one alone may have been read ahead, or not be timed well
                seconds = started.run(MANY_STEPS)[0] / MANY_STEPS
            workers.append((started, max(FEWEST_STEPS, round(sample_seconds / seconds))))
        samples: list[list[float]] = [[] for _ in workers]
        peaks = [0] * len(workers)
        for done in range(1, repeats + 1):
            for i, (each, steps) in enumerate(workers):
                each.run(1)  # not timed: what the system took from the idle process comes back
                seconds, peaks[i] = each.run(steps)
                samples[i].append(seconds / steps)
            _log.info("%s: %d of %d rounds timed", name, done, repeats)
        return [
            speed_tables.SpeedRow(
                workload=name,
                name=contender.name,
                dtype=contender.options.get("dtype", "float32"),
                seconds=seconds,
                work=work_of(contender, each),
                compile_seconds=each.compile_seconds,
                first_step_seconds=each.first_step_seconds,
                peak_bytes=peak,
                predicted_bytes=each.ready.get("predicted_bytes", 0),
                translations=each.ready.get("translations", ()),
                group=group,
                shown=contender.shown,
            )
            for contender, (each, _), seconds, peak in zip(
                present, workers, samples, peaks, strict=True
            )
        ]
    finally:
        for each, _ in workers:
            each.close()
