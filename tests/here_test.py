"""What a sweep on this machine shows while it runs."""

import os
import pty

import pytest

from experiments.running import here
from experiments.sweep import cells as cells_lib
from experiments.sweep import results
from launch import engine, local
from tests import sweeps
from transformer_jax import config as config_lib

ONE = local.share("cpu", 1, 1)


class Made(cells_lib.Work):
    """Runs that only put a result in its place."""

    def jobs(self, *more):
        return [
            engine.Job(
                cell.name,
                cell.label,
                ["mv", str(cell.folder / "later.json"), str(cell.folder / "result.json")],
                cell.folder / "log.txt",
            )
            for cell in self.cells
        ]


@pytest.fixture
def work(tmp_path):
    """Three rows to run, in the table's order."""
    rows = {name: sweeps.some_rows()[name] for name in ("base", "A h=1", "E")}
    sweeps.make(tmp_path, sweeps.Made(rows, seeds=1))
    cells = []
    for row, overrides in rows.items():
        folder = results.cell_folder(tmp_path, row, 0)
        (folder / "result.json").rename(folder / "later.json")
        config = config_lib.replace(sweeps.base(), overrides)
        cells.append(cells_lib.Cell(row, 0, config, overrides, folder, ""))
    return Made("table3", cells, len(cells), tmp_path, tmp_path / "cache")


def tables_in(text):
    """For each printed table the rows that it has."""
    found = []
    for line in text.splitlines():
        name = line.strip()
        if name.startswith("row ") and "PPL" in name:
            found.append([])
        for row in ("base", "A h=1", "E"):
            if found and name.startswith(row + " ") and "seed" not in name:
                found[-1].append(row)
    return found


def test_after_each_run_that_ends_the_table_so_far_is_printed(work, capsys):
    assert here.run(work, ONE, []) == []
    # After the last one comes the whole table, which is another's to print.
    assert tables_in(capsys.readouterr().out) == [["base"], ["base", "A h=1"]]


def test_a_run_without_a_result_is_no_row_of_it(work, capsys):
    (work.cells[0].folder / "later.json").unlink()
    assert len(here.run(work, ONE, [])) == 1
    assert tables_in(capsys.readouterr().out) == [["A h=1"]]


def test_on_a_terminal_it_stands_above_what_follows_the_runs(work, monkeypatch):
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "40")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setattr("sys.stderr", terminal)
        assert here.run(work, ONE, []) == []
    monkeypatch.undo()
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    heads = [line for line in seen.decode().splitlines() if "− base" in line]
    assert len(heads) == 2
    assert "1 of 3   base, seed 0" in seen.decode()
