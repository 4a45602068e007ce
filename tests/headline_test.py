"""What a sweep's page says first is what its tables say."""

import json

import numpy as np
import pytest

from experiments import table3
from experiments.analysis import comparison
from experiments.reporting import comparison_table, document, headline
from experiments.sweep import results
from tests import sweeps
from transformer_jax.evaluation import bleu


def column(workdir, title, head):
    """Cells of a table by row, of those that are not empty, as a reader of table3.md has them."""
    parts = (workdir / "table3.md").read_text(encoding="utf-8").split("## ")
    part = next(part for part in parts if part.startswith(title))
    lines = [line for line in part.splitlines() if line.startswith("|")]
    heads, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {line[0]: line[heads.index(head)] for line in lines if line[heads.index(head)]}


def words(workdir):
    """Verdicts by row, on the development set and on the test set."""
    return [
        {row: cell.split(" (")[0] for row, cell in column(workdir, title, "verdict").items()}
        for title in ("| row", "Test set")
    ]


ROW = "D P_drop=0.0"


@pytest.fixture
def scored(tmp_path):
    """A sweep whose test set is its development set, but that a row has nothing right in it."""
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), sentences=40))
    for path in tmp_path.glob("*/seed*/bleu_counts.json"):
        counts = np.array(json.loads(path.read_bytes())[bleu.MAIN])
        if path.parents[1].name == results.slug(ROW):
            counts[:, 2:6] = 0
        sweeps.keep_counts(path.parent, counts.tolist(), "test")
    return tmp_path


def remarks(workdir):
    return headline.remarks(comparison.compare(results.read(workdir)))


def test_rows_on_which_the_sets_differ_are_named_with_both_verdicts(scored):
    document.write(scored)
    here, there = words(scored)
    assert [row for row in here if here[row] != there[row]] == [ROW]
    assert remarks(scored)[0] == (
        f"The test set says the same of {len(here) - 1} of {len(here)} rows; it differs on "
        f"{ROW} ({here[ROW]}; test set: {there[ROW]})."
    )
    for path in scored.glob(f"{results.slug(ROW)}/seed*/bleu_counts.json"):
        counts = json.loads(path.with_name("test_bleu_counts.json").read_bytes())[bleu.MAIN]
        sweeps.keep_counts(path.parent, counts)
    assert remarks(scored)[0] == f"The test set says the same of {len(here)} of {len(here)} rows."


def test_each_row_that_has_run_and_has_no_verdict_is_named_with_the_reason(scored):
    for path in scored.glob("E/seed*/bleu_counts.json"):
        path.unlink()
    (said,) = [remark for remark in remarks(scored) if "no verdict" in remark]
    assert said == (
        "2 of the 4 rows have no verdict: base (what the others are compared with); "
        "E (position=learned) (its runs left no counts of sentences)."
    )


def test_a_sweep_without_verdicts_compares_the_signs_that_both_sets_show(scored):
    sweeps.set_record(scored, table="mine")
    (said,) = remarks(scored)
    assert f"it differs on {ROW} (" in said
    assert "test set: lower)" in said


def test_rows_of_a_scaled_base_are_called_alike_in_notes(tmp_path):
    rows = table3.rows_for(sweeps.base())
    chosen = ("base", "C N=2", "C N=4", "C N=8")
    sweeps.make(tmp_path, sweeps.Made({name: rows[name] for name in chosen}), missing=["C N=8"])
    sweep = results.read(tmp_path)
    notes = ["Not run: “C N=8”.", "C N=2, C N=4; C N=20 and AC N=2 are no rows"]
    assert headline.relabelled(notes, sweep) == [
        "Not run: “C N=4 (paper: 8)”.",
        "C N=1 (paper: 2), C N=2 (paper: 4); C N=20 and AC N=2 are no rows",
    ]
    assert remarks(tmp_path)[-1].endswith("C N=1 (paper: 2). Files and commands call it C N=2.")


def test_sizes_of_base_are_no_rows_name(tmp_path):
    rows = {"ours": {}, "N=3": {"model.num_layers": 2}}
    sweeps.make(tmp_path, sweeps.Made(rows, table="mine"))
    sweep = results.read(tmp_path)
    of_base = comparison_table.of_base(sweep)
    assert of_base.startswith("ours: N=3 ")
    assert headline.relabelled([of_base, "N=3 is low"], sweep) == [
        of_base,
        "N=2 (named N=3) is low",
    ]
