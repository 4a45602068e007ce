"""Sweeps from a user's file: rows, grids and zips, equal budgets, and reused runs."""

import ast
import json
import re

import pytest

from experiments.results import frames
from experiments.sweep import cost, rows, store
from tests import pages, tiny
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.runs import run_folder

GRID = {"train.warmup_steps": [5, 10], "train.label_smoothing": [0.0, 0.1, 0.2]}


def test_a_grid_has_every_combination_once_and_a_zip_those_that_stand_together():
    grid = rows.grid(GRID)
    assert len(grid) == 6
    assert grid["warmup_steps=10 label_smoothing=0.0"] == {
        "train.warmup_steps": 10,
        "train.label_smoothing": 0.0,
    }
    pairs = {tuple(overrides.values()) for overrides in grid.values()}
    assert pairs == {(w, s) for w in (5, 10) for s in (0.0, 0.1, 0.2)}
    zipped = rows.zipped({"model.num_heads": [1, 8], "model.d_k": [64, 8]})
    assert zipped == {
        "num_heads=1 d_k=64": {"model.num_heads": 1, "model.d_k": 64},
        "num_heads=8 d_k=8": {"model.num_heads": 8, "model.d_k": 8},
    }


def test_zipped_fields_of_unequal_length_are_refused():
    with pytest.raises(errors.UserError, match=r"a has 2, b has 1"):
        rows.zipped({"a": [1, 2], "b": [1]})


@pytest.fixture
def read(make_config, tmp_path):
    """A function from a sweep's text to its rows."""

    def read(text):
        path = tmp_path / "mine.py"
        path.write_text(text, encoding="utf-8")
        return rows.read(path, rows.run(path), make_config())

    return read


def test_a_file_may_hold_rows_pairs_or_a_function_and_base_comes_first(read):
    slow = {"train.warmup_steps": 20}
    expected = {"base": {}, "slow": slow}
    assert read(f"ROWS = {{'slow': {slow}}}") == expected
    assert read(f"ROWS = [('slow', {slow})]") == expected
    double = "def rows(base): return {'slow': {'train.warmup_steps': 2 * base.train.warmup_steps}}"
    assert read(double) == expected
    assert list(read("GRID = {'model.d_k': [1, 2]}")) == ["base", "d_k=1", "d_k=2"]
    assert list(read(f"ROWS = {{'slow': {slow}, 'base': {{}}}}")) == ["base", "slow"]


def test_the_sweep_that_the_page_shows_is_the_one_in_the_configs(make_config):
    path = pages.ROOT / "configs/sweeps/warmup_smoothing.py"
    page = (pages.ROOT / "docs/howto/sweeps.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^GRID = \{.*?^\}", page, re.DOTALL | re.MULTILINE)
    names = rows.run(path)
    assert names["GRID"] == ast.literal_eval(shown.removeprefix("GRID = "))
    assert len(rows.read(path, names, make_config())) == 1 + 2 * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ROWS = {'a': {}, 'a': {}}", "a mapping has the key 'a' twice"),
        ("ROWS = {'a': {'train.warmup': 3}}", "row 'a': there is no config field train.warmup"),
        ("ROWS = {'a': {'train.warmup_steps': -3}}", "row 'a': train.warmup_steps"),
        ("ROWS = {'a': {'train.seed': 3}}", "row 'a': a row cannot set train.seed"),
        ("ROWS = {'base': {'train.warmup_steps': 3}}", "the row base is --config without changes"),
        ("GRID = {}", "GRID and ZIP map fields to lists of values, not {}"),
        ("def rows(base): pass", "the result of rows(base), map names of rows to overrides"),
        ("ROWS = [1]", "or list such pairs, but one is [1]"),
        ("rows_ = {}", "it has no rows: give it ROWS, GRID, ZIP or rows(base)"),
        ("GRID = {'model.d_k': 16}", "model.d_k needs a list of values, not 16"),
        ("GRID = {'model.d_k': [1, 1]}", "two rows have the name 'd_k=1'"),
        (
            "ROWS = {'a': {'data.vocab_size': 300}}",
            "row 'a': scores with another data.vocab_size than",
        ),
        ("ROWS = {", "fails: SyntaxError"),
        ("1 / 0", "fails: ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_that_describes_no_sweep_is_refused(read, text, message):
    with pytest.raises(errors.UserError, match=re.escape(message)):
        read(text)


def test_at_equal_budgets_rows_cost_what_base_costs(make_config):
    base = make_config({"train.num_steps": 1000, "model.d_ff": 2048})
    changed = {
        "base": {},
        "narrow keys": {"model.d_k": 1},
        "more layers": {"model.num_layers": 3},
        "gated": {"model.feed_forward": "swiglu"},
        "alone": {"model.architecture": "decoder"},
    }
    for budget, measure in (("parameters", cost.parameters), ("flops", cost.training_flops)):
        matched = rows.matched(changed, changed, base, budget)
        assert matched["base"] == {}
        for name, overrides in matched.items():
            assert changed[name].items() <= overrides.items()
            found = measure(config_lib.replace(base, overrides))
            assert found == pytest.approx(measure(base), rel=cost.NOTABLE), (budget, name)


@pytest.mark.parametrize(
    ("budget", "overrides", "message"),
    [
        ("parameters", {"model.d_ff": 4}, "row 'x' cannot be given base's budget: it sets model.d"),
        ("parameters", {"model.num_layers": 9}, r"with model.d_ff=1 it has"),
        ("parameters", {"train.start_from": "x"}, "it starts from weights whose sizes it has to"),
        (
            "parameters",
            {"model.architecture": "lstm", "model.position": "none"},
            "its parameters do not depend on d_ff",
        ),
        ("flops", {"train.num_steps": 4}, "it sets train.num_steps itself"),
    ],
)
def test_a_row_that_no_budget_fits_is_named(make_config, budget, overrides, message):
    with pytest.raises(errors.UserError, match=message):
        rows.matched({"ours": {}, "x": overrides}, ["x"], make_config(), budget)
    unchosen = rows.matched({"ours": {}, "x": overrides}, [], make_config(), budget)
    assert unchosen["x"] == overrides


def test_the_first_row_is_the_base_of_others_budgets(make_config):
    base = make_config({"train.num_steps": 1000})
    own = {"ours": {"train.num_steps": 500}, "x": {"model.num_layers": 4}}
    found = rows.matched(own, ["ours", "x"], base, "flops")
    assert found["ours"] == own["ours"]
    assert 0 < found["x"]["train.num_steps"] < 500


def test_rows_that_are_not_chosen_are_checked_before_anything_runs(make_config, tmp_path):
    rows = {"base": {}, "shared": {"model.num_kv_heads": 4}}
    description = store.Description("mine", make_config(), rows, tune={"model.num_heads": [8, 6]})
    store.write(tmp_path, description)
    with pytest.raises(errors.UserError, match=r"row 'shared num_heads=6': model\.num_kv_heads=4"):
        store.read(tmp_path)


def run(server, workdir, text, *flags, **overrides):
    """Runs a sweep file as a user does."""
    path = workdir.with_name(f"{workdir.name}_rows.py")
    path.write_text(text, encoding="utf-8")
    values = {"train.num_steps": 4, **overrides}
    return tiny.sweep(server, "run_sweep", workdir, f"--sweep={path}", *flags, **values)


@pytest.mark.parametrize("flags", [[], ["--dry_run"]])
def test_rows_that_start_from_one_another_are_refused_before_anything_is_read(
    server, tmp_path, flags
):
    rows = {"a": {"train.start_from": "b"}, "b": {"train.start_from": "a"}}
    done = run(server, tmp_path / "circle", f"ROWS = {rows}", *flags)
    assert done.returncode == 2
    assert "row 'a' would start from its own weights" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "circle").exists()


def test_a_row_that_starts_from_a_row_without_a_run_is_refused(server, tmp_path):
    rows = {"a": {"train.label_smoothing": 0.2}, "b": {"train.start_from": "a"}}
    flags = ["--rows=base,b", f"--cache_dir={tmp_path / 'cache'}"]
    done = run(server, tmp_path / "half", f"ROWS = {rows}", *flags)
    assert done.returncode == 2
    message = "row 'b' starts from the weights of row 'a', which has no finished run"
    assert message in done.stderr.splitlines()[-1]
    assert not (tmp_path / "half").exists()


def test_a_sweep_is_refused_where_another_is_at_work(server, tmp_path):
    workdir = tmp_path / "busy"
    workdir.mkdir()
    with run_folder.only_run_in(workdir):
        done = run(server, workdir, "ROWS = {'x': {'train.warmup_steps': 5}}")
    assert done.returncode == 2
    assert f"another process is at work in {workdir}: wait for it" in done.stderr.splitlines()[-1]
    assert not (workdir / "sweep.json").exists()


@pytest.mark.slow
def test_a_sweep_runs_and_another_uses_its_runs(server, tmp_path):
    done = run(server, tmp_path / "one", "GRID = {'train.warmup_steps': [5, 20]}")
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "one" / "one_rows.md").read_text(encoding="utf-8")
    assert "| warmup_steps=5 | train.warmup_steps=5 |" in table
    assert "paper" not in table
    rows = "ROWS = {'slow': {'train.warmup_steps': 20}}"
    reuse = f"--reuse={tmp_path / 'one'}"
    done = run(server, tmp_path / "two", rows, reuse, f"--cache_dir={tmp_path / 'one' / 'cache'}")
    assert done.returncode == 0, done.stderr
    assert "2 of 2 runs are done; 0 to go" in done.stderr
    assert not list((tmp_path / "two").rglob("result.json"))
    one, two = (frames.load(tmp_path / name).runs.set_index("row") for name in ("one", "two"))
    assert two.loc["slow", "bleu"] == one.loc["warmup_steps=20", "bleu"]
    assert "| slow | train.warmup_steps=20 |" in (tmp_path / "two" / "two_rows.md").read_text()
    for flags, message in (
        (["--reuse=nowhere"], "nowhere holds no sweep"),
        ([f"--reuse={tmp_path / 'two'}"], "is --workdir itself"),
        ([f"--workdir={tmp_path / 'one'}"], "one holds a sweep of one_rows, not of two_rows"),
    ):
        refused = run(server, tmp_path / "two", rows, *flags)
        assert refused.returncode == 2
        assert message in refused.stderr.splitlines()[-1]
    (tmp_path / "two" / "sweep.json").write_text("{")  # a damaged description is written anew
    assert run(server, tmp_path / "two", rows, reuse).returncode == 0


@pytest.mark.slow
def test_a_row_starts_from_the_weights_of_another_row(server, tmp_path):
    rows = {
        "first": {"train.label_smoothing": 0.2},
        "second": {"train.start_from": "first", "train.label_smoothing": 0.0},
    }
    done = run(server, tmp_path / "sweep", f"ROWS = {rows}")
    assert done.returncode == 0, done.stderr
    description = store.read(tmp_path / "sweep")
    first, second = (
        store.locate(tmp_path / "sweep", one) for one in description.runs if one.row != "base"
    )
    record = json.loads((second / "run.json").read_text())
    assert (
        record["digests"]["start_from"]
        == json.loads((first / "run.json").read_text())["config_hash"]
    )
    # In another folder the finished run is reused, also without the run it started from.
    reuse = [f"--reuse={tmp_path / 'sweep'}", "--rows=base,second"]
    again = run(server, tmp_path / "sweep2", f"ROWS = {rows}", *reuse)
    assert again.returncode == 0, again.stderr
    assert "2 of 2 runs are done; 0 to go" in again.stderr
