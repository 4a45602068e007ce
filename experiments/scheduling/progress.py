"""The progress of a sweep's runs, which --status and the live display on the terminal show.

It is read from the files of the runs, and for submitted runs from the queue of the engine.
"""

import collections
import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import rich.box
import rich.console
import rich.markup
import rich.table
import rich.text

from experiments.results import frames
from experiments.sweep import store
from transformer_jax import errors, files
from transformer_jax.runs import run_folder
from transformer_jax.training import metrics

LOCKS = pathlib.Path("/proc/locks")  # Linux's list of held file locks
TAIL = 1 << 16  # bytes at the end of metrics.jsonl that are read
DONE, FAILED, LOST, RUNNING = "done", "failed", "lost", "running"
STOPPED, WAITING = "stopped", "waiting"
OTHER_LINES = 6  # lines of a terminal for the summary, and the table's head and margins


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
      row: the row.
      seed: the seed.
      state: "done", "failed", "running", "stopped", "waiting", or a state that an engine reports. A
        run is running if a process of this machine holds the lock of its folder. A run is stopped
        if it has started but is not running on this machine.
      num_steps: the number of training steps in all.
      reason: the reason why a run failed or was lost, in one line; otherwise "".
      step: the last logged step; 0 if none was logged.
      loss: the mean loss at the last logged step, in nats per token.
      dev_ppl: the last perplexity on the development set.
      tokens_per_second: the target tokens per second at the last logged step.
      seconds_left: the seconds until the end of training, at the speed of the last logged step;
        None unless the run is running.
      score: BLEU or F1 on the development set; None unless the run is done.
    """

    row: str
    seed: int
    state: str
    num_steps: int
    reason: str = ""
    step: int = 0
    loss: float | None = None
    dev_ppl: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    score: float | None = None


def read(
    workdir: pathlib.Path, measure: str, engine_states: Mapping[str, str] | None = None
) -> list[Progress]:
    """Returns the progress of all runs of a sweep, in the order of its table.

    Args:
      workdir: the sweep's folder.
      measure: the score of finished runs, "bleu" or "f1".
      engine_states: states of submitted runs by config_hash; see `submissions.states`.

    Raises:
      UserError: the folder holds no sweep, or a damaged description.
    """
    description = store.read(workdir)
    locked = _locked_files()
    engine_states = engine_states or {}
    reused = [frames.load(pathlib.Path(folder)) for folder in description.reuse]
    progress = []
    for run in description.runs:
        folder = store.locate(workdir, run)
        num_steps = description.config(run.row).train.num_steps
        reused_from = [sweep.runs for sweep in reused if run.config_hash in sweep.folders]
        try:
            if reused_from and not (folder / "result.json").exists():
                is_run = reused_from[0]["config_hash"] == run.config_hash
                line = reused_from[0].loc[is_run].iloc[0]
                state = DONE
                values = _of_result(line.dropna().to_dict(), measure)
            else:
                state = _state(folder, locked)
                values = _of_files(folder, state, num_steps, measure)
            current = Progress(run.row, run.seed, state, num_steps, **values)
        except errors.UserError as error:  # a damaged file of one run
            current = Progress(run.row, run.seed, FAILED, num_steps, reason=str(error))
        if run.config_hash in engine_states and current.state not in (DONE, RUNNING):
            state, _, reason = engine_states[run.config_hash].partition(": ")
            # The job of a failed run has left the queue: the run stays failed.
            if (current.state, state) != (FAILED, LOST):
                current = dataclasses.replace(current, state=state, reason=reason)
        progress.append(current)
    return progress


def summary(runs: Sequence[Progress]) -> str:
    """Returns a text with the number of runs in each state, such as "2 runs: 1 done, 1 running"."""
    numbers = collections.Counter(run.state for run in runs)
    order = [DONE, RUNNING, FAILED, WAITING]
    order += sorted(numbers.keys() - set(order))
    total = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{total}: {', '.join(f'{numbers[state]} {state}' for state in order)}"


def table(runs: Sequence[Progress], measure_name: str) -> rich.table.Table:
    """Returns a table of the progress of runs for the terminal; `measure_name` is BLEU or F1."""
    shown = rich.table.Table(box=rich.box.SIMPLE, pad_edge=False)
    for head in (
        "row",
        "seed",
        "state",
        "step",
        "loss",
        "dev PPL",
        measure_name,
        "tokens/s",
        "left",
    ):
        shown.add_column(head, justify="left" if head in ("row", "state") else "right")
    for run in runs:
        state = f"{run.state}: {run.reason}" if run.reason else run.state
        left = "" if run.seconds_left is None else metrics.duration(run.seconds_left)
        cells = [
            run.row,
            str(run.seed),
            state,
            f"{run.step:,} of {run.num_steps:,}",
            _format(run.loss, ".3f"),
            _format(run.dev_ppl, ".3f"),
            _format(run.score, ".2f"),
            _format(run.tokens_per_second, ",.0f"),
            left,
        ]
        shown.add_row(*map(rich.markup.escape, cells))
    return shown


def _format(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def show(runs: Sequence[Progress], measure_name: str) -> None:
    """Prints a table of the progress of runs, and the number of runs in each state."""
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=160)
    console.print(table(runs, measure_name))
    console.print(summary(runs), highlight=False)


def fit(runs: Sequence[Progress], height: int, measure_name: str) -> rich.console.Group:
    """Returns the summary of all runs, and a table with as many runs as fit on `height` lines."""
    shown = select(runs, height - OTHER_LINES)
    return rich.console.Group(rich.text.Text(summary(runs)), table(shown, measure_name))


def select(runs: Sequence[Progress], number: int) -> list[Progress]:
    """Returns at most `number` runs. Done runs are left out first, and then waiting runs."""
    rank = {WAITING: 1, DONE: 2}
    places = sorted(range(len(runs)), key=lambda place: rank.get(runs[place].state, 0))
    return [runs[place] for place in sorted(places[: max(number, 0)])]


def _locked_files() -> set[tuple[int, int]]:
    """Returns the device and inode of each file that a process of this machine has locked.

    Locks are read from `LOCKS`, which other systems than Linux do not have.
    """
    # Trying to take a lock would show whether it is held, but a run that starts at the same moment
    # would then fail.
    found: set[tuple[int, int]] = set()
    if LOCKS.exists():
        # A line is "1: FLOCK  ADVISORY  WRITE 32214 fe:00:3746053 0 EOF". The line of a process
        # that waits for a lock has "->" before FLOCK and does not match.
        pattern = r"\d+: FLOCK .* ([0-9a-f]+):([0-9a-f]+):(\d+) \S+ \S+"
        for major, minor, inode in re.findall(pattern, LOCKS.read_text(encoding="ascii")):
            found.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return found


def _state(folder: pathlib.Path, locked: set[tuple[int, int]]) -> str:
    if (folder / "result.json").exists():
        return DONE
    ended = FAILED if (folder / "failure.json").exists() else None
    try:
        lock = (folder / ".lock").stat()
    except FileNotFoundError:
        return ended or WAITING
    if (lock.st_dev, lock.st_ino) in locked:
        return RUNNING
    return ended or STOPPED


def _of_files(folder: pathlib.Path, state: str, num_steps: int, measure: str) -> dict[str, Any]:
    """Returns the fields of `Progress` that a run's files hold."""
    last = last_metrics(folder)
    names = ("step", "loss", "dev_ppl", "tokens_per_second")
    values: dict[str, Any] = {name: last[name] for name in names if name in last}
    if state == FAILED:
        values["reason"] = run_folder.read_error(folder)
    if state == RUNNING and "seconds_per_step" in last:
        values["seconds_left"] = (num_steps - last["step"]) * last["seconds_per_step"]
    if state == DONE:
        values |= _of_result(frames.read_result(folder)[0], measure)
    return values


def _of_result(record: Mapping[Any, Any], measure: str) -> dict[str, Any]:
    return {"dev_ppl": record["ppl"], "score": record.get(measure), "step": record.get("steps", 0)}


def last_metrics(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the last value of each metric in the last `TAIL` bytes of metrics.jsonl."""
    path = folder / "metrics.jsonl"
    content = path.read_bytes() if path.exists() else b""
    lines = content[-TAIL:].split(b"\n")[:-1]  # the last line may be half written
    if len(content) > TAIL:
        lines = lines[1:]  # the first line may be cut off
    found: dict[str, Any] = {}
    for line in reversed(lines):
        if {"loss", "dev_ppl"} <= found.keys():
            break
        try:
            record = files.parse_json(line, metrics.RECORD)
        except ValueError as error:
            raise errors.UserError(
                f"{path} is damaged ({error}): delete its line "
                f"{line[:40].decode(errors='replace')}…"
            ) from error
        found = {**record, **found}
    return found
