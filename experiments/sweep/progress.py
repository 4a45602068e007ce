"""How far each run of a sweep is, from the files on disk alone."""

import collections
import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import rich.console
import rich.text

from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.drawing import tables
from transformer_jax.evaluation import measures
from transformer_jax.runs import run_folder
from transformer_jax.training import metrics

LOCKS = pathlib.Path("/proc/locks")  # Linux's list of all that are held
TAIL = 1 << 16  # bytes of metrics.jsonl that are looked at: some hundred lines
DONE, FAILED, LOST, RUNNING = "done", "failed", "lost", "running"
STOPPED, WAITING = "stopped", "waiting"
LINES_BESIDE = 6  # of a terminal, for the head, the summary and margins


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where a run is."""

    row: str
    seed: int
    # done; failed; running: a process of this machine is at work in its folder; stopped: it has
    # begun, and nobody is seen at work; waiting; or what an engine calls it.
    state: str
    steps: int  # of the whole training
    reason: str = ""  # why it failed or is lost, in one line
    step: int = 0  # the last logged, or 0
    loss: float | None = None  # of the steps up to there, in nats a token
    dev_ppl: float | None = None  # on the development set: the last logged, or the result's
    tokens_per_second: float | None = None  # target tokens, of late
    seconds_left: float | None = None  # of training, at that speed, if it is running
    score: float | None = None  # on the development set, by what the sweep's rows are compared by
    scored_by: str = "BLEU"  # what that is, "BLEU" or "F1"


def read(
    workdir: pathlib.Path, engine: Mapping[tuple[str, int], str] | None = None
) -> list[Standing]:
    """Where all runs of a sweep are, in the order of its table.

    An engine's queue says of runs, by row and seed, a state, or a state and why ("lost: the node is
    down"): it holds for those that have no result and no failure. Raises UserError if the folder
    holds no sweep, or a damaged one.
    """
    locked, engine = _locked(), engine or {}
    record, base, rows = results.described(workdir)
    measure = table_lib.of_corpus(record["table"], base).compared_by
    cells: list[Standing] = []
    for row, changes in [each for variants in rows.values() for each in variants.items()]:
        if "seeds" in record:
            seeds = range(record["seeds"].get(row, 0))
        else:  # of an earlier version: those that have begun
            seeds = [seed for seed, _ in results.seed_folders(workdir, row)]
        steps = config_lib.replace(base, changes).train.num_steps
        for seed in seeds:
            folder = results.cell_folder(workdir, row, seed)
            try:
                state = _state(folder, locked)
                known = _known(folder, state, steps, measure)
                cell = Standing(row, seed, state, steps, scored_by=measure.name, **known)
            except errors.UserError as error:  # of one run, which is its own to end with
                cell = Standing(row, seed, FAILED, steps, str(error), scored_by=measure.name)
            if cell.state not in (DONE, FAILED) and (row, seed) in engine:
                state, _, reason = engine[row, seed].partition(": ")
                if (cell.state, state) != (RUNNING, LOST):  # what runs here is not lost
                    cell = dataclasses.replace(cell, state=state, reason=reason)
            cells.append(cell)
    return cells


def summary(cells: Sequence[Standing]) -> str:
    """How many runs there are in each state: "3 runs: 1 done, 1 running, 0 failed, 1 waiting"."""
    found = collections.Counter(cell.state for cell in cells)
    order = [DONE, RUNNING, FAILED, WAITING]
    order += sorted(found.keys() - set(order))
    runs = "1 run" if len(cells) == 1 else f"{len(cells)} runs"
    return f"{runs}: {', '.join(f'{found[state]} {state}' for state in order)}"


def table(cells: Sequence[Standing]) -> tables.Printed:
    """Runs as people read them."""

    def written(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    lines = []
    for cell in cells:
        where = [cell.row, str(cell.seed), cell.state, f"{cell.step:,} of {cell.steps:,}"]
        losses = [written(cell.loss, ".3f"), written(cell.dev_ppl, ".3f")]
        speed, score = written(cell.tokens_per_second, ",.0f"), written(cell.score, ".2f")
        left = "" if cell.seconds_left is None else metrics.duration(cell.seconds_left)
        lines.append([*where, *losses, speed, left, score, cell.reason])
    scored_by = cells[0].scored_by if cells else Standing.scored_by
    heads = f"row,seed,state,step,loss,dev ppl,tokens/s,left,{scored_by},reason"
    return tables.Printed(heads.split(","), lines)


def show(cells: Sequence[Standing]) -> None:
    """Prints where runs are."""
    tables.show([table(cells)], [summary(cells)])


def rendered(cells: Sequence[Standing], height: int) -> rich.console.Group:
    """Where runs are, on so many lines of a terminal."""
    shown = fitting(cells, height - LINES_BESIDE)
    return rich.console.Group(rich.text.Text(summary(cells)), table(shown))


def fitting(cells: Sequence[Standing], number: int) -> list[Standing]:
    """So many runs, in their order; where there is no room, the done go first, then the waiting."""
    dull = {WAITING: 1, DONE: 2}
    by_interest = sorted(range(len(cells)), key=lambda place: dull.get(cells[place].state, 0))
    return [cells[place] for place in sorted(by_interest[: max(number, 0)])]


def _locked() -> set[tuple[int, int]]:
    """Device and inode of each file that a process of this machine holds the lock of.

    To try a lock would tell too, but a run that starts meanwhile would find it taken.
    """
    found: set[tuple[int, int]] = set()
    if LOCKS.exists():
        # 1: FLOCK  ADVISORY  WRITE 32214 fe:00:3746053 0 EOF; with -> for one who waits
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
    return RUNNING if (lock.st_dev, lock.st_ino) in locked else ended or STOPPED


def _known(
    folder: pathlib.Path, state: str, steps: int, measure: measures.Measure
) -> dict[str, Any]:
    """What a run's files say besides its state, as `Standing` has it."""
    last = _last_records(folder / "metrics.jsonl")
    fields = ("step", "loss", "dev_ppl", "tokens_per_second")
    found: dict[str, Any] = {field: last[field] for field in fields if field in last}
    if state == FAILED:
        found["reason"] = run_folder.read_error(folder)
    if state == RUNNING and "seconds_per_step" in last:
        found["seconds_left"] = (steps - last["step"]) * last["seconds_per_step"]
    if state == DONE:
        result = run_folder.read_result(folder)
        found["dev_ppl"] = result["ppl"]
        if result["bleu"]:  # a model may write no sentences
            found["score"] = measure.of_result(result)
    return found


def _last_records(path: pathlib.Path) -> dict[str, Any]:
    """What the end of metrics.jsonl says last of each metric."""
    content = path.read_bytes() if path.exists() else b""
    # The first may be cut off, and the last half written.
    lines = content[-TAIL:].split(b"\n")[len(content) > TAIL : -1]
    found: dict[str, Any] = {}
    for line in reversed(lines):
        if {"loss", "dev_ppl"} <= found.keys():
            break
        if "loss" in found and b'"dev_ppl"' not in line:
            continue
        try:
            record = files.parse_json(line, metrics.RECORD)
        except ValueError as error:
            raise errors.UserError(
                f"{path} is damaged ({error}): delete its line "
                f"{line[:40].decode(errors='replace')}…"
            ) from error
        found = {**record, **found}
    return found
