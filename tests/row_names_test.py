"""Names of rows and tables: none leads out of a sweep's folder or hides its files."""

import json

import pytest

from experiments import table3
from experiments.sweep import results
from tests import sweeps
from transformer_jax import config as config_lib
from transformer_jax import errors


def write_record(workdir, **changes):
    """Writes the record of a sweep without runs."""
    base = config_lib.to_dict(sweeps.base())
    record = {"table": "table3", "base": base, "rows": {"base": {}}, "tune": {}, **changes}
    (workdir / "sweep.json").write_text(json.dumps(record))


@pytest.mark.parametrize("row", ["../x", "/abs", "..", "", "a\nb", "-rf", ".hidden", "x" * 201])
def test_no_row_leads_out_of_the_workdir(tmp_path, row):
    with pytest.raises(errors.UserError, match="a row cannot be called"):
        results.cell_folder(tmp_path, row, 0)
    write_record(tmp_path, rows={"base": {}, row: {}})
    with pytest.raises(errors.UserError, match=r"sweep\.json is damaged \(a row cannot be called"):
        results.read(tmp_path)


def test_no_table_leads_out_of_the_workdir(tmp_path):
    write_record(tmp_path, table="../x")
    with pytest.raises(errors.UserError, match="no table is called"):
        results.read(tmp_path)


def test_every_row_has_a_folder_in_the_workdir(tmp_path):
    for row in [*table3.ROWS, "Ä ö", "a.b", "b, c"]:
        folder = results.cell_folder(tmp_path, row, 0)
        assert folder.resolve().parents[1] == tmp_path.resolve()


def test_rows_of_one_folder_are_refused():
    results.require_folders(["A h=1", "A h=2"])
    with pytest.raises(errors.UserError, match="'A h=1' and 'A-h 1' would share the folder"):
        results.require_folders(["base", "A h=1", "A-h 1"])
    with pytest.raises(errors.UserError, match="would share the folder"):
        results.require_folders(["a", "A"])  # one folder on some disks


def test_no_row_takes_the_place_of_a_sweeps_own_files():
    with pytest.raises(errors.UserError, match=r"the sweep's own .* lies there; rename it"):
        results.require_folders(["base", "sweep.json"])
