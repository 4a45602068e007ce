"""Runs on this machine: what is printed between them, and what is recorded when one fails."""

import json
import os
import pty

import pytest

from experiments import table3
from experiments.scheduling import local_runs, planning
from experiments.sweep import store
from launch import engine, local
from tests import sweeps
from transformer_jax import files

ONE_AT_A_TIME = local.Devices(1, [{}])
ROWS = ("base", "A h=1", "E")


class Prepared(planning.Work):
    """Runs whose process only moves a prepared result into place."""

    def local_jobs(self, *_):
        jobs = []
        for planned in self.runs:
            folder = planned.folder
            command = ["mv", str(folder / "prepared.json"), str(folder / "result.json")]
            jobs.append(engine.Job(planned.name, planned.label, command, folder / "log.txt"))
        return jobs


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Three runs, in the order of the table."""
    monkeypatch.setattr(local_runs, "IMPORTS", ())  # `mv` needs none
    rows = {name: sweeps.some_rows()[name] for name in ROWS}
    sweeps.make(tmp_path, sweeps.Made(rows, seeds=1))
    description = store.read(tmp_path)
    runs = []
    for run in description.runs:
        folder = tmp_path / store.folder_name(run)
        (folder / "result.json").rename(folder / "prepared.json")
        config = description.config(run.row)
        runs.append(planning.PlannedRun(run, config, {}, folder, {}))
    return Prepared("table3", runs, len(runs), tmp_path, tmp_path / "cache", {})


def run(work):
    return local_runs.run(work, table3.TABLE, ONE_AT_A_TIME, [])


def tables_in(text):
    """Returns the rows of each printed table."""
    found = []
    for line in text.splitlines():
        name = line.strip()
        if name.startswith("row ") and "PPL" in name:
            found.append([])
        for row in ROWS:
            if found and name.startswith(f"{row} ") and "seed" not in name:
                found[-1].append(row)
    return found


def test_the_rows_so_far_are_printed_after_each_run_but_the_last(work, capsys):
    assert run(work) == []
    printed = capsys.readouterr()
    assert tables_in(printed.out + printed.err) == [["base"], ["base", "A h=1"]]


def test_a_process_that_dies_without_a_word_is_recorded_as_a_failure(work, capsys):
    (work.runs[0].folder / "prepared.json").unlink()
    (message,) = run(work)
    assert message.startswith("base, seed 0: exit code 1: mv: cannot stat")
    failure = json.loads((work.runs[0].folder / "failure.json").read_text())
    assert failure["error"].startswith("exit code 1: mv: cannot stat")
    printed = capsys.readouterr()
    assert tables_in(printed.out + printed.err) == [["A h=1"]]


def test_a_failure_of_an_earlier_start_is_not_taken_for_this_ones(work):
    (work.runs[0].folder / "prepared.json").unlink()
    files.write_json(work.runs[0].folder / "failure.json", {"error": "an earlier error"})
    (message,) = run(work)
    assert message.startswith("base, seed 0: exit code 1: mv: cannot stat")


def test_on_a_terminal_the_rows_so_far_are_above_the_live_view(work, monkeypatch):
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "40")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setattr("sys.stderr", terminal)
        assert run(work) == []
    monkeypatch.undo()
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    heads = [line for line in seen.decode().splitlines() if "change" in line]
    assert len(heads) == 2
    assert "1 of 3   base, seed 0" in seen.decode()


def test_a_refused_run_is_reported_with_its_message_and_not_recorded(work, tmp_path):
    script = tmp_path / "refuse.sh"
    script.write_text("echo 'error: another process is at work'; echo step 4; exit 2")
    folder = work.runs[0].folder

    class Refused(Prepared):
        def local_jobs(self, *_):
            command = ["sh", str(script)]
            return [engine.Job("base, seed 0", "base", command, folder / "log.txt")]

    (message,) = run(Refused("table3", work.runs, 3, work.workdir, work.cache_dir, {}))
    assert message.startswith("base, seed 0: exit code 2: error: another process is at work (see")
    assert not (folder / "failure.json").exists()
