"""What rows are called, and what stands of them where their sentences' counts do not compare."""

import json

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


@pytest.mark.parametrize("numbers", [[3] * 11, [*[3] * 11, 4]], ids=["fewer", "others"])
@pytest.mark.parametrize("file", ["bleu_counts.json", "test_bleu_counts.json", "chrf_counts.json"])
def test_counts_of_other_sentences_end_in_a_line_that_names_both_files(tmp_path, file, numbers):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=1), missing=["D P_drop=0.0"])
    variant = measures.CHRF if "chrf" in file else bleu.MAIN
    for row, own in (("base", [3] * 12), ("A h=1", [3] * 12), ("E", numbers)):
        counts = {variant: [[number] * measures.MEASURES[variant].width for number in own]}
        folder = results.cell_folder(tmp_path, row, 0)
        if variant == measures.CHRF:
            (folder / file).write_text(json.dumps(counts))
        else:
            sweeps.keep_counts(folder, counts[variant], "test" if "test" in file else "dev")
    said = rf"E/seed0/{file} \({len(numbers)}\) and base/seed0/{file} \(12\) are of different"
    with pytest.raises(errors.UserError, match=said):
        comparison_table.document(comparison.compare(results.read(tmp_path)))


def test_no_row_stands_for_a_base_that_left_no_translations(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=1))
    (results.cell_folder(tmp_path, "base", 0) / "hypotheses.txt").unlink()
    found = translations.gather(results.read(tmp_path), {}, measures.MEASURES[bleu.MAIN])
    assert [row["name"] for row in found["rows"]] == ["A h=1", "D P_drop=0.0", "E"]
    assert {row["against"] for row in found["rows"]} == {None}
