"""Jobs as engines take them, and the record of runs that were submitted."""

import dataclasses
import json
import pathlib
import re

import pytest

from experiments.running import handing_over
from experiments.sweep import cells, results
from launch import engine, local, slurm, xpk
from transformer_jax import errors


class Memory(engine.Queue):
    """A queue of names, by way of `engine.ask`, that refuses to create one of them."""

    name = "memory"
    takes = frozenset({"bucket"})
    shares_disk = True

    def __init__(self, settings):
        super().__init__(settings)
        self.jobs: list[str] = []
        self.calls: list[list[str]] = []
        self.refused = ""

    def answer(self, command, *_, **__):
        """Carries out a command: ["create", NAME] or ["cancel", NAME]."""
        self.calls.append(list(command))
        if command == ["create", self.refused]:
            raise engine.EngineError("no machines today")
        if command[0] == "create":
            self.jobs.append(command[1])
        else:
            self.jobs = [name for name in self.jobs if name != command[1]]
        return ""

    def states(self, jobs):
        return {job: "running" for job in jobs if job in self.jobs}

    def submit(self, submission, record):
        self.submit_each({job.label: ["create", job.label] for job in submission.jobs}, record)
        return "submitted"

    def cancel_command(self, job):
        return ["cancel", job]


@pytest.fixture
def memory(monkeypatch):
    queue = Memory(engine.Settings())
    monkeypatch.setitem(handing_over.QUEUES, "memory", lambda settings: queue)
    monkeypatch.setattr(engine, "ask", queue.answer)
    return queue


class Echoes(cells.Work):
    """Runs whose commands do nothing."""

    def jobs(self, *more):
        return [
            engine.Job(cell.name, cell.label, ["echo"], cell.folder / "log.txt")
            for cell in self.in_order()
        ]


@pytest.fixture
def work(tmp_path, make_config):
    """Two runs, of which the second has failed before."""
    both = [
        cells.Cell(row, 0, make_config(), {}, tmp_path / row / "seed0", digit * 64)
        for row, digit in (("base", "1"), ("E", "2"))
    ]
    both[1].folder.mkdir(parents=True)
    (both[1].folder / "failure.json").write_text('{"error": "x"}')
    return Echoes("table3", both, 2, tmp_path, tmp_path / "cache")


def test_if_one_job_is_refused_all_are_taken_back(memory, work, tmp_path):
    names = [cell.label for cell in work.cells]
    memory.refused = names[1]
    with pytest.raises(engine.EngineError, match="no machines today"):
        handing_over.start(work, memory, [])
    assert memory.calls == [
        *(["create", name] for name in names),
        *(["cancel", name] for name in reversed(names)),
    ]
    assert json.loads((tmp_path / "submissions.json").read_text())["submissions"] == []
    assert (work.cells[1].folder / "failure.json").exists()  # it was not started again
    memory.refused = ""
    handing_over.start(work, memory, [])
    assert memory.jobs == names
    assert not (work.cells[1].folder / "failure.json").exists()


def test_jobs_in_the_queue_are_not_submitted_again(memory, work, tmp_path, monkeypatch):
    handing_over.start(work, memory, [])
    first, second = [cell.label for cell in work.cells]
    memory.jobs.remove(second)
    handing_over.start(work, memory, [])
    created = [name for what, name in memory.calls if what == "create"]
    assert created == [first, second, second]
    memory.jobs.remove(first)
    record = {"digests": [cell.digest for cell in work.cells]}
    monkeypatch.setattr(results, "read_record", lambda workdir: record)
    found = handing_over.states(tmp_path)
    assert found["E", 0] == "running"
    assert found["base", 0].startswith("lost: memory has no job")


def test_another_launcher_is_refused_while_the_first_has_jobs(memory, work, tmp_path):
    handing_over.start(work, memory, [])
    here = local.Local(engine.Settings())
    message = "base, seed 0: its launcher has changed, and memory has a job of it.*cancel base-s0"
    with pytest.raises(errors.UserError, match=message):
        handing_over.require_no_other(work.cells, tmp_path, here)
    edited = [dataclasses.replace(cell, digest="3" * 64) for cell in work.cells]
    with pytest.raises(errors.UserError, match="its config has changed, and memory has a job"):
        handing_over.require_no_other(edited, tmp_path, memory)
    memory.jobs.clear()
    handing_over.require_no_other(work.cells, tmp_path, here)
    (tmp_path / "submissions.json").write_text("{")
    with pytest.raises(errors.UserError, match=r"submissions\.json is damaged"):
        handing_over.remembered(tmp_path)


def test_what_was_run_again_keeps_no_word_of_its_earlier_failure(tmp_path):
    names = ("done", "failed", "stopped", "waiting")
    paths = [tmp_path / name / "failure.json" for name in names]
    for path in paths:
        path.parent.mkdir()
        path.write_text("earlier")

    def run():
        with cells.without_failures(paths, begun := set()):
            (tmp_path / "done/result.json").touch()
            paths[1].write_text("later")
            begun.update(path.parent for path in paths[:3])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert [path.exists() for path in paths] == [False, True, False, True]
    assert [path.read_text() for path in paths[1::2]] == ["later", "earlier"]


def test_what_was_left_elsewhere_is_found_from_anywhere(tmp_path, make_config):
    cell = cells.Cell("base", 0, make_config(), {}, tmp_path / "sweep/base/seed0", "0f3a9c12" * 8)
    queue = xpk.Xpk(engine.Settings(bucket=str(tmp_path / "bucket")))
    given = handing_over.given(cell, queue)
    there = pathlib.Path(given.there)
    there.mkdir(parents=True)
    (there / "run.json").write_text(json.dumps({"config_hash": cell.digest, "digests": {}}))
    (there / "result.json").write_text("{}")
    (tmp_path / "sweep").mkdir()
    handing_over.remember(tmp_path / "sweep", queue, {cell.key: given})
    other = dataclasses.replace(cell, digest="1" * 64)
    handing_over.fetch([other], tmp_path / "sweep", queue)
    assert not cell.folder.exists()
    handing_over.fetch([cell], tmp_path / "sweep", queue)
    assert (cell.folder / "result.json").exists()
    handing_over.forget(tmp_path / "sweep", [cell])
    assert handing_over.remembered(tmp_path / "sweep")[1] == {}


@pytest.mark.parametrize("kind", [slurm.Slurm, xpk.Xpk])
def test_what_begins_elsewhere_with_weights_that_are_not_there_is_refused(
    tmp_path, make_config, kind
):
    config = make_config({"train.start_from": "source"})
    cell = cells.Cell("row", 0, config, {}, tmp_path / "row/seed0", "0f3a9c12" * 8)
    queue = kind(engine.Settings(bucket=str(tmp_path / "bucket")))
    says = "not there yet" if queue.shares_disk else "not on that disk"
    with pytest.raises(errors.UserError, match=f"row 'row' starts from the weights.*{says}"):
        handing_over.require_own_weights([cell], queue)
    given = handing_over.given(cell, queue)
    begun = pathlib.Path(given.there) if given.there else cell.folder
    (begun / "checkpoints/2").mkdir(parents=True)
    handing_over.require_own_weights([cell], queue)


@pytest.mark.parametrize("row", ["A h=1", "1", "Ä", "x" * 90, "-"])
def test_labels_are_names_that_engines_take(row, make_config):
    cell = cells.Cell(row, 3, make_config(), {}, pathlib.Path("x"), "0f3a9c12" * 8)
    label = cell.label
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", label)  # GKE's
    assert len(label) <= 40
