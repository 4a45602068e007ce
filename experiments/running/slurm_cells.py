"""Hands the cells of a sweep to Slurm, and asks it how they get on.

What is submitted lies in WORKDIR/slurm, and submissions.json there says which task of which array
runs which cell.
"""

import dataclasses
import logging
import pathlib
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from experiments.running import elsewhere
from experiments.sweep import cells as cells_lib
from experiments.sweep import progress, results
from launch import slurm
from transformer_jax import errors, files

_log = logging.getLogger("transformer_jax.sweep")

_SUBMISSION = {"job": str, "report": str, "tasks": [{"row": str, "seed": int, "digest": str}]}


@dataclasses.dataclass(frozen=True)
class Options:
    """How cells are submitted.

    Attributes:
      nodes: of each cell.
      parallel: cells at a time; 0 for no limit of ours.
      sbatch: more of its options.
      script: that runs a cell.
    """

    nodes: int
    parallel: int
    sbatch: Sequence[str]
    script: str


def check(options: Options) -> None:
    """Raises UserError or EngineError if nothing could be submitted so."""
    if not _script(options).is_file():
        raise errors.UserError(f"--slurm_script={options.script} is no file")
    slurm.require(options.sbatch)


def _script(options: Options) -> pathlib.Path:
    return pathlib.Path(options.script) if options.script else slurm.SCRIPT


def start(work: cells_lib.Work, options: Options, more: Sequence[str]) -> None:
    """Submits all cells that are not in the queue, and a report that waits for them.

    Args:
      work: the cells.
      options: how.
      more: flags for each cell.

    Raises:
      EngineError: Slurm refuses, or does not answer; then nothing is submitted.
    """
    queued_cells = {(cell["row"], cell["seed"]) for cell, _ in _queued(work.workdir)}
    waiting = [cell for cell in work.cells if (cell.row, cell.seed) not in queued_cells]
    if queued := len(work.cells) - len(waiting):
        _log.info("%d cells are in Slurm's queue already", queued)
    if not waiting:
        return
    work = dataclasses.replace(work, cells=waiting)
    folder = _next_folder(work.workdir)
    if options.nodes > 1:
        more = [*more, "--distributed"]
    array, report = slurm.render(
        work.jobs(*more),
        [sys.executable, "-m", "experiments.report", f"--workdir={work.workdir}"],
        folder,
        name=work.table,
        nodes=options.nodes,
        parallel=options.parallel,
        options=options.sbatch,
        script=_script(options),
    )
    tasks = [
        {"row": cell.row, "seed": cell.seed, "digest": cell.digest} for cell in work.in_order()
    ]
    before = _submissions(work.workdir)
    with cells_lib.without_failures(cell.folder / "failure.json" for cell in waiting):
        try:
            job, after = slurm.submit(array, report)
        except BaseException:
            shutil.rmtree(folder)
            raise
        try:
            submission = {"job": job, "report": after, "tasks": tasks}
            files.write_json(_record(work.workdir), {"submissions": [*before, submission]})
            slurm.release(job)  # what has not been written down does not begin
        except BaseException as error:
            slurm.cancel(error, job, after)  # or all stays as it is
            files.write_json(_record(work.workdir), {"submissions": before})
            shutil.rmtree(folder)
            raise
    elsewhere.forget(work.workdir, waiting)
    _log.info(
        "submitted as array %s of %d tasks, and the report as %s; see --status",
        job,
        len(tasks),
        after,
    )


def require_no_other(cells: Sequence[cells_lib.Cell], workdir: pathlib.Path) -> None:
    """Raises UserError if a cell is in the queue with another configuration than its present one.

    Raises:
      EngineError: Slurm does not answer.
    """
    wanted = {(cell.row, cell.seed): cell for cell in cells}
    for cell, job in _queued(workdir):
        own = wanted.get((cell["row"], cell["seed"]))
        if own and own.digest != cell["digest"]:
            raise errors.UserError(
                f"{own.name}: its config has changed, and Slurm has a job of the earlier one: "
                f"scancel {job} first"
            )


def _queued(workdir: pathlib.Path) -> list[tuple[dict[str, Any], str]]:
    """What of all submissions Slurm still has: the record of a cell, and its job, 12_3."""
    submissions = _submissions(workdir)
    if not submissions:
        return []
    queue = slurm.queue(submission["job"] for submission in submissions)
    return [
        (cell, f"{submission['job']}_{index}")
        for submission in submissions
        for index, cell in enumerate(submission["tasks"])
        if (submission["job"], index) in queue
    ]


def states(workdir: pathlib.Path) -> dict[tuple[str, int], str]:
    """What Slurm says of the cells, by row and seed, that it was ever given; see `progress.read`.

    One that it knows nothing of is lost, unless it is done: Slurm forgets what has ended.

    Raises:
      EngineError: it does not answer.
      UserError: submissions.json is damaged.
    """
    submissions = _submissions(workdir)
    if not submissions:
        return {}
    queued = slurm.queue(submission["job"] for submission in submissions)
    found: dict[tuple[str, int], str] = {}
    for submission in submissions:
        for index, cell in enumerate(submission["tasks"]):
            place = (cell["row"], cell["seed"])
            word = queued.get((submission["job"], index), "")
            if not word and not found.get(place, progress.LOST).startswith(progress.LOST):
                continue  # an earlier submission of it is in the queue
            log = results.cell_folder(workdir, *place) / "log.txt"
            found[place] = word or (
                f"{progress.LOST}: Slurm has no job {submission['job']}_{index} any more; its "
                f"last word: {cells_lib.last_line(log)}"
            )
    return found


def _record(workdir: pathlib.Path) -> pathlib.Path:
    return workdir / "slurm" / "submissions.json"


def _submissions(workdir: pathlib.Path) -> list[dict[str, Any]]:
    path = _record(workdir)
    if not path.exists():
        return []
    remedy = "delete it, once squeue shows none of this sweep's jobs"
    return files.read_json(path, {"submissions": [_SUBMISSION]}, remedy)["submissions"]


def _next_folder(workdir: pathlib.Path) -> pathlib.Path:
    taken = [int(path.name) for path in (workdir / "slurm").glob("[0-9]*") if path.is_dir()]
    return workdir / "slurm" / str(max(taken, default=0) + 1)
