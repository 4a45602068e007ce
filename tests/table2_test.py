"""Table 2 and plans: rows against the paper, costs against numbers worked by hand."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from configs import base, base_fr, big, big_fr
from experiments import table2
from experiments.analysis import comparison, plan
from experiments.benchmarks import cost
from experiments.reporting import table2_page
from experiments.sweep import results
from tests import report_page_test, sweeps
from transformer_jax import config as config_lib
from transformer_jax import errors, paper
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu


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
    devices = plan.parse("v5e-8")
    assert (devices.chips, devices.tflops) == (8, 197)
    plan.write(paper_base, {"base": {}}, {"base": 3}, devices)
    printed = capsys.readouterr().out
    hours = cost.training_flops(paper_base) / (8 * 197e12 * 0.4) / 3600
    line = next(line for line in printed.splitlines() if line.strip().startswith("base"))
    cells = line.split()
    assert cells[1] == f"{hours:.2f}"
    assert cells[-1] == f"{hours * 8 * devices.dollars:,.2f}"
    assert f"{3 * hours:,.1f} hours of v5e-8" in printed
    plan.write(paper_base, {"base": {}, "E": {}}, {"base": 10, "E": 1}, devices)
    assert f"2 rows at 1 to 10 seeds: {11 * hours:,.1f} hours" in capsys.readouterr().out
    for name in ("v5e", "v9-8", "v5e-0", "v5e-x"):
        with pytest.raises(errors.UserError, match=r"as in v5e-8; known: v4, v5e"):
            plan.parse(name)


def test_the_report_shows_the_papers_table_and_ours(paper_base, tmp_path):
    def result(score, device):
        bleu = {name: {"score": score, "signature": "s"} for name in ("paper", "sacrebleu_13a")}
        return {"bleu": bleu, "ppl": 4.5, "test": {"bleu": bleu, "ppl": 4.0}, "params": 1,
                "wall_seconds": 7200.0, "devices": [device] * 8}  # fmt: skip

    rows = [
        results.Row(name, overrides, {}, {}, [])
        for name, overrides in table2.rows_for(paper_base).items()
    ]
    found: dict[int, Any] = {0: result(27.0, "TPU v5 lite"), 1: result(27.5, "TPU v5 lite")}
    rows[0] = results.Row(rows[0].name, rows[0].overrides, found, {}, [])
    sweep = results.Sweep("table2", paper_base, rows, tmp_path)
    compared = comparison.Comparison(sweep, table2.TABLE, {}, {}, None)
    shown = table2_page.document(compared)
    table = tables.markdown(shown.shown, shown.notes)
    for name, row in paper.TABLE2.items():
        line = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
        if row.bleu_de:
            assert f"{row.bleu_de:.2f}" in line
    ours = next(line for line in table.splitlines() if line.startswith("| ours: Transformer base"))
    assert ours.split("|")[2].strip() == "27.25"
    assert ours.split("|")[4].strip() == f"{cost.training_flops(paper_base):.1e}"
    formula = 7200 * 8 * 197e12
    assert f"{formula:.1e}" in table
    assert len(shown.csv.splitlines()) == 3


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


def test_both_directions_of_table_2_have_their_own_sentences(tmp_path):
    steps = {"train.num_steps": 60_000, "train.warmup_steps": 20}
    small = config_lib.replace(sweeps.base(), {"data.corpus": "tfds", **steps})
    rows = table2.rows_for(small)
    sweeps.make(tmp_path, sweeps.Made(rows, seeds=1, table="table2", base=small))
    for row in rows:
        folder = results.cell_folder(tmp_path, row, 0)
        result = json.loads((folder / "result.json").read_bytes())
        result["bleu"][bleu.PAPER] = result["bleu"][bleu.MAIN]
        changes = {"bleu": result["bleu"], "test": {"bleu": result["bleu"], "ppl": 4.0}}
        if row.endswith("FR"):
            changes |= {"data_sha256": "f" * 64, "data": {"languages": ["en", "fr"]}}
            (folder / "references.txt").write_text("une phrase\n" * 12)
        sweeps.change(folder, **changes)
        counts = json.loads((folder / "bleu_counts.json").read_bytes())[bleu.MAIN]
        sweeps.keep_counts(folder, counts, of="test")
    found = report_page_test.content_of(tmp_path)
    translations = found["translations-data"]
    against = {row["name"]: (row["set"], row["against"]) for row in translations["rows"]}
    assert against["big EN-DE"] == (0, "base EN-DE")
    assert against["big EN-FR"] == (1, "base EN-FR")
    assert found["content-data"]["tables"][0]["heads"][0] == "model"
    assert all(row["gap"] is None for row in found["content-data"]["rows"])
