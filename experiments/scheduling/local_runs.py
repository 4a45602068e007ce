"""Runs the runs of a sweep on this machine, and shows their progress on the terminal."""

import contextlib
import logging
import pathlib
import time
from collections.abc import Sequence

import rich.console
import rich.live

from experiments.results import frames, report
from experiments.scheduling import planning, progress
from experiments.sweep import table as table_lib
from launch import engine, local
from transformer_jax import errors, files
from transformer_jax.runs import run_folder
from transformer_jax.training import metrics

_log = logging.getLogger("transformer_jax.sweep")

REFUSED = 2  # exit code of a run that cannot start because of a mistake of the user
LOG_SECONDS = 20  # between lines of progress if the output is not a terminal
REFRESH_SECONDS = 2  # between updates of the table of progress on a terminal
# What runs import, except for the command itself.
IMPORTS = (
    "transformer_jax.flags",
    "transformer_jax.runs.training_run",
    "transformer_jax.training.tracking",
    "sacremoses",  # otherwise imported when a run is scored
)


def separate_failed(
    runs: Sequence[planning.PlannedRun],
) -> tuple[list[planning.PlannedRun], list[str]]:
    """Separates the runs to start from runs that failed when the sweep was started before.

    Runs that start from the weights of a failed run are separated too.

    Returns:
      The runs to start, and a message for each run that is not to be started.
    """
    failed: dict[str, str] = {}
    kept = []
    for planned in sorted(runs, key=lambda planned: planned.depth):
        if (planned.folder / "failure.json").exists():
            reason = run_folder.read_error(planned.folder)
        elif planned.source and planned.source.run.config_hash in failed:
            reason = f"it starts from the weights of {planned.source.name}, which failed"
        else:
            kept.append(planned)
            continue
        failed[planned.run.config_hash] = (
            f"{planned.name}: {reason} (not run again; --retry_failed does)"
        )
    return kept, list(failed.values())


def run(
    work: planning.Work, table: table_lib.Table, devices: local.Devices, more: Sequence[str]
) -> list[str]:
    """Runs all runs of a sweep on this machine.

    Args:
      work: the runs.
      table: the table of the sweep.
      devices: this machine's devices, shared among runs.
      more: further flags of transformer_jax.train.

    Returns:
      A message for each run that failed.
    """
    runs = {planned.name: planned for planned in work.runs}
    # The contents of failure.json before this start. A process that dies at once does not change
    # failure.json, so that it still describes the earlier failure.
    earlier = {name: _failure_of(planned) for name, planned in runs.items()}
    failed: list[str] = []
    finished = work.total - len(work.runs)
    shown_at = 0.0
    console = rich.console.Console(stderr=True)
    live = rich.live.Live(
        console=console, auto_refresh=False, transient=True, redirect_stdout=False
    )

    def announce(text: str) -> None:
        if console.is_terminal:
            console.print(text, markup=False, highlight=False)
        else:
            _log.info("%s", text)

    def on_end(job: engine.Job, code: int | None) -> None:
        nonlocal finished
        planned = runs[job.name]
        finished += 1
        start = f"{finished} of {work.total}   {planned.name}"
        if planned.is_finished:
            announce(f"{start}: {_describe_result(planned, table)}")
            if finished < work.total:  # otherwise the whole table follows
                _print_so_far(work.workdir, table, console)
        else:
            reason = _failure(planned, job, code, earlier[job.name])
            failed.append(f"{planned.name}: {reason}")
            announce(f"{start} {'NOT STARTED' if code is None else 'FAILED'}")

    def on_tick(running: Sequence[engine.Job]) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - shown_at < (REFRESH_SECONDS if console.is_terminal else LOG_SECONDS):
            return
        if console.is_terminal:
            current = progress.read(work.workdir, table.measure)
            name = frames.MEASURES[table.measure].name
            live.update(progress.fit(current, console.height, name), refresh=True)
        elif shown_at:
            states = [f"{job.name}: {_describe_progress(runs[job.name])}" for job in running]
            announce(f"{finished} of {work.total}   {'   '.join(states)}")
        shown_at = now

    with live if console.is_terminal else contextlib.nullcontext():
        local.run(work.local_jobs(*more), devices, on_end, on_tick, IMPORTS)
    return failed


def _failure_of(planned: planning.PlannedRun) -> bytes | None:
    path = planned.folder / "failure.json"
    return path.read_bytes() if path.exists() else None


def _failure(
    planned: planning.PlannedRun, job: engine.Job, code: int | None, earlier: bytes | None
) -> str:
    """Returns the reason for a run's failure, and writes failure.json if the run has not done so.

    failure.json is not written if the run was not started or exited with the code REFUSED, since
    another process may be training in the folder.

    Args:
      planned: the run.
      job: the job of the run.
      code: the exit code of the job; None if the job was not started.
      earlier: the contents of failure.json before the job was started.
    """
    if code is None:
        return f"not started, since {job.after}, whose weights it starts from, failed"
    if _failure_of(planned) not in (None, earlier):
        error = run_folder.read_error(planned.folder)
    else:
        error = f"exit code {code}: {last_error(job.log)}"
        if code != REFUSED:
            failure = {"error": error, "traceback": "", "step": None}
            files.write_json(planned.folder / "failure.json", failure)
    return f"{error} (see {job.log})"


def last_error(log: pathlib.Path) -> str:
    """Returns the last error message in a run's log, or the last line if there is no message."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = text.strip().splitlines()
    messages = [line for line in lines if line.startswith("error: ")]
    return (messages or lines or ["no output"])[-1]


def _print_so_far(
    workdir: pathlib.Path, table: table_lib.Table, console: rich.console.Console
) -> None:
    try:
        report.print_so_far(frames.load(workdir), table, console)
    except errors.UserError as error:  # the other runs continue; `report.write` raises it later
        _log.warning("%s", error)


def _describe_result(planned: planning.PlannedRun, table: table_lib.Table) -> str:
    record, _ = frames.read_result(planned.folder)
    score = ""
    if table.measure in record:
        score = f", {frames.MEASURES[table.measure].name} {record[table.measure]:.2f}"
    return f"ppl {record['ppl']:.3f}{score}, {metrics.duration(record['wall_seconds'])}"


def _describe_progress(planned: planning.PlannedRun) -> str:
    try:
        last = progress.last_metrics(planned.folder)
    except errors.UserError as error:  # the run itself will raise it; the other runs continue
        return str(error)
    if "loss" not in last:
        return "starting"
    if last["step"] >= planned.config.train.num_steps:
        return "evaluating"
    return f"step {last['step']:,} of {planned.config.train.num_steps:,}, loss {last['loss']:.2f}"
