"""What is expected of a row: read, kept with its day, and shown beside what came."""

import datetime
import json

import pytest

from experiments.reporting import document
from experiments.sweep import expectations, results, rows
from tests import sweeps
from transformer_jax import errors

FIRST, LATER = datetime.date(2026, 1, 2), datetime.date(2026, 3, 4)


def test_a_sweeps_file_says_why_and_what_is_expected(tmp_path):
    path = tmp_path / "sweep.py"
    path.write_text('ROWS = {"slow": {}}\nWHY = {"slow": "w"}\nEXPECT = {"slow": "e"}\n')
    texts = expectations.read(path, rows.run(path))
    assert texts == expectations.Texts({"slow": "w"}, {"slow": "e"})
    path.write_text('EXPECT = {"slow": 3}\n')
    with pytest.raises(errors.UserError, match="EXPECT should have names of rows and texts"):
        expectations.read(path, rows.run(path))


def keep(workdir, said):
    record = json.loads((workdir / "sweep.json").read_bytes())
    (workdir / "sweep.json").write_text(json.dumps({**record, "said": said}))


def test_a_text_keeps_its_day_and_one_that_changes_after_a_run_says_so(tmp_path):
    rows = sweeps.some_rows()
    texts = expectations.Texts(expect={"A h=1": "lower", "E": "the same"})
    said = expectations.recorded(texts, rows, [tmp_path], FIRST)
    assert said["A h=1"] == {
        "why": "", "expect": "lower", "date": "2026-01-02", "when": expectations.BEFORE
    }  # fmt: skip
    sweeps.make(tmp_path, sweeps.Made(rows), missing=["E"])
    keep(tmp_path, said)
    assert expectations.recorded(texts, rows, [tmp_path], LATER) == said
    changed = expectations.Texts(expect={"A h=1": "higher", "E": "higher"})
    later = expectations.recorded(changed, rows, [tmp_path], LATER)
    assert [later[row]["when"] for row in ("A h=1", "E")] == [
        expectations.AFTER, expectations.BEFORE
    ]  # fmt: skip
    assert later["A h=1"]["date"] == "2026-03-04"
    begun = tmp_path / "E" / "seed0.01234567"  # a run that was set aside
    begun.mkdir(parents=True)
    (begun / "metrics.jsonl").write_text("{}\n")
    later = expectations.recorded(changed, rows, [tmp_path], LATER)
    assert later["E"]["when"] == expectations.AFTER
    with pytest.raises(errors.UserError, match="names the row 'A'; there are 'base', 'A h=1'"):
        expectations.recorded(expectations.Texts({"A": "x"}), rows, [tmp_path], FIRST)


def test_runs_that_are_taken_over_were_before_a_text_or_bring_its_day(tmp_path):
    new, other = tmp_path / "new", tmp_path / "other"
    rows = sweeps.some_rows()
    texts = expectations.Texts(expect={"A h=1": "lower", "E": "the same"})
    said = expectations.recorded(texts, rows, [other], FIRST)
    sweeps.make(other, sweeps.Made(rows), missing=["E"])
    found = expectations.recorded(texts, rows, [new, other], LATER)
    assert [found[row]["when"] for row in ("A h=1", "E")] == [
        expectations.AFTER, expectations.BEFORE
    ]  # fmt: skip
    keep(other, said)
    assert expectations.recorded(texts, rows, [new, other], LATER) == said
    sweeps.make(new, sweeps.Made(rows), missing=["E"])  # which had runs of its own, but no text
    found = expectations.recorded(texts, rows, [new, other], LATER)
    assert [found[row]["when"] for row in ("A h=1", "E")] == [
        expectations.AFTER, expectations.BEFORE
    ]  # fmt: skip


def test_the_report_shows_it_beside_what_came(tmp_path):
    rows = sweeps.some_rows()
    sweeps.make(tmp_path, sweeps.Made(rows), missing=["E"])
    texts = expectations.Texts({"A h=1": "one head sees less"}, {"A h=1": "lower", "E": "a tie"})
    keep(tmp_path, expectations.recorded(texts, rows, [tmp_path / "none"], FIRST))
    assert set(results.read(tmp_path).said) == {"A h=1", "E"}
    document.write(tmp_path)
    lines = (tmp_path / "table3.md").read_text(encoding="utf-8").splitlines()
    found = next(line for line in lines if line.startswith("| A h=1 | one head sees less | lower"))
    assert "2026-01-02, before its runs | " in found
    assert " BLEU" in found
    assert "| E |  | a tie | 2026-01-02, before its runs | not run |" in lines
