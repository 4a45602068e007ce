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
from collections.abc import Iterable, Mapping, Sequence

from absl import flags
from ml_collections import config_flags

from experiments.sweep import cells as cells_lib
from experiments.sweep import progress, results
from launch import engine, skypilot, slurm, tpu_vm, xpk
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.data import treebank
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
    """A cell, by row, seed and config_hash, that an engine was given.

    Attributes:
      where: the engine's options that say where it is.
      job: what the engine calls it.
      there: its folder in the bucket; "" if it is on this machine's disk.
    """

    row: str
    seed: int
    digest: str
    launcher: str
    where: str
    job: str
    there: str

    @property
    def key(self) -> tuple[str, int, str]:
        """Of which cell it is."""
        return self.row, self.seed, self.digest

    @property
    def place(self) -> tuple[str, str]:
        """Who was given it, and where."""
        return self.launcher, self.where


def given(cell: cells_lib.Cell, queue: engine.Engine, job: str = "") -> Given:
    """A cell that is handed over; under its label, if the engine has no own name for it."""
    slug = re.sub(r"[*?\[\]#]", "-", results.slug(cell.row))
    there = f"{queue.settings.bucket.rstrip('/')}/{slug}/seed{cell.seed}.{cell.digest[:8]}"
    there = "" if queue.shares_disk else there
    return Given(*cell.key, queue.name, shlex.join(queue.where), job or cell.label, there)


def remember(workdir: pathlib.Path, submissions: Iterable[Given]) -> None:
    """Writes down what engines were given, for `remembered`."""
    record = [dataclasses.asdict(each) for each in submissions]
    files.write_json(workdir / NAME, {"submissions": record})


def remembered(workdir: pathlib.Path) -> list[Given]:
    """What engines were given, the last at the end; raises UserError if the record is damaged."""
    path = workdir / NAME
    if not path.exists():
        return []
    shape = {field.name: str for field in dataclasses.fields(Given)} | {"seed": int}
    record = files.read_json(path, {"submissions": [shape]}, REMEDY)["submissions"]
    found = [Given(**{name: each[name] for name in shape}) for each in record]
    for each in found:
        if each.launcher not in QUEUES:
            raise errors.UserError(
                f"{path} is damaged (there is no launcher {each.launcher!r}): {REMEDY}"
            )
    return found


def _by_place(submissions: Iterable[Given]) -> list[tuple[engine.Queue, list[Given]]]:
    """Who was given anything, to be asked, and what that was."""
    found: dict[tuple[str, str], list[Given]] = {}
    for each in submissions:
        found.setdefault(each.place, []).append(each)
    return [
        (QUEUES[launcher](engine.Settings(launcher_options=where)), cells)
        for (launcher, where), cells in found.items()
    ]


def forget(workdir: pathlib.Path, cells: Sequence[cells_lib.Cell]) -> None:
    """Strikes out cells elsewhere that now run on this machine or on its disk.

    What comes out of the bucket later would get into their way.
    """
    before, keys = remembered(workdir), {cell.key for cell in cells}
    gone = [each for each in before if each.there and each.key in keys]
    for launcher in dict.fromkeys(each.launcher for each in gone):
        _log.warning("cells that %s was given run here now: cancel them there", launcher)
    if gone:
        remember(workdir, [each for each in before if each not in gone])


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
    if base.data.corpus in ("text", *treebank.CORPORA):
        for name in ("train", "dev", "test", "parsed"):
            needed += [(f"data.{name}", each) for each in getattr(base.data, name).split(",")]
    for name, path in needed:
        if pathlib.Path(path).is_absolute() or ".." in pathlib.Path(path).parts:
            raise errors.UserError(
                f"{name}={path}: other machines have a copy of this folder only: put it below "
                f"{pathlib.Path.cwd()}, where git does not ignore it, and name it from there"
            )


def require_no_other(
    cells: Sequence[cells_lib.Cell], workdir: pathlib.Path, launcher: engine.Engine
) -> None:
    """Raises UserError if an engine on this disk has a cell with another configuration than this.

    Or EngineError, if it does not answer.
    """
    if not isinstance(launcher, engine.Queue) or not launcher.shares_disk:
        return
    asked = {
        each.job: cell
        for each in remembered(workdir)
        for cell in cells
        if (each.launcher, *each.key[:2]) == (launcher.name, *cell.key[:2])
        and each.digest != cell.digest
    }
    for job in launcher.queue([*asked]) or () if asked else ():
        raise errors.UserError(
            f"{asked[job].name}: its config has changed, and {launcher.name} has a job of the "
            f"earlier one: {shlex.join(launcher.cancelling(job))} first"
        )


def _require_own_weights(cells: Sequence[cells_lib.Cell], queue: engine.Queue) -> None:
    """Raises UserError if a cell starts from weights that it would not find there."""
    for cell in cells:
        if cell.source and not (queue.shares_disk and (cell.source / "result.json").exists()):
            there = "are not there yet" if queue.shares_disk else "are not on that disk"
            raise errors.UserError(
                f"row {cell.row!r} starts from the weights in {cell.source}, which {there} when "
                f"--launcher={queue.name} begins it: choose others with --rows, or run it with "
                "--launcher=local"
            )


def start(work: cells_lib.Work, queue: engine.Queue, more: Sequence[str]) -> None:
    """Hands over all cells that no engine has already, and a report that waits for them.

    Raises EngineError if it refuses, or does not answer; then it has none of them.
    """
    if more and not queue.shares_disk:
        raise errors.UserError("--wandb is for --launcher=local and slurm")
    _require_own_weights(work.cells, queue)
    before = remembered(work.workdir)
    ours, others = _queued(work, queue, before)
    if queued := {each.key for each in [*ours, *others]}:
        _log.info("%d cells are in the engine's queue already", len(queued))
    if any(each not in before for each in ours):  # which happens once the record was deleted
        before = _with(before, ours)
        remember(work.workdir, before)
    waiting = [cell for cell in work.cells if cell.key not in queued]
    if not waiting:
        return
    work = dataclasses.replace(work, cells=waiting)
    cells, jobs = work.in_order(), work.jobs(*more)
    folders: list[files.Path] = [cell.folder for cell in cells]
    if not queue.shares_disk:
        places = [given(cell, queue).there for cell in cells]
        pairs = zip(cells, places, strict=True)
        jobs = [cell.job(engine.PYTHON, place, "cache") for cell, place in pairs]
        folders += map(files.path, places)
    report = [sys.executable, "-m", "experiments.report", f"--workdir={work.workdir}"]
    submission = engine.Submission(engine.label(work.table, "sweep"), jobs, work.workdir, report)

    def note(names: Sequence[str]) -> None:
        named = zip(cells, names, strict=False)  # no names once they are taken back
        remember(work.workdir, _with(before, [given(cell, queue, name) for cell, name in named]))

    with cells_lib.without_failures(folder / "failure.json" for folder in folders):
        said = queue.submit(submission, note)
    if queue.shares_disk:
        forget(work.workdir, waiting)
    _log.info("%s", said)


def _with(before: Sequence[Given], new: Sequence[Given]) -> list[Given]:
    """What engines were given, once one was given some more."""
    again = {(each.place, each.key) for each in new}
    return [*(each for each in before if (each.place, each.key) not in again), *new]


def _queued(
    work: cells_lib.Work, queue: engine.Queue, before: Sequence[Given]
) -> tuple[list[Given], list[Given]]:
    """Which cells this engine has, and which another or another of its places has.

    A bucket locks nothing, other than this disk: two machines would write one run.
    """
    own = [given(cell, queue) for cell in work.cells]
    keys, here = {each.key for each in own}, own[0].place
    earlier = [each for each in before if each.key in keys]
    jobs = {each.job: each for each in [*own, *earlier] if each.place == here}
    ours = [jobs[job] for job in queue.queue([*jobs]) or ()]
    others: list[Given] = []
    known = {each.key for each in ours}
    rivals = [each for each in earlier if each.place != here and each.there]
    for other, cells in _by_place([] if queue.shares_disk else rivals):
        name = shlex.join([other.name, *other.where])
        try:
            queued = other.queue([each.job for each in cells]) or {}
        except engine.EngineError as error:
            raise engine.EngineError(
                f"whether {name} still has cells of this sweep cannot be known ({error}): if it is "
                f"gone, delete {work.workdir / NAME}"
            ) from error
        found = [each for each in cells if each.job in queued and each.key not in known]
        if found:
            have = ", ".join(sorted(each.job for each in found))
            _log.warning("%s has %s: they run here once they are cancelled there", name, have)
        others += found
    return ours, others


def fetch(cells: Sequence[cells_lib.Cell], workdir: pathlib.Path, launcher: engine.Engine) -> None:
    """Copies here what cells have left where this engine, or one before, leaves them."""
    keys = {cell.key for cell in cells}
    earlier = [each for each in remembered(workdir) if each.key in keys]
    for each in [*(given(cell, launcher) for cell in cells), *earlier]:
        _fetch(each, workdir)


def _fetch(cell: Given, workdir: pathlib.Path) -> None:
    """Copies what a run has left in the bucket, checkpoints aside, into the sweep's folder.

    Raises UserError if a run there is not of the configuration that it was handed over with.
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
    Raises UserError if there is no sweep.json.
    """
    digests = results.read_record(workdir).get("digests", [])
    found: dict[tuple[str, int], str] = {}
    for queue, cells in _by_place(each for each in remembered(workdir) if each.digest in digests):
        queued = None
        try:
            try:
                queued = queue.queue([cell.job for cell in cells])
            finally:  # a cell that ends meanwhile is either in the queue or has its result
                said = {cell: _state(cell, queue, queued, workdir) for cell in cells}
        except (engine.EngineError, OSError) as error:
            _log.warning("what follows is what the files say: %s", error)
            continue
        for cell, state in said.items():
            if state and found.get(cell.key[:2], progress.LOST).startswith(progress.LOST):
                found[cell.key[:2]] = state
    return found


def _state(
    cell: Given, queue: engine.Queue, queued: Mapping[str, str] | None, workdir: pathlib.Path
) -> str:
    """What is to be said of a cell, once what it has left in the bucket is here; "": nothing."""
    try:
        _fetch(cell, workdir)
    except errors.UserError as error:
        return f"{progress.FAILED}: {error}"
    if queued is None:
        return ""
    if cell.job in queued:
        return queued[cell.job]
    lost = f"{progress.LOST}: {queue.name} has no job {cell.job} any more"
    log = results.cell_folder(workdir, cell.row, cell.seed) / "log.txt"
    return f"{lost}; its last word: {cells_lib.last_line(log)}" if queue.shares_disk else lost
