"""What rows are called on a sweep's page."""

from experiments import table3
from experiments.reporting import comparison_table, headline
from experiments.sweep import results
from tests import sweeps


def test_rows_of_a_scaled_base_are_called_alike_in_notes(tmp_path):
    rows = table3.rows_for(sweeps.base())
    chosen = ("base", "C N=2", "C N=4", "C N=8")
    sweeps.make(tmp_path, sweeps.Made({name: rows[name] for name in chosen}), missing=["C N=8"])
    sweep = results.read(tmp_path)
    notes = ["Not run: “C N=8”: C N=2.", "C N=2, C N=4; C N=20, C N=2.5 and AC N=2 are no rows"]
    assert headline.relabelled(notes, sweep) == [
        "Not run: “C N=4 (paper: 8)”: C N=1 (paper: 2).",
        "C N=1 (paper: 2), C N=2 (paper: 4); C N=20, C N=2.5 and AC N=2 are no rows",
    ]
    assert headline.on_names(sweep).endswith("C N=1 (paper: 2). Files and commands call it C N=2.")


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
