"""Runs the cells of a sweep on this machine, and says how they get on."""

import contextlib
import logging
import pathlib
import sys
import time
from collections.abc import Sequence

import rich.console
import rich.live

from experiments.reporting import comparison_table
from experiments.sweep import cells as cells_lib
from experiments.sweep import progress, results
from experiments.sweep import table as table_lib
from launch import engine, local
from transformer_jax import errors
from transformer_jax.drawing import tables
from transformer_jax.evaluation import measures
from transformer_jax.runs import run_folder
from transformer_jax.training import metrics

_log = logging.getLogger("transformer_jax.sweep")

SECONDS_BETWEEN_LINES = 20  # where the output is no terminal
SECONDS_BETWEEN_LOOKS = 2  # where it is one


def run(work: cells_lib.Work, devices: local.Devices, more: Sequence[str]) -> list[str]:
    """Runs all cells, with more flags for each; returns a line for each that failed."""
    by_name = {cell.name: cell for cell in work.cells}
    measure = table_lib.of_corpus(work.table, work.cells[0].config).compared_by
    failed: list[str] = []
    begun: set[pathlib.Path] = set()
    ended = work.total - len(work.cells)
    last = 0.0
    console = rich.console.Console(stderr=True)
    live = rich.live.Live(
        console=console, auto_refresh=False, transient=True, redirect_stdout=False
    )

    def say(text: str) -> None:
        if console.is_terminal:
            console.print(text, markup=False, highlight=False)
        else:
            _log.info("%s", text)

    def on_end(job: engine.Job, code: int) -> None:
        nonlocal ended
        cell = by_name[job.name]
        ended += 1
        how = f"{ended} of {work.total}   {cell.name}"
        if (cell.folder / "result.json").exists():
            say(f"{how}: {_result(cell, measure)}")
            if ended < work.total:  # else the whole table comes next
                _show_so_far(work.workdir, console)
        else:
            failed.append(f"{cell.name}: {cells_lib.failure(cell, job, code)}")
            say(f"{how} FAILED")

    def on_tick(running: Sequence[engine.Job]) -> None:
        nonlocal last
        begun.update(by_name[job.name].folder for job in running)
        now = time.monotonic()
        if now - last < (SECONDS_BETWEEN_LOOKS if console.is_terminal else SECONDS_BETWEEN_LINES):
            return
        if console.is_terminal:
            shown = progress.rendered(progress.read(work.workdir), console.height)
            live.update(shown, refresh=True)
        elif last:  # at the start there is nothing to say
            states = [f"{job.name}: {_state(by_name[job.name])}" for job in running]
            say(f"{ended} of {work.total}   {'   '.join(states)}")
        last = now

    paths = [cell.folder / "failure.json" for cell in work.cells]
    before = cells_lib.without_failures(paths, begun)
    with before, live if console.is_terminal else contextlib.nullcontext():
        local.run(work.jobs(*more), devices, on_end, on_tick)
    return failed


def _show_so_far(workdir: pathlib.Path, console: rich.console.Console) -> None:
    """Prints the rows that have results, above the live view if that is on the same terminal."""
    try:
        found = comparison_table.so_far(results.read(workdir))
    except errors.UserError as error:  # which the report ends with; the runs go on
        _log.warning("%s", error)
        return
    if console.is_terminal and sys.stdout.isatty():
        console.print(found)
    else:
        tables.show([found], [])
        sys.stdout.flush()  # whoever reads a log wants to see it now


def _result(cell: cells_lib.Cell, measure: measures.Measure) -> str:
    result = run_folder.read_result(cell.folder)
    score = f", {measure.name} {measure.of_result(result):.2f}" if result["bleu"] else ""
    return f"ppl {result['ppl']:.3f}{score}, {metrics.duration(result['wall_seconds'])}"


def _state(cell: cells_lib.Cell) -> str:
    steps = cell.config.train.num_steps
    try:
        records = metrics.read(cell.folder)
    except errors.UserError as error:  # which the run itself ends with; the others go on
        return str(error)
    last = next((record for record in reversed(records) if "loss" in record), None)
    if last is None:
        return "starting"
    if last["step"] >= steps:
        return "evaluating"
    return f"step {last['step']:,} of {steps:,}, loss {last['loss']:.2f}"
