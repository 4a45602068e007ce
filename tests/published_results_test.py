"""Published tables are those of the published results."""

import re
import shutil

import pytest

from experiments.results import comparison, frames, report, tables
from tests import pages

PUBLISHED = pages.ROOT / "experiments/published"
SWEEPS = sorted(path.parent for path in PUBLISHED.glob("*/sweep.json"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", SWEEPS, ids=lambda path: path.name)
def test_published_tables_are_those_of_the_published_results(folder):
    compared = comparison.compare(frames.load(folder))
    document = report.build(compared)
    markdown, csv = ((folder / f"{compared.table.name}.{end}") for end in ("md", "csv"))
    expected = tables.markdown(document.tables, document.notes)
    assert markdown.read_text(encoding="utf-8") == expected
    assert csv.read_text(encoding="utf-8") == tables.csv(document.data)


@pytest.mark.parametrize("name", ["toy", "multi30k"])
@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_shows_table_3_in_25_lines_without_cutting_a_digit(
    name, width, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / name
    shutil.copytree(PUBLISHED / name, folder, ignore=shutil.ignore_patterns("model"))
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("COLUMNS", str(width))
    report.write(folder)
    *lines, path = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= width
    assert path == f"Wrote {folder / 'table3.csv'}"
    rows = comparison.compare(frames.load(folder)).answer_rows
    for row, score in rows["score"].items():
        assert any(line.startswith(str(row)) and f"{score:.2f}" in line for line in lines)
