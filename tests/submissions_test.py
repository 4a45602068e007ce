"""Runs that are submitted to engines: the record of their jobs, and what is copied from buckets."""

import json
import pathlib

import pytest

from experiments.scheduling import planning, submissions
from experiments.sweep import store
from launch import engine, local, slurm, xpk
from transformer_jax import errors, files


class Memory(engine.Queue):
    """An engine that keeps its jobs in memory, and may refuse one of them."""

    name = "memory"
    takes = frozenset({"bucket"})
    shares_disk = True

    def __init__(self, settings):
        super().__init__(settings)
        self.jobs: list[str] = []
        self.created: list[str] = []
        self.refused = ""

    def states(self, jobs):
        return {job: "running" for job in jobs if job in self.jobs}

    def submit(self, submission, record):
        labels = [job.label for job in submission.jobs]
        record(labels)
        if self.refused in labels:
            record([])
            raise engine.EngineError("no machines today")
        self.jobs += labels
        self.created += labels
        return "submitted"

    def cancel_command(self, job):
        return ["cancel", job]


@pytest.fixture
def memory(monkeypatch):
    queue = Memory(engine.Settings())
    monkeypatch.setitem(submissions.ENGINES, "memory", lambda settings: queue)
    return queue


class Echoes(planning.Work):
    """Runs whose commands do nothing."""

    def job(self, planned, python, workdir, cache_dir, *more):
        return engine.Job(planned.name, planned.label, ["echo"], planned.folder / "log.txt")


def planned_run(tmp_path, config, row="base", digit="1", source=None):
    run = store.Run(row, 0, digit * 64)
    folder = tmp_path / store.folder_name(run)
    return planning.PlannedRun(run, config, {}, folder, {}, source)


@pytest.fixture
def work(tmp_path, make_config):
    runs = [planned_run(tmp_path, make_config(), row, digit) for row, digit in ("b1", "E2")]
    return Echoes("table3", runs, 2, tmp_path, tmp_path / "cache", {})


def test_a_refused_submission_leaves_no_record(memory, work, tmp_path):
    memory.refused = work.runs[1].label
    with pytest.raises(engine.EngineError, match="no machines today"):
        submissions.submit(work, memory, [])
    assert submissions.read(tmp_path) == {}
    memory.refused = ""
    submissions.submit(work, memory, [])
    assert memory.jobs == [planned.label for planned in work.runs]
    assert submissions.read(tmp_path).keys() == {run.run.config_hash for run in work.runs}


def test_jobs_in_the_queue_are_not_submitted_again(memory, work, tmp_path):
    submissions.submit(work, memory, [])
    first, second = memory.jobs
    memory.jobs.remove(second)
    (tmp_path / submissions.NAME).unlink()  # then jobs are found by their labels
    submissions.submit(work, memory, [])
    assert memory.created == [first, second, second]
    memory.jobs.remove(first)
    description = store.Description(
        "table3", work.runs[0].config, {"b": {}, "E": {}}, [one.run for one in work.runs]
    )
    states = submissions.states(description, tmp_path)
    assert states["2" * 64] == "running"
    assert states["1" * 64].startswith("lost: memory has no job b-s0-11111111")


def test_a_run_that_another_engine_has_is_refused(memory, work, tmp_path):
    submissions.submit(work, memory, [])
    here = local.Local(engine.Settings())
    with pytest.raises(errors.UserError, match=r"b, seed 0: memory has a job of it.*cancel b-s0"):
        submissions.require_not_running(work.runs, tmp_path, here)
    changed = [planned_run(tmp_path, work.runs[0].config, "b", "3")]
    submissions.require_not_running(changed, tmp_path, here)  # its folder is another
    memory.jobs.clear()
    submissions.require_not_running(work.runs, tmp_path, here)
    submissions.forget(tmp_path, [work.runs[0].run])
    assert submissions.read(tmp_path).keys() == {"2" * 64}


@pytest.mark.parametrize("content", ["{", '{"1": {"launcher": "memory"}}', "[]"])
def test_a_damaged_record_is_refused_with_a_remedy(tmp_path, content):
    (tmp_path / submissions.NAME).write_text(content)
    with pytest.raises(errors.UserError, match=r"submissions\.json is damaged.*delete it once"):
        submissions.read(tmp_path)


def test_results_are_copied_from_the_bucket_without_checkpoints(tmp_path):
    workdir, bucket = tmp_path / "sweep", tmp_path / "bucket"
    queue = xpk.Xpk(engine.Settings(bucket=str(bucket)))
    run = store.Run("base", 0, "1" * 64)
    remote = pathlib.Path(submissions.bucket_folder(queue, run))
    assert remote == bucket / "base/seed0-11111111"
    files.write_json(remote / "run.json", {"config_hash": run.config_hash, "digests": {}})
    files.write_json(remote / "failure.json", {"error": "no memory"})
    files.write(remote / "checkpoints/4/array", b"x")
    local_folder = workdir / store.folder_name(run)
    submissions.fetch_all([run], workdir, queue)
    assert {path.name for path in local_folder.iterdir()} == {"run.json", "failure.json"}
    (remote / "failure.json").unlink()  # it runs again
    submissions.fetch_all([run], workdir, queue)
    assert {path.name for path in local_folder.iterdir()} == {"run.json"}
    (remote / "result.json").write_text("{}")
    submissions.fetch_all([run], workdir, queue)
    assert (local_folder / "result.json").exists()


def test_a_run_of_another_state_of_the_code_is_not_copied(tmp_path):
    queue = xpk.Xpk(engine.Settings(bucket=str(tmp_path / "bucket")))
    run = store.Run("base", 0, "1" * 64)
    remote = pathlib.Path(submissions.bucket_folder(queue, run))
    files.write_json(remote / "run.json", {"config_hash": "2" * 64, "digests": {}})
    with pytest.raises(errors.UserError, match="another state of the code or the text"):
        submissions.fetch_all([run], tmp_path / "sweep", queue)


@pytest.mark.parametrize("kind", [slurm.Slurm, xpk.Xpk])
def test_a_run_does_not_start_before_its_weights_are_on_its_disk(tmp_path, make_config, kind):
    source = planned_run(tmp_path, make_config(), "source", "1")
    config = make_config({"train.start_from": "source"})
    row = planned_run(tmp_path, config, "row", "2", source)
    weights = {source.run.config_hash: source.folder}
    work = planning.Work("mine", [row], 1, tmp_path, tmp_path / "cache", weights)
    queue = kind(engine.Settings(bucket=str(tmp_path / "bucket")))
    with pytest.raises(errors.UserError, match="row 'row' starts from the weights of row 'source'"):
        submissions.require_weights(work, queue)
    (row.folder / "checkpoints/2").mkdir(parents=True)  # it has started
    submissions.require_weights(work, queue)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give --bucket="),
        ({"bucket": "gs://bucket/x"}, "needs --accelerator"),
        ({"bucket": "gs://bucket/x", "accelerator": "H100:8"}, "data.train=/mine/train: other"),
    ],
)
def test_machines_with_their_own_disks_need_a_bucket_and_relative_paths(
    monkeypatch, make_config, settings, message
):
    monkeypatch.setattr(planning, "config_file", lambda: "configs/toy.py")
    config = make_config({"data.corpus": "text", "data.train": "/mine/train", "data.dev": "dev"})
    with pytest.raises(errors.UserError, match=message):
        submissions.check(engine.Settings(**settings), [config])


def test_the_record_is_readable(memory, work, tmp_path):
    submissions.submit(work, memory, [])
    record = json.loads((tmp_path / submissions.NAME).read_text())
    assert record["1" * 64] == {
        "launcher": "memory",
        "where": [],
        "job": work.runs[0].label,
        "folder": "",
    }
