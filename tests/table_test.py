"""A table is one object: a new one is one file, and no other file knows its name."""

import csv
import dataclasses
import re
import runpy
import subprocess
import sys
import types

import pandas as pd
import pytest

import experiments
from configs import toy_parsing
from experiments import eras, families, table2, table3, variations
from experiments.results import answers, comparison, documents, frames, report, tables
from experiments.sweep import table
from tests import pages, sweeps, tiny
from transformer_jax import config as config_lib
from transformer_jax import errors, paper

MINE = '''
"""Three rows, one of which the paper has."""

from experiments.results import documents, tables
from experiments.sweep import table
from transformer_jax import flags, paper


def count(compared):
    columns = [tables.Column("row"), tables.Column("runs", "seeds", "d")]
    counted = tables.Table(compared.rows, columns, "Counted")
    return documents.Section([counted], ["Counted by hand."])


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
    from experiments.scheduling import runner

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


def test_the_table_that_the_guide_shows_is_whole(tmp_path):
    page = (pages.ROOT / "docs/howto/sweeps.md").read_text(encoding="utf-8")
    (module,) = re.findall(r"```python\n([^`]*^TABLE = [^`]*)```", page, re.MULTILINE)
    (tmp_path / "warmth.py").write_text(module, encoding="utf-8")
    warmth = runpy.run_path(str(tmp_path / "warmth.py"))["TABLE"]

    rows = warmth.rows(sweeps.base())
    sweeps.make(tmp_path / "sweep", sweeps.Made(rows, table="warmth"), missing=["long"])
    report.write(tmp_path / "sweep", table=warmth)
    assert (tmp_path / "sweep/warmth.md").read_text(encoding="utf-8").startswith("| row |")


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


def test_an_object_is_enough_for_a_report(tmp_path):
    rows = {"base": {}, "x": {"model.d_k": 4}, "y": {"model.d_k": 2}}
    sweeps.make(tmp_path, sweeps.Made(rows, table="trial_table"))
    further = documents.Section(
        [tables.Table(pd.DataFrame({"head": ["cell"]}), [tables.Column("head")])], ["A note."]
    )
    mine = table.Table(
        "trial_table",
        "Mine",
        lambda base: rows,
        reported={"base": NUMBERS, "x": NUMBERS},  # and none of y
        reported_on="Europarl",
        sections=[lambda compared: further],
        latex=lambda compared: f"{len(compared.rows)} rows",
    )
    report.write(tmp_path, table=mine)
    markdown = (tmp_path / "trial_table.md").read_text()
    assert "paper: BLEU" in markdown
    assert "paper: Europarl." in markdown
    assert "| cell |" in markdown
    assert markdown.endswith("A note.\n")
    compared = comparison.compare(frames.load(tmp_path), mine)
    assert report.build(compared).latex == "3 rows"
    lacks = table.Table("trial_table", "Mine", lambda base: rows, needed=["z"])
    with pytest.raises(errors.UserError, match=r"lacks rows that claims compare \(z\)"):
        report.write(tmp_path, table=lacks)


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


def test_rows_of_several_corpora_are_not_compared(tmp_path):
    rows = {"base EN-DE": {}, "base EN-FR": {"model.d_k": 4}}
    sweeps.make(tmp_path, sweeps.Made(rows, table="trial_table"))
    mine = table.Table("trial_table", "Mine", lambda base: rows, corpus=lambda row: row.split()[-1])
    report.write(tmp_path, table=mine)
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
    report.write(tmp_path)
    assert not marker.exists()
    assert frames.load(tmp_path).description.table == "trial_table"


def test_a_sweep_whose_base_has_not_run_says_so(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows()), missing=["base"])
    report.write(tmp_path)
    markdown = (tmp_path / "table3.md").read_text(encoding="utf-8")
    assert "There are no differences: base has not run." in markdown


def test_one_seed_is_not_tested_and_further_runs_of_base_are_enough(tmp_path):
    rows = {"base": {}, "low": {"model.d_ff": 16}}
    sweeps.make(tmp_path, sweeps.Made(rows, table="mine", seeds=1, sentences=40))
    sweeps.spoil(sweeps.folder(tmp_path, "low"))
    compared = comparison.compare(frames.load(tmp_path))
    line = compared.rows.loc["low"]
    assert (line["over_seeds"], line["significant"], line["verdict"]) == (
        False,
        False,
        "not resolved",
    )
    assert line["half_width"] > 0
    assert "Not tested, as nothing is known of seed noise: 1 row." in answers.summary(compared)
    assert "not resolved (one seed)" in report.build(compared).tables[0].cells()[1]
    sweeps.add_seeds(tmp_path, "base", 5)
    compared = comparison.compare(frames.load(tmp_path))
    line = compared.rows.loc["low"]
    assert (line["over_seeds"], line["significant"], line["verdict"]) == (True, True, "worse")
    assert answers.summary(compared)[0].startswith("Worse than base in BLEU on the development set")


def test_a_table_has_a_column_of_verdicts_for_each_measure(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=3, sentences=40, tested=True))
    compared = comparison.compare(frames.load(tmp_path))
    document = report.build(compared)
    heads = [column.full_head for column in document.tables[0].columns]
    for head in ("BLEU: − base", "PPL: ln PPL − base", "BLEU: says", "PPL: says"):
        assert heads.count(head) == 1
    (legend,) = [note for note in document.notes if "mostly would be seen" in note]
    assert "within ±0.5 BLEU, or ±3% of perplexity" in legend
    data = document.data
    for column in ("verdict", "log_ppl_verdict", "log_ppl_minus_base"):
        assert data[column].notna().sum() == data[f"test_{column}"].notna().sum() == 3
    report.write(tmp_path)
    assert len(pd.read_csv(tmp_path / "runs.csv")) == 12


def test_a_row_that_failed_to_train_has_no_difference(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=3, sentences=40))
    folder = sweeps.folder(tmp_path, "A h=1", 1)
    sweeps.change(folder, ppl=1000.0)
    (folder / "metrics.jsonl").unlink()
    compared = comparison.compare(frames.load(tmp_path))
    line = compared.rows.loc["A h=1"]
    assert compared.failed == {"A h=1": [1]}
    assert line["verdict"] == line["log_ppl_verdict"] == "failed 1 of 3"
    assert pd.isna(line["difference"])
    others = [
        score for seed, score in enumerate(compared.sweep.values("A h=1", "bleu")) if seed != 1
    ]
    assert line["score"] == pytest.approx(sum(others) / 2)
    for measured in compared.dev.measured.values():
        assert set(measured.gaps) == {"D P_drop=0.0", "E"}
        assert "A h=1" not in measured.means.pooled
    assert compared.dev.tau_of_all
    assert "A h=1: 2 of 3 runs learned" in " ".join(report.build(compared).notes)
    assert "8→1 heads: 1 of 3 seeds failed to train." in answers.summary(compared)


def test_rows_with_equal_settings_are_tested_once(tmp_path):
    rows = {"base": {}, "low": {"model.d_ff": 16}, "copy": {}, "again": {"model.d_ff": 16}}
    made = sweeps.Made(rows, table="mine", seeds=2, sentences=40)
    sweeps.make(tmp_path, made, missing=["copy", "again"])
    measured = comparison.compare(frames.load(tmp_path)).dev.score
    assert measured
    assert list(measured.means.runs) == ["base", "low"]
    assert measured.verdicts["again"] == measured.verdicts["low"]
    assert list(measured.gaps) == ["low", "again"]
    # Holm's correction is for one test.
    assert measured.verdicts["low"].p_value == measured.gaps["low"].p_value(
        abs(measured.gaps["low"].mean)
    )


def test_rows_of_parsers_are_compared_by_f1_in_any_table():
    parsing = config_lib.from_mapping(toy_parsing.get_config().to_dict())
    assert table.of_corpus("mine", parsing).measure == "f1"
    assert table.of_corpus("mine", sweeps.base()).measure == "bleu"
