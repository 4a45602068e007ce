"""Table 2 and plans: rows against the paper, costs against numbers worked by hand."""

import os
import subprocess
import sys

import pytest

from configs import base, base_fr, big, big_fr
from experiments import table2
from experiments.results import comparison, frames, page, report
from experiments.scheduling import dry_run
from experiments.sweep import cost
from tests import sweeps
from transformer_jax import config as config_lib
from transformer_jax import errors, paper


@pytest.fixture(scope="module")
def paper_base():
    return config_lib.from_mapping(base.get_config().to_dict())


def test_rows_are_the_configs_with_averaged_checkpoints(paper_base):
    rows = table2.rows_for(paper_base)
    averaged = {"base": 5, "big": 20}
    for (name, overrides), module in zip(rows.items(), (base, big, base_fr, big_fr), strict=True):
        config = config_lib.replace(paper_base, overrides)
        expected = config_lib.from_mapping(module.get_config().to_dict())
        assert (config.model, config.train, config.data) == (
            expected.model, expected.train, expected.data,
        )  # fmt: skip
        assert config.evaluation.average_checkpoints == averaged[name.split()[0]]
        assert config.evaluation.score_test
        if name.endswith("FR"):  # whose configs are for Table 2 alone
            assert (config.evaluation, config.checkpoint) == (
                expected.evaluation, expected.checkpoint,
            )  # fmt: skip
    french = config_lib.replace(paper_base, rows["big EN-FR"])
    assert (french.model.dropout_rate, french.data.vocab_size) == (0.1, 32_000)


def test_a_base_of_another_corpus_is_refused(paper_base):
    with pytest.raises(errors.UserError, match="Table 2 is WMT's"):
        table2.rows_for(config_lib.replace(paper_base, {"data.corpus": "text"}))


def test_operations_are_six_for_each_weight_and_token_and_those_of_attention(paper_base):
    config = config_lib.replace(paper_base, {"data.vocab_size": 37_000})
    length, width = config.data.target_length, config.model.d_model
    assert config.data.source_length == length
    layer = 4 * width**2
    weights = 6 * (layer + 2 * width * 2048) + 6 * (2 * layer + 2 * width * 2048) + 37_000 * width
    attention = (6 + 2 * 6) * 2 * length * width  # queries with keys, weights with values
    tokens = 24_576 * 100_000
    assert cost.training_flops(config) == pytest.approx(
        6 * tokens * (weights + attention), rel=1e-6
    )


def test_a_plan_is_operations_over_rate(paper_base, capsys):
    devices = cost.parse_device("v5e-8")
    assert (devices.chips, devices.tflops) == (8, 197)
    dry_run.print_prices(paper_base, {"base": {}}, {"base": 3}, devices)
    printed = capsys.readouterr().out
    hours = cost.training_flops(paper_base) / (8 * 197e12 * 0.4) / 3600
    line = next(line for line in printed.splitlines() if line.strip().startswith("base"))
    assert line.split() == ["base", f"{hours:.2f}", f"{hours * 8 * devices.dollars:,.2f}"]
    assert f"3 runs of 1 rows: {3 * hours:,.1f} hours of v5e-8" in printed
    dry_run.print_prices(paper_base, {"base": {}, "E": {}}, {"base": 10, "E": 1}, devices)
    assert f"11 runs of 2 rows: {11 * hours:,.1f} hours" in capsys.readouterr().out
    for name in ("v5e", "v9-8", "v5e-0", "v5e-x"):
        with pytest.raises(errors.UserError, match=r"such as v5e-8; known: v4, v5e"):
            cost.parse_device(name)


def test_the_report_shows_the_papers_table_and_ours(paper_base):
    run = {"ppl": 4.5, "params": 1, "wall_seconds": 7200.0, "devices": 8,
           "device_kind": "TPU v5 lite"}  # fmt: skip
    scores = [{"bleu": x, "test_bleu": x, "test_bleu_paper": x} for x in (27.0, 27.5)]
    rows = table2.rows_for(paper_base)
    runs = {"base EN-DE": [{**run, **each} for each in scores]}
    sweep = sweeps.of_runs(runs, rows, configuration=paper_base, table="table2")
    document = report.build(sweeps.without_counts(sweep, table2.TABLE))
    whole, ours = document.tables
    lines = {line[0]: line for line in whole.cells()}
    for name, row in paper.TABLE2.items():
        assert lines[name][1] == (f"{row.bleu_de:.2f}" if row.bleu_de else "")
    flops = f"{cost.training_flops(paper_base):.1e}"
    assert lines["ours: Transformer base"][1::2] == ["27.25", flops]
    assert len(ours.frame) == 2
    assert ours.frame["flops_by_formula"].iloc[0] == 7200 * 8 * 197e12
    assert "test_bleu_paper" in document.data


@pytest.mark.slow
def test_the_dry_run_plans_both_tables(tmp_path):
    for table in ("table2", "table3"):
        done = subprocess.run(
            [
                sys.executable, "-m", f"experiments.{table}", "--config=configs/base.py",
                f"--workdir={tmp_path}", "--dry_run", "--device=H100-8",
                *(["--rows=base,big"] if table == "table3" else []),
            ],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )  # fmt: skip
        assert "hours of H100-8" in done.stdout
        assert not list(tmp_path.iterdir())


def test_rows_of_both_corpora_stand_in_one_table_and_are_not_compared(tmp_path):
    steps = {"train.num_steps": 60_000, "train.warmup_steps": 20}
    small = config_lib.replace(sweeps.base(), {"data.corpus": "tfds", **steps})
    rows = table2.rows_for(small)
    sweeps.make(tmp_path, sweeps.Made(rows, seeds=1, table="table2", base=small, tested=True))
    for row in rows:
        if row.endswith("FR"):
            french = {"data_sha256": "f" * 64, "data": {"languages": ["en", "fr"]}}
            sweeps.change(sweeps.folder(tmp_path, row), **french)
    compared = comparison.compare(frames.load(tmp_path))
    assert compared.rows["difference"].isna().all()
    page.render(compared, report.build(compared))
