"""Hands the cells of a sweep to an engine, asks after them, and fetches what comes of them.

WORKDIR/submissions.json says which engine that is, and what it was given. Machines that share no
disk with this one leave a run's folder in a bucket, under a name with a part of its config_hash, so
that an edited sweep finds no other run in its place; what a report needs of it is copied here.
"""

import dataclasses
import logging
import pathlib
import re
import shlex
import sys
from collections.abc import Mapping, Sequence

from absl import flags
from ml_collections import config_flags

from experiments.sweep import cells as cells_lib
from experiments.sweep import progress, results
from launch import engine, skypilot, slurm, xpk
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.data import treebank
from transformer_jax.runs import run_folder, starting_weights

_log = logging.getLogger("transformer_jax.sweep")

QUEUES: dict[str, type[engine.Queue]] = {
    each.name: each for each in (slurm.Slurm, skypilot.SkyPilot, xpk.Xpk)
}
NAME = "submissions.json"
REMEDY = "delete it, once no engine has jobs of this sweep; starting it again finds what is done"
LEFT_THERE = ("checkpoints/", "profile/", ".lock")  # what no report reads
Key = tuple[str, int, str]  # of a cell: its row, seed and config_hash
LAST = ("result.json", "failure.json")  # their presence says that the rest is there


@dataclasses.dataclass(frozen=True)
class Given:
    """A cell, by row, seed and config_hash, that the engine was given."""

    row: str
    seed: int
    digest: str
    job: str  # what the engine calls it
    there: str  # its folder in the bucket; "" if it is on this machine's disk


def given(cell: cells_lib.Cell, launcher: engine.Engine, job: str = "") -> Given:
    """A cell that is handed over; under its label, if the engine has no own name for it."""
    slug = re.sub(r"[*?\[\]#]", "-", results.slug(cell.row))
    there = f"{launcher.settings.bucket.rstrip('/')}/{slug}/seed{cell.seed}.{cell.digest[:8]}"
    return Given(*cell.key, job or cell.label, "" if launcher.shares_disk else there)


def remember(workdir: pathlib.Path, queue: engine.Queue, cells: Mapping[Key, Given]) -> None:
    """Writes down what an engine was given, for `remembered`."""
    submissions = [dataclasses.asdict(each) for each in cells.values()]
    record = {"launcher": queue.name, "where": queue.where, "submissions": submissions}
    files.write_json(workdir / NAME, record)


def remembered(workdir: pathlib.Path) -> tuple[engine.Queue | None, dict[Key, Given]]:
    """The sweep's engine, to be asked, if it had one, and what that or one before was given.

    Raises UserError if the record is damaged.
    """
    path = workdir / NAME
    if not path.exists():
        return None, {}
    names = {field.name: str for field in dataclasses.fields(Given)} | {"seed": int}
    required = {"launcher": str, "where": list, "submissions": list}
    record = files.read_json(path, required, REMEDY)
    kind = QUEUES.get(record["launcher"])
    if not kind:
        raise errors.UserError(
            f"{path} is damaged (there is no launcher {record['launcher']!r}): {REMEDY}"
        )
    found = [Given(**{name: each[name] for name in names}) for each in record["submissions"]]
    queue = kind(engine.Settings(launcher_options=shlex.join(record["where"])))
    return queue, {(each.row, each.seed, each.digest): each for each in found}


def forget(workdir: pathlib.Path, cells: Sequence[cells_lib.Cell]) -> None:
    """Strikes out cells that now run here: what a bucket has of them would get into their way."""
    queue, before = remembered(workdir)
    keys = {cell.key for cell in cells}
    if queue:
        remember(workdir, queue, {key: each for key, each in before.items() if key not in keys})


def check(settings: engine.Settings, cells: Sequence[config_lib.Config]) -> None:
    """Raises UserError if cells elsewhere could not run, or leave their results."""
    if not settings.bucket.startswith("gs://"):
        raise errors.UserError(
            "results of this engine go to a bucket: give --bucket=gs://BUCKET/FOLDER"
        )
    files.path(settings.bucket)
    if not settings.accelerator:
        raise errors.UserError(
            "this engine needs --accelerator, as it names it: tpu-v5litepod-8 or H100:8 for "
            "skypilot, v5litepod-8 for xpk"
        )
    needed = [("--config", config_flags.get_config_filename(flags.FLAGS["config"]))]
    for data in [each.data for each in cells if each.data.corpus in ("text", *treebank.CORPORA)]:
        for name in ("train", "dev", "test", "parsed"):
            needed += [(f"data.{name}", each.strip()) for each in getattr(data, name).split(",")]
    for name, path in needed:
        if pathlib.Path(path).is_absolute() or ".." in pathlib.Path(path).parts:
            raise errors.UserError(
                f"{name}={path}: other machines have a copy of this folder only: put it below "
                f"{pathlib.Path.cwd()}, where git does not ignore it, and name it from there"
            )


def require_no_other(
    cells: Sequence[cells_lib.Cell], workdir: pathlib.Path, launcher: engine.Engine
) -> None:
    """Raises UserError if jobs of another launcher, or of another config of a cell, are left.

    Or EngineError, if their engine does not answer.
    """
    queue, before = remembered(workdir)
    if not queue:
        return
    has_moved = (queue.name, queue.where) != (launcher.name, launcher.where)
    digests = {(cell.row, cell.seed): cell.digest for cell in cells}
    others = {
        each.job: each
        for each in before.values()
        if has_moved or digests.get((each.row, each.seed), each.digest) != each.digest
        if not _has_ended(each, workdir)
    }
    name, what = shlex.join([queue.name, *queue.where]), "launcher" if has_moved else "config"
    try:
        queued = queue.states([*others]) if others else {}
    except engine.EngineError as error:
        raise engine.EngineError(
            f"whether {name} still has jobs of this sweep cannot be known ({error}): if it is "
            f"gone, delete {workdir / NAME}"
        ) from error
    for job in queued:
        raise errors.UserError(
            f"{others[job].row}, seed {others[job].seed}: its {what} has changed, and {name} has a "
            "job of it: wait for all such jobs, or cancel them first, as with "
            f"{shlex.join(queue.cancel_command(job))}"
        )


def _has_ended(cell: Given, workdir: pathlib.Path) -> bool:
    """Whether a cell's result lies here."""
    folder = results.cell_folder(workdir, cell.row, cell.seed)
    if not all((folder / name).exists() for name in ("run.json", "result.json")):
        return False
    return run_folder.read_record(folder)["config_hash"] == cell.digest


def require_own_weights(cells: Sequence[cells_lib.Cell], queue: engine.Queue) -> None:
    """Raises UserError if a cell starts from weights that it would not find there."""
    for cell in cells:
        shared = queue.shares_disk
        folder = cell.folder if shared else files.path(given(cell, queue).there)
        if not cell.source or not starting_weights.are_read(cell.config, folder):
            continue
        if not (shared and (cell.source / "result.json").exists()):
            there = "are not there yet" if shared else "are not on that disk"
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
    require_own_weights(work.cells, queue)
    _, before = remembered(work.workdir)
    # If the record was deleted, jobs are found by their labels, where those are their names.
    asked = {cell.key: before.get(cell.key) or given(cell, queue) for cell in work.cells}
    jobs = queue.states([each.job for each in asked.values()])
    queued = {key: each for key, each in asked.items() if each.job in jobs}
    if queued:
        _log.info("%d cells are in the engine's queue already", len(queued))
        before |= queued
        remember(work.workdir, queue, before)
    waiting = [cell for cell in work.cells if cell.key not in queued]
    if not waiting:
        return
    work = dataclasses.replace(work, cells=waiting)
    cells, jobs = work.in_order(), work.jobs(*more)
    folders: list[files.Path] = [cell.folder for cell in cells]
    if not queue.shares_disk:
        jobs = [cell.job(engine.PYTHON, given(cell, queue).there, "cache") for cell in cells]
        folders += [files.path(given(cell, queue).there) for cell in cells]
    report = [sys.executable, "-m", "experiments.report", f"--workdir={work.workdir}"]
    submission = engine.Submission(engine.label(work.table, "sweep"), jobs, work.workdir, report)

    def note(names: Sequence[str]) -> None:
        named = zip(cells, names, strict=False)  # no names once they are taken back
        new = {cell.key: given(cell, queue, name) for cell, name in named}
        remember(work.workdir, queue, {**before, **new})

    with cells_lib.without_failures(folder / "failure.json" for folder in folders):
        said = queue.submit(submission, note)
    _log.info("%s", said)


def fetch(cells: Sequence[cells_lib.Cell], workdir: pathlib.Path, launcher: engine.Engine) -> None:
    """Copies here what cells have left where they ran, or else where this engine leaves them."""
    _, before = remembered(workdir)
    for cell in cells:
        _fetch(before.get(cell.key) or given(cell, launcher), workdir)


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
    """What the engine says of the cells that it was given, by row and seed, if it answers.

    See `progress.read`. Raises UserError if there is no sweep.json.
    """
    digests = results.read_record(workdir).get("digests", [])
    queue, before = remembered(workdir)
    # Of a cell that was handed over again, the last.
    newest = {(each.row, each.seed): each for each in before.values() if each.digest in digests}
    cells = list(newest.values())
    if not queue or not cells:
        return {}
    queued = None
    try:
        try:
            queued = queue.states([cell.job for cell in cells])
        finally:  # a cell that ends meanwhile is either in the queue or has its result
            found = {(cell.row, cell.seed): _state(cell, queue, queued, workdir) for cell in cells}
    except (engine.EngineError, OSError) as error:
        _log.warning("%s; the states below are those of the files alone", error)
        return {}
    return {cell: state for cell, state in found.items() if state}


def _state(
    cell: Given, queue: engine.Queue, queued: Mapping[str, str] | None, workdir: pathlib.Path
) -> str:
    """Returns a cell's state, once its files in the bucket are copied here; "" if unknown."""
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
