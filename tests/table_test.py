"""A table is one object: a new one is one file, and no other file knows its name."""

import csv
import dataclasses
import io
import pathlib
import re
import runpy
import shutil
import statistics
import subprocess
import sys
import types

import pytest
import rich.console

import experiments
from experiments import eras, families, table2, table3, variations
from experiments.analysis import comparison
from experiments.reporting import comparison_table, document, headline
from experiments.sweep import results, table
from tests import pages, sweeps, tiny
from transformer_jax import errors, paper
from transformer_jax.drawing import tables

MINE = '''
"""Three rows, one of which the paper has."""

from experiments.sweep import table
from transformer_jax import flags, paper
from transformer_jax.drawing import tables


def count(sweep):
    lines = [[row.name, str(len(row.results))] for row in sweep.rows]
    return table.Section([tables.Printed(["row", "runs"], lines, "Counted")], ["Counted by hand."])


TABLE = table.Table(
    "trial_table",
    "A table of mine",
    lambda base: {
        "base": {},
        "A h=1": {"model.num_heads": 1},
        "slow": {"train.warmup_steps": 2 * base.train.warmup_steps},
    },
    reported={"base": paper.Reported(4.0, 30.0), "A h=1": paper.Reported(5.0, 28.5)},
    least_seeds=lambda row: 2 if row == "slow" else 1,
    sections=(count,),
)

if __name__ == "__main__":
    from experiments.running import runner

    flags.run(lambda: runner.main(TABLE))
'''
NUMBERS = paper.Reported(4.0, 30.0)
COMMAND = """
import runpy, sys, experiments
folder, sys.argv = sys.argv[1], sys.argv[2:]
experiments.__path__.append(folder)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def floor(tmp_path, monkeypatch):
    """A folder whose modules are commands of experiments."""
    folder = tmp_path / "floor"
    folder.mkdir()
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(folder)])
    return folder


def test_the_table_that_the_page_shows_is_whole(tmp_path):
    page = (pages.ROOT / "docs/howto/sweeps.md").read_text(encoding="utf-8")
    (module,) = re.findall(r"```python\n([^`]*^TABLE = [^`]*)```", page, re.MULTILINE)
    (tmp_path / "warmth.py").write_text(module, encoding="utf-8")
    warmth = runpy.run_path(str(tmp_path / "warmth.py"))["TABLE"]

    def longest(sweep):
        lines = [[row.name, str(max(row.of("steps"), default=""))] for row in sweep.rows]
        return table.Section([tables.Printed(["row", "steps"], lines, "Steps")], ["A note below."])

    warmth = dataclasses.replace(warmth, sections=(longest,))
    rows = warmth.rows(sweeps.base())
    sweeps.make(tmp_path / "sweep", sweeps.Made(rows, table="warmth"), missing=["long"])
    document.write(tmp_path / "sweep", table=warmth)
    markdown = (tmp_path / "sweep/warmth.md").read_text(encoding="utf-8")
    for line in ("## Steps", "| long |  |", "A note below."):
        assert f"\n{line}\n" in markdown


@pytest.mark.slow
def test_a_new_module_is_a_new_table_with_its_columns_title_seeds_and_sections(server, tmp_path):
    (tmp_path / "trial_table.py").write_text(MINE, encoding="utf-8")
    workdir = tmp_path / "sweep"

    def run(module, *arguments):
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, str(tmp_path), f"experiments.{module}", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**server.environment, "COLUMNS": "200"},
        )
        assert done.returncode == 0, done.stderr

    values = {**tiny.OVERRIDES, "train.num_steps": 2}
    fields = [f"--config.{name}={value}" for name, value in values.items()]
    run("trial_table", "--config=configs/toy.py", *fields, f"--workdir={workdir}")
    written = {name: (workdir / name).read_text() for name in ("trial_table.md", "trial_table.csv")}
    assert "## Counted" in written["trial_table.md"]
    assert "| slow | 2 |" in written["trial_table.md"]
    assert "Counted by hand." in written["trial_table.md"]
    lines = {line["row"]: line for line in csv.DictReader(written["trial_table.csv"].splitlines())}
    assert list(lines) == ["base", "A h=1", "slow"]
    assert lines["A h=1"]["paper_bleu_minus_base"] == "-1.5"
    assert [lines[row]["seeds"] for row in lines] == ["1", "1", "2"]
    for name in (*written, "report.html"):
        (workdir / name).unlink()
    run("report", f"--workdir={workdir}")
    assert {name: (workdir / name).read_text() for name in written} == written
    assert "<title>A table of mine</title>" in (workdir / "report.html").read_text()


def test_an_object_is_enough_for_a_report(tmp_path, capsys, caplog):
    rows = {"base": {}, "x": {"model.d_k": 4}, "y": {"model.d_k": 2}}
    sweeps.make(tmp_path, sweeps.Made(rows, table="trial_table"))
    shown = table.Section([tables.Printed(["head"], [["cell"]])], ["A note."])
    mine = table.Table(
        "trial_table",
        "Mine",
        lambda base: rows,
        reported={"base": NUMBERS},
        reported_on="Europarl",
        sections=[lambda sweep: shown],
        latex=lambda compared: f"{len(compared.gaps)} differences",
    )
    document.write(tmp_path, table=mine)
    markdown = (tmp_path / "trial_table.md").read_text()
    assert "paper: BLEU" in markdown
    assert "The paper's columns: Europarl;" in markdown
    assert "| cell |" in markdown
    assert markdown.endswith("A note.\n")
    assert '"trial_table.tex":"2 differences"' in (tmp_path / "report.html").read_text()
    assert "A note." in capsys.readouterr().out

    def broken(sweep):
        raise KeyError("f2")

    with pytest.raises(KeyError, match="f2"):
        document.write(tmp_path, table=dataclasses.replace(mine, sections=[broken, *mine.sections]))
    assert re.search(r"trial_table lacks its section .*broken, which fails", caplog.text)
    assert capsys.readouterr().out
    assert (tmp_path / "trial_table.md").read_text() == markdown
    lacks = table.Table("trial_table", "Mine", lambda base: rows, needed=["z"])
    with pytest.raises(errors.UserError, match=r"lacks rows that claims compare \(z\)"):
        document.write(tmp_path, table=lacks)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reported": {"base": NUMBERS, "X": NUMBERS}}, r"reported: there is no row 'X'"),
        ({"reported": {"x": NUMBERS}}, r"reported lacks 'base', the base of the others"),
        ({"name": "mien"}, r"mine\.py names its table 'mien': give it the file's name"),
    ],
)
def test_a_table_whose_report_would_lack_something_is_refused(monkeypatch, changes, message):
    rows = {"base": {}, "x": {"model.d_k": 4}}
    mine = table.Table("mine", "Mine", lambda base: rows, reported={"base": NUMBERS})
    changed = dataclasses.replace(mine, **changes)
    command = types.SimpleNamespace(__file__="experiments/mine.py", TABLE=mine)
    monkeypatch.setitem(sys.modules, "__main__", command)
    with pytest.raises(errors.UserError, match=r"would not find the table of experiments/mine\.py"):
        table.require_sound(mine, rows)
    monkeypatch.setattr(table, "names", lambda: ["mine"])
    table.require_sound(mine, rows)
    command.TABLE = changed
    with pytest.raises(errors.UserError, match=message):
        table.require_sound(changed, rows)


@pytest.mark.parametrize(("width", "whole"), [(60, True), (30, False)])
def test_a_terminal_breaks_no_number_and_no_word_if_it_has_room(width, whole):
    lines = [
        ["A h=1", "h=1 d_k=128 position=learned", "5.925 ± 0.021", "undecided (detectable: 2.1)"],
        ["B", "d_k=4", "-12.5", "reproduced"],
    ]
    written = io.StringIO()
    console = rich.console.Console(width=width, file=written)
    console.print(
        tables.Printed(["row", "values", "paper: PPL", "verdict"], lines, "A title", "A note.")
    )
    shown = written.getvalue()
    assert all(len(line) <= width for line in shown.splitlines())
    assert "A title" in shown
    assert "A note." in shown
    words = {"5.925 ± 0.021", "-12.5", "position=learned", "undecided", "reproduced", "paper: PPL"}
    assert all(word in shown for word in words) == whole


def test_rows_of_several_corpora_are_not_compared(tmp_path):
    rows = {"base EN-DE": {}, "base EN-FR": {"model.d_k": 4}}
    sweeps.make(tmp_path, sweeps.Made(rows, table="trial_table"))
    mine = table.Table("trial_table", "Mine", lambda base: rows, corpus=lambda row: row.split()[-1])
    document.write(tmp_path, table=mine)
    found = csv.DictReader((tmp_path / "trial_table.csv").read_text().splitlines())
    assert [line["bleu_minus_base"] for line in found] == ["", ""]


def test_each_table_is_found_under_the_name_of_its_module():
    assert {"eras", "families", "table2", "table3", "variations"} <= {*table.names()}
    for module in (eras, families, table2, table3, variations):
        assert table.find(module.__name__.split(".")[-1]) is module.TABLE
        assert module.TABLE.name == module.__name__.split(".")[-1]


@pytest.mark.parametrize("name", ["boom", "os", "report", "sweep", "__init__", "reporting.page"])
def test_no_module_but_a_tables_is_imported_whatever_a_sweep_names(floor, tmp_path, name):
    marker = tmp_path / "it ran"
    code = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
    (floor / "boom.py").write_text(f"{code}# TABLE = table\ndef f():\n    TABLE = 3\n")
    before = set(sys.modules)
    found = table.find(name)
    assert (found.name, found.title, found.reported) == (name, name, {})
    assert set(sys.modules) == before
    assert not marker.exists()


def test_a_table_beside_the_results_is_not_the_floors(tmp_path, monkeypatch):
    marker = tmp_path / "it ran"
    sweeps.make(tmp_path, sweeps.Made({"base": {}}, table="trial_table"))
    code = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\nTABLE = 3\n"
    (tmp_path / "trial_table.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    document.write(tmp_path)
    assert not marker.exists()
    assert results.read(tmp_path).table == "trial_table"


def test_a_sweep_whose_base_has_not_run_says_so(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows()), missing=["base"])
    document.write(tmp_path)
    markdown = (tmp_path / "table3.md").read_text(encoding="utf-8")
    assert "Nothing is compared with base, which has no run yet." in markdown


@pytest.mark.parametrize(
    ("value", "form", "written"),
    [
        (-0.004, "+.2f", "+0.00"),
        (-0.04, "+.1f", "+0.0"),
        (-1.5, "+.2f", "−1.50"),
        (0.5, "+.0%", "+50%"),
        (-0.004, ".2f", "0.00"),
        (-0.2, ".2f", "−0.20"),
    ],
)
def test_what_rounds_to_0_has_no_minus(value, form, written):
    assert tables.signed(value, form) == written


def test_one_seed_is_sure_of_nothing_where_no_paper_judges(tmp_path):
    rows = {"base": {}, "low": {"model.d_ff": 16}}
    sweeps.make(tmp_path, sweeps.Made(rows, table="mine", seeds=1, sentences=40))
    compared = comparison.compare(results.read(tmp_path))
    gap = dataclasses.replace(compared.gaps["low"], mean=-9.0, half=1.0)
    assert "lowest" in headline.summary(dataclasses.replace(compared, gaps={"low": gap}))
    known = dataclasses.replace(gap, knows_spread=True)
    assert "hurts most" in headline.summary(dataclasses.replace(compared, gaps={"low": known}))


def test_rows_of_parsers_are_compared_by_f1_in_any_table(tmp_path):
    published = pathlib.Path(experiments.__file__).parent / "published/toy_parsing"
    shutil.copytree(published, tmp_path / "mine")
    sweeps.set_record(tmp_path / "mine", table="mine")
    sweep = results.read(tmp_path / "mine")
    found = comparison_table.document(comparison.compare(sweep))
    for row, line in zip(sweep.rows, csv.DictReader(io.StringIO(found.csv)), strict=True):
        assert float(line["f1"]) == pytest.approx(
            statistics.mean(parses["f1"] for parses in row.of("parses"))
        )
    shown, so_far = found.shown[0], comparison_table.so_far(sweep)
    assert shown.heads[3] == so_far.heads[3] == "F1"
    assert [line[3].split(" ")[0] for line in shown.lines] == [line[3] for line in so_far.lines]
