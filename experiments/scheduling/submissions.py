"""Submits the runs of a sweep to an engine, such as Slurm, that runs them on other machines.

The file `submissions.json` in the sweep's folder records the job of each run. A machine that does
not share this disk writes a run to the folder BUCKET/ROW/seedK-HASH of a bucket. The files of that
folder, except checkpoints, profiles and the lock, are then copied to the sweep's folder.
"""

import dataclasses
import logging
import pathlib
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence

from experiments.scheduling import planning
from experiments.sweep import store
from launch import engine, skypilot, slurm, xpk
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.data import treebank
from transformer_jax.runs import run_folder

_log = logging.getLogger("transformer_jax.sweep")

ENGINES: dict[str, type[engine.Queue]] = {
    kind.name: kind for kind in (slurm.Slurm, skypilot.SkyPilot, xpk.Xpk)
}
NAME = "submissions.json"
REMEDY = "delete it once no engine has jobs of this sweep; finished runs are found without it"
NOT_COPIED = ("checkpoints/", "profile/", ".lock")
# Files that are copied last: if a run has one of these, all other files have been copied.
LAST = ("result.json", "failure.json")


@dataclasses.dataclass(frozen=True)
class Submission:
    """The job of a run in an engine.

    Attributes:
      launcher: the name of the engine, a value of --launcher.
      where: the options that name the cluster; see `engine.Engine.where`.
      job: the id of the job.
      folder: the folder of the run in a bucket; "" if the engine's machines share this disk.
    """

    launcher: str
    where: Sequence[str]
    job: str
    folder: str

    @property
    def queue(self) -> engine.Queue:
        """The engine to which the job was submitted."""
        return ENGINES[self.launcher](engine.Settings(launcher_options=shlex.join(self.where)))


def read(workdir: pathlib.Path) -> dict[str, Submission]:
    """Reads the submissions of a sweep, by config_hash, from `submissions.json`.

    Raises:
      UserError: the file is damaged.
    """
    path = workdir / NAME
    if not path.exists():
        return {}
    record = files.read_json(path, {}, REMEDY)
    try:
        submitted = {key: Submission(**values) for key, values in record.items()}
    except TypeError as error:
        raise errors.UserError(f"{path} is damaged ({error}): {REMEDY}") from error
    for submission in submitted.values():
        texts = [submission.launcher, submission.job, submission.folder]
        if not isinstance(submission.where, list) or not all(
            isinstance(text, str) for text in [*texts, *submission.where]
        ):
            raise errors.UserError(f"{path} is damaged (it holds other values than text): {REMEDY}")
        if submission.launcher not in ENGINES:
            raise errors.UserError(
                f"{path} is damaged (there is no launcher {submission.launcher!r}): {REMEDY}"
            )
    return submitted


def write(workdir: pathlib.Path, submitted: Mapping[str, Submission]) -> None:
    """Writes the submissions of a sweep, by config_hash, to `submissions.json`."""
    record = {key: dataclasses.asdict(each) for key, each in submitted.items()}
    files.write_json(workdir / NAME, record)


def forget(workdir: pathlib.Path, runs: Sequence[store.Run]) -> None:
    """Removes runs from `submissions.json`, since they are about to start on this machine."""
    submitted = read(workdir)
    hashes = {run.config_hash for run in runs}
    if hashes & submitted.keys():
        write(workdir, {key: each for key, each in submitted.items() if key not in hashes})


def bucket_folder(queue: engine.Queue, run: store.Run) -> str:
    """Returns the folder of a run in the bucket of --bucket.

    Returns "" if the engine's machines share this disk and need no bucket.
    """
    if queue.shares_disk:
        return ""
    return f"{queue.settings.bucket.rstrip('/')}/{store.folder_name(run)}"


def check(settings: engine.Settings, configs: Iterable[config_lib.Config]) -> None:
    """Raises UserError if a run cannot work on machines that do not share this disk.

    Such a run needs a gs:// bucket for results, an accelerator, and input files at relative paths
    inside the working directory.

    Args:
      settings: the settings of the engine.
      configs: the configurations of the runs.
    """
    if not settings.bucket.startswith("gs://"):
        raise errors.UserError(
            "this engine's machines write results to a bucket: give --bucket=gs://BUCKET/FOLDER"
        )
    files.path(settings.bucket)
    if not settings.accelerator:
        raise errors.UserError(
            "this engine needs --accelerator: tpu-v5litepod-8 or H100:8 for skypilot, "
            "v5litepod-8 for xpk"
        )
    needed = {("--config", planning.config_file())}
    for config in configs:
        if config.data.corpus in ("text", *treebank.CORPORA):
            for name in ("train", "dev", "test", "parsed"):
                paths = getattr(config.data, name).split(",")
                needed |= {(f"data.{name}", path.strip()) for path in paths}
    for name, path in sorted(needed):
        if pathlib.Path(path).is_absolute() or ".." in pathlib.Path(path).parts:
            raise errors.UserError(
                f"{name}={path}: other machines have a copy of this directory only: put the file "
                f"below {pathlib.Path.cwd()}, where git does not ignore it, and give its relative "
                "path"
            )


def require_not_running(
    runs: Sequence[planning.PlannedRun], workdir: pathlib.Path, launcher: engine.Engine
) -> None:
    """Checks that no other engine still has a job of a run that is about to start.

    Args:
      runs: the runs that are about to start.
      workdir: the sweep's folder.
      launcher: the engine that will start them.

    Raises:
      UserError: another engine, or another cluster of the same engine, has a job of a run.
      EngineError: the other engine does not answer.
    """
    submitted = read(workdir)
    for planned in runs:
        submission = submitted.get(planned.run.config_hash)
        if not submission:
            continue
        queue = submission.queue
        if (queue.name, queue.where) == (launcher.name, launcher.where):
            continue
        engine_name = shlex.join([queue.name, *queue.where])
        try:
            states = queue.states([submission.job])
        except engine.EngineError as error:
            raise engine.EngineError(
                f"{engine_name} does not say whether it still has a job of {planned.name} "
                f"({error}): if it is gone, delete {workdir / NAME}"
            ) from error
        if states:
            raise errors.UserError(
                f"{planned.name}: {engine_name} has a job of it: wait for it, or cancel it with "
                f"{shlex.join(queue.cancel_command(submission.job))}"
            )


def require_weights(work: planning.Work, queue: engine.Queue) -> None:
    """Raises UserError if a run starts from weights that the engine's machines cannot read yet."""
    for planned in work.runs:
        if not planned.source or not planned.needs_weights():
            continue
        weights = work.weights[planned.source.run.config_hash]
        if not queue.shares_disk or not (weights / "result.json").exists():
            raise errors.UserError(
                f"row {planned.run.row!r} starts from the weights of row "
                f"{planned.source.run.row!r}, which are not on the disk of --launcher={queue.name} "
                "when it starts: train that row first, choose other rows with --rows, or use "
                "--launcher=local"
            )


def submit(work: planning.Work, queue: engine.Queue, more: Sequence[str]) -> None:
    """Submits the runs that are not in the engine's queue yet, followed by a job for the report.

    Args:
      work: the runs.
      queue: the engine.
      more: further flags of transformer_jax.train.

    Raises:
      UserError: `more` has flags, or a run needs weights, that the engine's machines cannot use.
      EngineError: the engine refuses a job or does not answer. None of the new jobs is submitted.
    """
    if more and not queue.shares_disk:
        raise errors.UserError("--wandb needs --launcher=local or slurm")
    require_weights(work, queue)
    submitted = read(work.workdir)

    def submission_of(planned: planning.PlannedRun, job: str) -> Submission:
        return Submission(queue.name, queue.where, job, bucket_folder(queue, planned.run))

    jobs: dict[str, Submission] = {}
    for planned in work.runs:
        config_hash = planned.run.config_hash
        if config_hash in submitted:
            jobs[config_hash] = submitted[config_hash]
        else:
            # If submissions.json was deleted, the engine may still have a job, whose id is its
            # label in some engines.
            jobs[config_hash] = submission_of(planned, planned.label)
    states = queue.states([each.job for each in jobs.values()])
    queued = {key: each for key, each in jobs.items() if each.job in states}
    if queued:
        _log.info("%d runs are in the engine's queue already", len(queued))
        submitted |= queued
        write(work.workdir, submitted)
    waiting = [planned for planned in work.runs if planned.run.config_hash not in queued]
    if not waiting:
        return
    work = dataclasses.replace(work, runs=waiting)
    ordered = work.in_order()
    if queue.shares_disk:
        new_jobs = work.local_jobs(*more)
    else:
        new_jobs = [
            work.job(planned, engine.PYTHON, bucket_folder(queue, planned.run), "cache")
            for planned in ordered
        ]
    report = [sys.executable, "-m", "experiments.report", str(work.workdir)]

    def record(names: Sequence[str]) -> None:
        """Writes the ids of all new jobs to submissions.json; no ids if the jobs were cancelled."""
        if not names:
            write(work.workdir, submitted)
            return
        new = {
            planned.run.config_hash: submission_of(planned, name)
            for planned, name in zip(ordered, names, strict=True)
        }
        write(work.workdir, {**submitted, **new})

    name = engine.label(work.table, "sweep")
    message = queue.submit(engine.Submission(name, new_jobs, work.workdir, report), record)
    _log.info("%s", message)


def fetch(run: store.Run, folder: str, workdir: pathlib.Path) -> None:
    """Copies the files of a run, without checkpoints, from a bucket to the sweep's folder.

    Nothing is copied if the sweep's folder already has the result of the run.

    Args:
      run: the run.
      folder: the folder of the run in the bucket; "" if there is none.
      workdir: the sweep's folder.

    Raises:
      UserError: `folder` has a run with another config_hash.
    """
    local = workdir / store.folder_name(run)
    if not folder or (local / "result.json").exists():
        return
    remote = files.path(folder)
    names = [name for name in files.below(remote) if not name.startswith(NOT_COPIED)]
    if "run.json" in names:
        found = run_folder.read_record(remote)["config_hash"]
        if found != run.config_hash:
            raise errors.UserError(
                f"{folder} holds a run of another config_hash ({found[:8]}): the machines had "
                "another state of the code or the text than this one; delete the folder"
            )
    if "failure.json" not in names:  # the run has started again
        (local / "failure.json").unlink(missing_ok=True)
    first = [name for name in names if name not in LAST]
    last = [name for name in names if name in LAST]
    for name in [*first, *last]:
        files.write(local / name, (remote / name).read_bytes())


def fetch_all(
    runs: Sequence[store.Run], workdir: pathlib.Path, launcher: engine.Engine | None = None
) -> None:
    """Copies the files of several runs from buckets; see `fetch`.

    A run in submissions.json is copied from the folder that this file records. Any other run is
    copied from the bucket that the settings of `launcher` name.
    """
    submitted = read(workdir)
    for run in runs:
        if run.config_hash in submitted:
            fetch(run, submitted[run.config_hash].folder, workdir)
        elif isinstance(launcher, engine.Queue):
            fetch(run, bucket_folder(launcher, run), workdir)


def states(description: store.Description, workdir: pathlib.Path) -> dict[str, str]:
    """Returns the state of each submitted run, as its engine reports it.

    This also copies the files that these runs have written to buckets.

    Args:
      description: the description of the sweep.
      workdir: the sweep's folder.

    Returns:
      States by config_hash, such as "running" or "lost: slurm has no job 12_3 any more". A run
      whose job has ended is "lost", even if the run has a result. A run is "failed" if its folder
      in the bucket has another run. If an engine does not answer, a warning is logged, and the runs
      of this engine have no state unless they are "failed".
    """
    submitted = read(workdir)
    runs = {run.config_hash: run for run in description.runs if run.config_hash in submitted}
    found: dict[str, str] = {}
    queues: dict[tuple[str, ...], list[str]] = {}
    for config_hash in runs:
        submission = submitted[config_hash]
        queues.setdefault((submission.launcher, *submission.where), []).append(config_hash)
    for hashes in queues.values():
        queue = submitted[hashes[0]].queue
        try:
            jobs = queue.states([submitted[config_hash].job for config_hash in hashes])
        except engine.EngineError as error:
            _log.warning("%s; the states below are those of the files alone", error)
            jobs = None
        # A run that ends between the two steps has either a state or a result.
        for config_hash in hashes:
            job = submitted[config_hash].job
            try:
                fetch(runs[config_hash], submitted[config_hash].folder, workdir)
            except errors.UserError as error:
                found[config_hash] = f"failed: {error}"
                continue
            except OSError as error:
                _log.warning("%s; the states below are those of the files alone", error)
            if jobs is None:
                continue
            found[config_hash] = jobs.get(job, f"lost: {queue.name} has no job {job} any more")
    return found
