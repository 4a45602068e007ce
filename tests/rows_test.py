"""The rows of Table 3: the paper's, how they scale, and how they are chosen."""

import pytest

from configs import base as base_config
from configs import small as small_config
from configs import toy as toy_config
from experiments import table3
from experiments.sweep import rows
from transformer_jax import config as config_lib
from transformer_jax import errors, paper


def paper_base():
    return config_lib.from_mapping(base_config.get_config().to_dict())


def test_rows_at_the_papers_base_are_the_literal_ones():
    assert table3.rows_for(paper_base()) == table3.ROWS


def test_rows_are_the_papers_in_its_order():
    assert list(table3.ROWS) == list(paper.TABLE3)
    assert len(table3.ROWS) == 20
    # In rows A computation is constant; in the d_model rows d_k = d_v = d_model / 8.
    for row, overrides in table3.ROWS.items():
        config = config_lib.replace(paper_base(), overrides).model
        if row.startswith("A"):
            assert config.num_heads * config.d_k == config.num_heads * config.d_v == 512
        if row.startswith("C d_model"):
            assert config.d_k == config.d_v == config.d_model // 8


@pytest.mark.parametrize("module", [toy_config, small_config])
def test_smaller_bases_scale_to_whole_numbers(module):
    config = config_lib.from_mapping(module.get_config().to_dict())
    rows = table3.rows_for(config)
    assert rows["A h=16"]["model.num_heads"] == 2 * config.model.num_heads
    assert rows["C d_model=256"]["model.d_model"] * 2 == config.model.d_model
    assert rows["D P_drop=0.2"] == {"model.dropout_rate": 0.2}
    assert rows["big"]["train.num_steps"] == 3 * config.train.num_steps
    assert (config.model.dropout_rate, config.train.label_smoothing) == (0.1, 0.1)


def test_a_base_that_does_not_scale_names_row_and_value():
    config = config_lib.replace(paper_base(), {"model.num_layers": 2})
    with pytest.raises(errors.UserError, match=r"row 'C N=2'.*model\.num_layers would be 0\.6"):
        table3.rows_for(config)


def test_rows_are_chosen_by_name_and_pattern():
    assert rows.select(table3.ROWS, "base,A*") == [
        "base", "A h=1", "A h=4", "A h=16", "A h=32",
    ]  # fmt: skip
    assert rows.select(table3.ROWS, "big, E") == ["E", "big"]
    with pytest.raises(
        errors.UserError, match=r"--rows: no row matches 'F'; the rows are 'base', "
    ):
        rows.select(table3.ROWS, "base,F")
    odd = ["base", "x[1]", "x1", "RMS, slow"]
    assert rows.select(odd, "x[1]") == ["x[1]"]  # a name means itself
    assert rows.select(odd, "RMS, slow") == ["RMS, slow"]
    assert rows.select(odd, "x*,RMS*") == ["x[1]", "x1", "RMS, slow"]


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "rates.py"
    path.write_bytes("\ufeffROWS = {}\n".encode())
    assert rows.run(path)["ROWS"] == {}
