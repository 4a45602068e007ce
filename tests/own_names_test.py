"""Names of rows as they are shown, and results that cannot be compared with them."""

import pytest

from experiments import table3
from experiments.analysis import comparison
from experiments.reporting import comparison_table, translations
from experiments.sweep import results
from tests import sweeps
from transformer_jax import errors
from transformer_jax.evaluation import bleu, measures

# Of a base of 3 layers, d_model 32, d_ff 32 and keys of 8; the paper's are 6, 512, 2048 and 64.
SCALED = {
    "B d_k=16": ("B d_k=2", "16"),
    "B d_k=32": ("B d_k=4", "32"),
    "C N=2": ("C N=1", "2"),
    "C N=4": ("C N=2", "4"),
    "C N=8": ("C N=4", "8"),
    "C d_model=256": ("C d_model=16", "256"),
    "C d_model=1024": ("C d_model=64", "1024"),
    "C d_ff=1024": ("C d_ff=16", "1024"),
    "C d_ff=4096": ("C d_ff=64", "4096"),
    "E": ("E (position=learned)", ""),
}


def test_rows_of_a_scaled_base_have_their_own_sizes_in_their_names(tmp_path):
    rows = table3.rows_for(sweeps.base())
    sweeps.make(tmp_path, sweeps.Made(rows, seeds=1))
    found = results.read(tmp_path).rows
    names = {row.name: comparison_table.own_name(row, found[0]) for row in found}
    assert names == {name: SCALED.get(name, (name, "")) for name in rows}


def test_counts_of_other_sentences_are_refused_and_both_files_named(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=1))
    for row, sentences in (("base", 12), ("A h=1", 12), ("E", 11), ("D P_drop=0.0", 12)):
        sweeps.keep_counts(results.cell_folder(tmp_path, row, 0), [[3] * 10] * sentences)
    message = r"E/seed0/bleu_counts.json \(11\) and base/seed0/bleu_counts.json \(12\) are of dif"
    with pytest.raises(errors.UserError, match=message):
        comparison_table.document(comparison.compare(results.read(tmp_path)))


def test_no_row_stands_for_a_base_that_left_no_translations(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=1))
    (results.cell_folder(tmp_path, "base", 0) / "hypotheses.txt").unlink()
    found = translations.gather(results.read(tmp_path), {}, measures.MEASURES[bleu.MAIN])
    assert [row["name"] for row in found["rows"]] == ["A h=1", "D P_drop=0.0", "E"]
    assert {row["against"] for row in found["rows"]} == {None}
