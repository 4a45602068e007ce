"""Runs of a sweep that are submitted to an engine, which runs them on other machines.

`submissions.json` in the sweep's folder records the job of each run. A machine that does not share
this disk writes its run to the folder BUCKET/ROW/seedK-HASH of a bucket. Everything in that folder
except checkpoints, profiles and the lock is copied to the sweep's folder.
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
LAST = ("result.json", "failure.json")  # copied last: their presence means that the rest is there


@dataclasses.dataclass(frozen=True)
class Submission:
    """The job of a run in an engine.

    Attributes:
      launcher: the engine's name, as in --launcher.
      where: the engine's options that name a cluster.
      job: the id of the job in the engine.
      folder: the run's folder in a bucket; "" if the engine shares this disk.
    """

    launcher: str
    where: Sequence[str]
    job: str
    folder: str

    @property
    def queue(self) -> engine.Queue:
        """The engine that has the job."""
        return ENGINES[self.launcher](engine.Settings(launcher_options=shlex.join(self.where)))


def read(workdir: pathlib.Path) -> dict[str, Submission]:
    """Returns the recorded submissions by config_hash; raises UserError if the file is damaged."""
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
    """Writes submissions, by config_hash, to `submissions.json`."""
    record = {key: dataclasses.asdict(each) for key, each in submitted.items()}
    files.write_json(workdir / NAME, record)


def forget(workdir: pathlib.Path, runs: Sequence[store.Run]) -> None:
    """Removes the records of runs that start on this machine."""
    submitted = read(workdir)
    hashes = {run.config_hash for run in runs}
    if hashes & submitted.keys():
        write(workdir, {key: each for key, each in submitted.items() if key not in hashes})


def bucket_folder(queue: engine.Queue, run: store.Run) -> str:
    """Returns the folder of a run in the engine's bucket; "" if the engine shares this disk."""
    if queue.shares_disk:
        return ""
    return f"{queue.settings.bucket.rstrip('/')}/{store.folder_name(run)}"


def check(settings: engine.Settings, configs: Iterable[config_lib.Config]) -> None:
    """Raises UserError if machines with other disks could not read inputs or write results."""
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
    """Raises UserError if another engine still has a job of a run that is about to start.

    Raises:
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
    """Raises UserError if weights that a run starts from are not on the engine's disk yet."""
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
    """Submits the runs that the engine does not have yet, and a report that waits for them.

    Args:
      work: the runs.
      queue: the engine.
      more: further flags of transformer_jax.train.

    Raises:
      EngineError: the engine refuses or does not answer. It then has none of the new runs.
    """
    if more and not queue.shares_disk:
        raise errors.UserError("--wandb needs --launcher=local or slurm")
    require_weights(work, queue)
    submitted = read(work.workdir)

    def submission(planned: planning.PlannedRun, job: str) -> Submission:
        return Submission(queue.name, queue.where, job, bucket_folder(queue, planned.run))

    # If submissions.json was deleted, jobs are found by their labels, which some engines keep.
    jobs = {
        planned.run.config_hash: submitted.get(
            planned.run.config_hash, submission(planned, planned.label)
        )
        for planned in work.runs
    }
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
        """Records the ids of all new jobs; `names` is empty if the jobs were cancelled."""
        new = {
            planned.run.config_hash: submission(planned, name)
            for planned, name in zip(ordered, names, strict=False)
        }
        write(work.workdir, {**submitted, **new})

    name = engine.label(work.table, "sweep")
    message = queue.submit(engine.Submission(name, new_jobs, work.workdir, report), record)
    _log.info("%s", message)


def fetch(run: store.Run, folder: str, workdir: pathlib.Path) -> None:
    """Copies the files of a run, without checkpoints, from its folder in a bucket.

    Nothing is copied if the run has a result in the sweep's folder already.

    Args:
      run: the run.
      folder: its folder in the bucket; "" for none.
      workdir: the sweep's folder.

    Raises:
      UserError: the folder holds a run with another hash.
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
    for name in sorted(names, key=lambda name: name in LAST):
        files.write(local / name, (remote / name).read_bytes())


def fetch_all(
    runs: Sequence[store.Run], workdir: pathlib.Path, launcher: engine.Engine | None = None
) -> None:
    """Copies the files of runs from buckets; see `fetch`.

    A submitted run is copied from its recorded folder. Any other run is copied from its folder in
    the bucket of `launcher`.
    """
    submitted = read(workdir)
    for run in runs:
        if run.config_hash in submitted:
            fetch(run, submitted[run.config_hash].folder, workdir)
        elif isinstance(launcher, engine.Queue):
            fetch(run, bucket_folder(launcher, run), workdir)


def states(description: store.Description, workdir: pathlib.Path) -> dict[str, str]:
    """Returns the states of submitted runs in their engines, by config_hash.

    Also copies the files that these runs have written to buckets. A run whose job has ended is
    "lost", also if the run has a result. A run is "failed" if its folder in a bucket holds another
    run. A reason follows some states, as in "lost: slurm has no job 12_3 any more". If an engine
    does not answer, a warning is logged and its other runs have no state.
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
