"""Comparisons of rows and sweeps, against hand counts and models that are really built."""

import shutil

import jax
import numpy as np
import pytest

from experiments import compare, table3
from experiments.results import comparison, frames
from experiments.sweep import cost
from tests import sweeps
from transformer_jax import config as config_lib
from transformer_jax import errors, models

ROWS = ["base", "A h=1", "C N=2", "D P_drop=0.0", "D eps_ls=0.2"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("compare") / "small"
    rows = table3.rows_for(sweeps.base())
    sweeps.make(workdir, sweeps.Made({row: rows[row] for row in (*ROWS, "E")}), missing=["E"])
    return workdir


def lines_of(table):
    heads = [column.full_head for column in table.columns]
    return {line[0]: dict(zip(heads, line, strict=True)) for line in table.cells()}


def test_parameter_shapes_are_those_of_a_built_model():
    config = sweeps.base()
    found = compare.parameter_shapes(config)
    model = models.build(config.model, config.data.vocab_size)
    params = models.init(model, jax.random.key(0))
    assert sorted(found.values()) == sorted(leaf.shape for leaf in jax.tree.leaves(params))
    assert sum(int(np.prod(shape)) for shape in found.values()) == cost.parameters(config)


def test_differing_fields_are_those_that_were_set():
    config = sweeps.base()
    assert compare.differing_fields([config, config]) == {}
    other = config_lib.replace(config, {"model.num_heads": 1, "train.label_smoothing": 0.2})
    assert compare.differing_fields([config, other, config]) == {
        "model.num_heads": ["8", "1", "8"],
        "train.label_smoothing": ["0.1", "0.2", "0.1"],
    }


def test_rows_of_a_sweep_are_compared_by_results_fields_and_shapes(made):
    (rows, fields, shapes), notes = compare.compare_rows(
        comparison.compare(frames.load(made)), ["base", "C N=2", "E"]
    )
    found = lines_of(rows)
    assert found["base"]["seeds"] == "2"
    assert found["C N=2"]["− base"].startswith(("+", "−"))
    assert (found["E"]["seeds"], found["E"]["PPL"]) == ("0", "")  # it has not run
    assert found["base"]["params"] == f"{cost.parameters(sweeps.base()):,}"
    assert lines_of(fields)["model.num_layers"] == {
        "field": "model.num_layers", "base": "3", "C N=2": "1", "E": "3"
    }  # fmt: skip
    layers = [line for line in shapes.cells() if line[0].startswith("encoder_1,2/")]
    assert layers
    assert all(line[2] == "—" for line in layers)
    assert notes == []
    _, notes = compare.compare_rows(comparison.compare(frames.load(made)), ["base", "D eps_ls=0.2"])
    assert notes == ["Parameters: the same."]


def test_a_sweep_agrees_with_itself(made):
    (scores, budgets), notes = compare.compare_sweeps([made, made])
    assert [line[0] for line in scores.cells()] == ROWS
    assert {line[-1].split(",")[0] for line in scores.cells()[1:]} == {"same"}
    assert "same sign in 100% (95%: " in notes[1]
    assert " of 4 rows; of all 10 pairs " in notes[1]
    assert "tau-b 1.00 (95%: " in notes[1]
    assert budgets.cells()[0] == budgets.cells()[1]
    rows = table3.rows_for(sweeps.base())
    configs = [config_lib.replace(sweeps.base(), rows[name]) for name in ROWS]
    flops = 2 * sum(map(cost.training_flops, configs))  # two seeds
    assert lines_of(budgets)[str(made)]["training FLOPs"] == f"{flops:.2e}"


def test_a_row_that_changes_its_sign_is_marked(made, tmp_path):
    other = shutil.copytree(made, tmp_path / "large")
    row = "D eps_ls=0.2"  # of the made-up rows, a good one
    for seed in range(2):
        sweeps.spoil(sweeps.folder(other, row, seed))
    shutil.rmtree(sweeps.folder(other, "A h=1").parent)
    (scores, *_), notes = compare.compare_sweeps([made, other])
    signs = {name: line["sign"] for name, line in lines_of(scores).items()}
    assert signs["A h=1"] == ""  # one of them has not run it
    assert {name for name, sign in signs.items() if sign.startswith("opposite")} == {row}
    assert signs[row] == "opposite"
    assert f"{other}: Not run: “A h=1”, “E”." in notes
    (scores, *_), _ = compare.compare_sweeps([made, other], [row])
    assert [line[0] for line in scores.cells()] == ["base", row]


def test_signs_of_single_seeds_may_be_chance(made, tmp_path):
    alone = shutil.copytree(made, tmp_path / "one")
    for folder in alone.glob("*/seed1-*"):
        shutil.rmtree(folder)
    (scores, *_), notes = compare.compare_sweeps([made, alone])
    assert all(line[-1].endswith(", by chance?") for line in scores.cells()[1:])
    assert any("from one seed: A h=1" in note for note in notes)


def test_fields_that_the_bases_do_not_share_are_listed(made, tmp_path):
    rows = {row: table3.rows_for(sweeps.base())[row] for row in ROWS}
    changed = config_lib.replace(sweeps.base(), {"train.warmup_steps": 7})
    sweeps.make(tmp_path, sweeps.Made(rows, base=changed))
    (_, _, fields), _ = compare.compare_sweeps([made, tmp_path])
    assert [line[0] for line in fields.cells()] == ["train.warmup_steps"]


@pytest.mark.parametrize(
    ("rows", "table", "message"),
    [
        ({"base": {}, "other": {"train.warmup_steps": 3}}, "mine", "name sweeps of one table"),
        ({"other": {"train.warmup_steps": 3}, "base": {}}, "table3", "with base 'other': name"),
        ({"base": {}, "other": {"train.warmup_steps": 3}}, "table3", "share no row that both"),
    ],
)
def test_sweeps_that_cannot_be_compared_are_refused(made, tmp_path, rows, table, message):
    sweeps.make(tmp_path, sweeps.Made(rows, table=table))
    with pytest.raises(errors.UserError, match=message):
        compare.compare_sweeps([made, tmp_path])


def test_unknown_rows_are_refused_by_name(made):
    with pytest.raises(errors.UserError, match="there is no row 'A'; choose among 'base', 'A h=1'"):
        compare.compare_rows(comparison.compare(frames.load(made)), ["base", "A"])


def test_a_row_with_another_reference_does_not_count(tmp_path):
    short = {"data.train_max_tokens": 8}
    rows = {"base": {}, "short": short, "wide": {"model.d_ff": 64}}
    rows["short wide"] = {**short, **rows["wide"]}
    sweeps.make(tmp_path / "a", sweeps.Made(rows))
    del rows["short"]
    sweeps.make(tmp_path / "b", sweeps.Made(rows))
    _, notes = compare.compare_sweeps([tmp_path / "a", tmp_path / "b"])
    assert " of 1 rows; of all 1 pairs " in notes[1]


def test_commands_print_what_they_write(server, tmp_path):
    one, other, output = tmp_path / "one", tmp_path / "other", tmp_path / "compared.md"
    for workdir in (one, other):
        sweeps.make(workdir, sweeps.Made(sweeps.some_rows()))
    for arguments in ((str(one), str(other)), (str(one), "--rows=base,A h=1")):
        done = server.run("experiments.compare", *arguments, f"--output={output}")
        assert done.code == 0, done.stderr
        assert "A h=1 " in done.stdout.decode()
        assert "| A h=1 |" in output.read_text(encoding="utf-8")
    done = server.run("experiments.compare", str(one))
    assert done.code == 2
    assert "error: one sweep needs --rows" in done.stderr
