"""Names of rows with what they change here and in the paper."""

import pytest

from experiments import table3
from experiments.results import labels
from experiments.sweep import store
from tests import sweeps


@pytest.mark.parametrize(
    ("row", "full", "plain"),
    [
        ("base", "base", "base"),
        ("A h=1", "A h=1 · heads 8→1", "8→1 heads"),
        ("B d_k=16", "B d_k=16 · d_k 8→2 (paper 64→16)", "d_k 8→2"),
        ("C N=2", "C N=2 · depth 3→1 (paper 6→2)", "depth 3→1"),
        ("D P_drop=0.0", "D P_drop=0.0 · dropout 0.1→0", "no dropout"),
        ("E", "E · positions sinusoidal→learned", "learned positions"),
    ],
)
def test_a_rows_name_says_what_it_changes_here_and_in_the_paper(row, full, plain):
    description = store.Description("table3", sweeps.base(), table3.rows_for(sweeps.base()))
    assert labels.full_name(description, row) == full
    assert labels.plain_name(description, row) == plain


def test_a_row_of_several_changes_keeps_its_name():
    description = store.Description("table3", sweeps.base(), table3.rows_for(sweeps.base()))
    assert labels.plain_name(description, "big") == "big"
    full = labels.full_name(description, "big")
    assert "width 32→64, d_ff 32→64, heads 8→16" in full
    assert "(paper width 512→1024, d_ff 2048→4096" in full


def test_other_tables_rows_have_no_papers_values():
    rows = {"base": {}, "mine": {"model.num_layers": 1, "model.norm": "rms_norm"}}
    description = store.Description("mine", sweeps.base(), rows)
    assert labels.full_name(description, "mine") == "mine · depth 3→1, model.norm=rms_norm"
