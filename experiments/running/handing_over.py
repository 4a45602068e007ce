"""Hands the cells of a sweep to engines, asks after them, and fetches what comes of them.

WORKDIR/submissions.json says which engine was given which cells, and where. Machines that share no
disk with this one leave a run's folder in a bucket, under a name with a part of its config_hash, so
that an edited sweep finds no other run in its place; what a report needs of it is copied here.
"""

import dataclasses
import logging
import pathlib
import re
import shlex
import sys
from collections.abc import Iterable, Sequence

from absl import flags
from ml_collections import config_flags

from experiments.sweep import cells as cells_lib
from experiments.sweep import progress, results
from launch import engine, skypilot, slurm, tpu_vm, xpk
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.runs import run_folder

_log = logging.getLogger("transformer_jax.sweep")

QUEUES: dict[str, type[engine.Queue]] = {
    each.name: each for each in (slurm.Slurm, skypilot.SkyPilot, xpk.Xpk, tpu_vm.TpuVm)
}
NAME = "submissions.json"
REMEDY = "delete it, once no engine has jobs of this sweep; starting it again finds what is done"
LEFT_THERE = ("checkpoints/", "profile/", ".lock")  # what no report reads
LAST = ("result.json", "failure.json")  # their presence says that the rest is there


@dataclasses.dataclass(frozen=True)
class Given:
    """A cell that an engine was given.

    Attributes:
      row: its row.
      seed: its seed.
      digest: its config_hash.
      job: what the engine calls it.
      there: its folder in the bucket; "" if it is on this machine's disk.
    """

    row: str
    seed: int
    digest: str
    job: str
    there: str

    @property
    def key(self) -> tuple[str, int, str]:
        """What tells it from others."""
        return self.row, self.seed, self.digest


def given(cell: cells_lib.Cell, bucket: str, job: str = "") -> Given:
    """A cell that is handed over; in a bucket, if there is one, under its label."""
    slug = re.sub(r"[*?\[\]#]", "-", results.slug(cell.row))
    there = f"{bucket.rstrip('/')}/{slug}/seed{cell.seed}.{cell.digest[:8]}" if bucket else ""
    return Given(cell.row, cell.seed, cell.digest, job or cell.label, there)


@dataclasses.dataclass(frozen=True)
class Submission:
    """What an engine was given.

    Attributes:
      launcher: its name.
      where: its options that say where it is.
      cells: what it was given.
    """

    launcher: str
    where: Sequence[str]
    cells: Sequence[Given]

    @property
    def queue(self) -> engine.Queue:
        """The engine, to be asked."""
        return QUEUES[self.launcher](engine.Settings(launcher_options=shlex.join(self.where)))

    def is_at(self, queue: engine.Queue) -> bool:
        """Whether this is the engine, and the place of it."""
        return [self.launcher, *self.where] == [queue.name, *queue.where]


_GIVEN = {field.name: int if field.name == "seed" else str for field in dataclasses.fields(Given)}
_SUBMISSION = {"launcher": str, "where": [str], "cells": [_GIVEN]}


def remember(workdir: pathlib.Path, submissions: Iterable[Submission]) -> None:
    """Writes down what engines were given, for `remembered`."""
    record = [dataclasses.asdict(each) for each in submissions if each.cells]
    files.write_json(workdir / NAME, {"submissions": record})


def remembered(workdir: pathlib.Path) -> list[Submission]:
    """What engines were given, the last at the end.

    Raises:
      UserError: the record is damaged.
    """
    path = workdir / NAME
    if not path.exists():
        return []
    found = [
        Submission(each["launcher"], each["where"], [Given(**cell) for cell in each["cells"]])
        for each in files.read_json(path, {"submissions": [_SUBMISSION]}, REMEDY)["submissions"]
    ]
    if unknown := [each.launcher for each in found if each.launcher not in QUEUES]:
        raise errors.UserError(f"{path} is damaged (there is no launcher {unknown[0]!r}): {REMEDY}")
    return found


def forget(workdir: pathlib.Path, cells: Sequence[cells_lib.Cell]) -> None:
    """Strikes out cells elsewhere that now run on this machine or on its disk.

    What comes out of the bucket later would get into their way.
    """
    before, keys = remembered(workdir), {cell.key for cell in cells}
    after: list[Submission] = []
    for each in before:
        kept = [cell for cell in each.cells if not cell.there or cell.key not in keys]
        if len(kept) < len(each.cells):
            _log.warning("cells that %s was given run here now: cancel them there", each.launcher)
        after.append(dataclasses.replace(each, cells=kept))
    if after != before:
        remember(workdir, after)


def check(settings: engine.Settings, base: config_lib.Config) -> None:
    """Raises UserError if cells elsewhere could not run, or leave their results."""
    if not settings.bucket.startswith("gs://"):
        raise errors.UserError(
            "results of this engine go to a bucket: give --bucket=gs://BUCKET/FOLDER"
        )
    files.path(settings.bucket)
    if not settings.accelerator:
        raise errors.UserError(
            "this engine needs --accelerator, as it names it: tpu-v5litepod-8 or H100:8 for "
            "skypilot, v5litepod-8 for xpk and tpu-vm"
        )
    needed = [("--config", config_flags.get_config_filename(flags.FLAGS["config"]))]
    if base.data.corpus == "text":
        for name in ("train", "dev", "test"):
            needed += [(f"data.{name}", each) for each in getattr(base.data, name).split(",")]
    for name, path in needed:
        if pathlib.Path(path).is_absolute() or ".." in pathlib.Path(path).parts:
            raise errors.UserError(
                f"{name}={path}: other machines have a copy of this folder only: put it below "
                f"{pathlib.Path.cwd()}, where git does not ignore it, and name it from there"
            )


def require_no_other(
    cells: Sequence[cells_lib.Cell], workdir: pathlib.Path, queue: engine.Queue
) -> None:
    """Raises UserError if an engine on this disk has a cell with another configuration than this.

    Raises:
      EngineError: it does not answer.
    """
    wanted = {(cell.row, cell.seed): cell for cell in cells}
    keys = {cell.key for cell in cells}
    asked = {
        cell.job: wanted[cell.row, cell.seed]
        for each in remembered(workdir)
        if queue.shares_disk and each.is_at(queue)
        for cell in each.cells
        if (cell.row, cell.seed) in wanted and cell.key not in keys
    }
    for job in queue.queue([*asked]) if asked else ():
        raise errors.UserError(
            f"{asked[job].name}: its config has changed, and {queue.name} has a job of the earlier "
            f"one: {shlex.join(queue.cancelling(job))} first"
        )


def start(work: cells_lib.Work, queue: engine.Queue, more: Sequence[str]) -> None:
    """Hands over all cells that no engine has already, and a report that waits for them.

    Args:
      work: the cells.
      queue: who is to take them.
      more: flags for each.

    Raises:
      EngineError: it refuses, or does not answer; then it has none of them.
    """
    if more and not queue.shares_disk:
        raise errors.UserError("--wandb is for --launcher=local and slurm")
    bucket, before = queue.settings.bucket, remembered(work.workdir)
    ours, others = _queued(work, queue, before)
    if queued := ours | others:
        _log.info("%d cells are in the engine's queue already", len(queued))
    # One may be in the queue without being written down, once the record was deleted.
    known = {cell.job for each in before for cell in each.cells}
    unknown = [given(cell, bucket) for cell in work.cells if cell.label in ours - known]
    if bucket and unknown:
        before = _added(before, queue, unknown)
        remember(work.workdir, before)
    waiting = [cell for cell in work.cells if cell.label not in queued]
    if not waiting:
        return
    work = dataclasses.replace(work, cells=waiting)
    cells = work.in_order()
    jobs = work.jobs(*more)
    folders: list[files.Path] = [cell.folder for cell in cells]
    if bucket:
        places = [given(cell, bucket).there for cell in cells]
        pairs = zip(cells, places, strict=True)
        jobs = [cell.job(engine.PYTHON, place, "cache") for cell, place in pairs]
        folders += map(files.path, places)
    report = [sys.executable, "-m", "experiments.report", f"--workdir={work.workdir}"]
    batch = engine.Batch(engine.label(work.table, "sweep"), jobs, work.workdir, report)

    def note(names: Sequence[str]) -> None:
        named = zip(cells, names, strict=False)  # no names once they are taken back
        new = [given(cell, bucket, name) for cell, name in named]
        remember(work.workdir, _added(before, queue, new))

    with cells_lib.without_failures(folder / "failure.json" for folder in folders):
        said = queue.submit(batch, note)
    if queue.shares_disk:
        forget(work.workdir, waiting)
    _log.info("%s", said)


def _added(
    before: Sequence[Submission], queue: engine.Queue, cells: Sequence[Given]
) -> list[Submission]:
    """What engines were given, once this one was given some more."""
    there = [cell for each in before if each.is_at(queue) for cell in each.cells]
    keys = {cell.key for cell in cells}
    there = [cell for cell in there if cell.key not in keys]
    others = [each for each in before if not each.is_at(queue)]
    return [*others, Submission(queue.name, queue.where, [*there, *cells])]


def _queued(
    work: cells_lib.Work, queue: engine.Queue, before: Sequence[Submission]
) -> tuple[set[str], set[str]]:
    """The labels of cells that this engine has, and that another or another of its places has.

    A bucket locks nothing, other than this disk: two machines would write one run.
    """
    labels = {cell.label: cell.label for cell in work.cells}  # by what engines call them
    by_key = {cell.key: cell.label for cell in work.cells}
    for cell in (cell for each in before if each.is_at(queue) for cell in each.cells):
        if cell.key in by_key:
            labels[cell.job] = by_key[cell.key]
    ours = {labels[name] for name in queue.queue([*labels])}
    others: set[str] = set()
    for each in before:
        asked = [cell.job for cell in each.cells if cell.job in labels]
        if queue.shares_disk or each.queue.shares_disk or each.is_at(queue) or not asked:
            continue
        name = shlex.join([each.launcher, *each.where])
        try:
            found = set(each.queue.queue(asked)) - ours
        except engine.EngineError as error:
            raise engine.EngineError(
                f"whether {name} still has cells of this sweep cannot be known ({error}): if it is "
                f"gone, delete {work.workdir / NAME}"
            ) from error
        if found:
            have = ", ".join(sorted(found))
            _log.warning("%s has %s: they run here once they are cancelled there", name, have)
        others |= found
    return ours, others


def fetch(cells: Sequence[cells_lib.Cell], workdir: pathlib.Path, bucket: str) -> None:
    """Copies what cells have left in this bucket, or where they were given before."""
    places = [given(cell, bucket) for cell in cells] if bucket else []
    keys = {cell.key for cell in cells}
    earlier = [cell for each in remembered(workdir) for cell in each.cells if cell.key in keys]
    for each in dict.fromkeys([*places, *earlier]):
        _fetch(each, workdir)


def _fetch(cell: Given, workdir: pathlib.Path) -> None:
    """Copies what a run has left in the bucket, checkpoints aside, into the sweep's folder.

    Raises:
      UserError: a run there is not of the configuration that it was handed over with.
    """
    here, there = results.cell_folder(workdir, cell.row, cell.seed), files.path(cell.there)
    if not cell.there or (here / "result.json").exists():
        return
    is_begun = (here / "run.json").exists()
    if is_begun and run_folder.read_record(here)["config_hash"] != cell.digest:
        return  # a run of another configuration lies where this one's is to be copied
    names = [name for name in files.below(there) if not name.startswith(LEFT_THERE)]
    if "run.json" in names:
        found = run_folder.read_record(there)["config_hash"]
        if found != cell.digest:
            raise errors.UserError(
                f"{there} holds a run of another config_hash ({found[:8]}): the machines had "
                "another state of the code or the text than this one; delete it there"
            )
    for name in sorted(names, key=lambda name: name in LAST):
        files.write(here / name, (there / name).read_bytes())


def states(workdir: pathlib.Path) -> dict[tuple[str, int], str]:
    """What engines say of the cells that they were given, by row and seed, as far as they answer.

    See `progress.read`. A cell that one of them has is not lost because another has it no more.
    """
    digests, found = results.digests(workdir), dict[tuple[str, int], str]()
    for each in remembered(workdir):
        cells = [cell for cell in each.cells if cell.digest in digests]
        try:
            said = _states(each.queue, cells, workdir) if cells else {}
        except (engine.EngineError, OSError) as error:
            _log.warning("what follows is what the files say: %s", error)
            continue
        for place, state in said.items():
            if found.get(place, progress.LOST).startswith(progress.LOST):
                found[place] = state
    return found


def _states(
    queue: engine.Queue, cells: Sequence[Given], workdir: pathlib.Path
) -> dict[tuple[str, int], str]:
    """What an engine says of the cells that it was given, and what comes out of the bucket."""
    refused: dict[tuple[str, int], str] = {}
    try:
        queued = queue.queue([cell.job for cell in cells])
    finally:  # a cell that ends meanwhile is either in the queue or has its result
        for cell in cells:
            try:
                _fetch(cell, workdir)
            except errors.UserError as error:
                refused[cell.row, cell.seed] = f"{progress.FAILED}: {error}"
    if not queue.answers:
        return refused
    found: dict[tuple[str, int], str] = {}
    for cell in cells:
        lost = f"{progress.LOST}: {queue.name} has no job {cell.job} any more"
        if queue.shares_disk:
            log = results.cell_folder(workdir, cell.row, cell.seed) / "log.txt"
            lost += f"; its last word: {cells_lib.last_line(log)}"
        found[cell.row, cell.seed] = queued.get(cell.job, lost)
    return found | refused
