"""Sweeps of a user's own: rows from files, grids and zips, equal budgets, and runs taken over."""

import ast
import json
import re
import shutil

import pytest

from experiments.benchmarks import cost
from experiments.sweep import results, rows
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
        ("ROWS = {'a': {}, 'a': {}}", "'a' stands twice in one mapping"),
        ("ROWS = {'a': {'train.warmup': 3}}", "row 'a': there is no config field train.warmup"),
        ("ROWS = {'a': {'train.warmup_steps': -3}}", "row 'a': train.warmup_steps"),
        ("ROWS = {'a': {'train.seed': 3}}", "row 'a': train.seed is not a row's to set"),
        ("ROWS = {'base': {'train.warmup_steps': 3}}", "the row base is --config as it is"),
        ("GRID = {}", "GRID and ZIP map fields to lists of values, not {}"),
        ("def rows(base): pass", "what rows(base) returns, map rows' names to their overrides"),
        ("ROWS = [1]", "or are a list of such pairs, not [1]"),
        ("rows_ = {}", "it has no rows: give it ROWS, GRID, ZIP or rows(base)"),
        ("GRID = {'model.d_k': 16}", "model.d_k needs a list of values, not 16"),
        ("GRID = {'model.d_k': [1, 1]}", "two rows of one name, 'd_k=1'"),
        ("ROWS = {'a': {'data.vocab_size': 300}}", "row 'a': with another data.vocab_size than"),
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
            assert found == pytest.approx(measure(base), rel=results.UNEQUAL), (budget, name)


@pytest.mark.parametrize(
    ("budget", "overrides", "message"),
    [
        ("parameters", {"model.d_ff": 4}, "row 'x' cannot be given base's budget: it sets model.d"),
        ("parameters", {"model.num_layers": 9}, r"with model.d_ff=1 it has"),
        ("parameters", {"train.start_from": "x"}, "it starts from weights, whose sizes it has to"),
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


def test_rows_that_are_not_chosen_are_checked_before_anything_runs(make_config):
    record = {
        "table": "mine",
        "base": config_lib.to_dict(make_config()),
        "tune": {"model.num_heads": [8, 6]},
        "rows": {"base": {}, "shared": {"model.num_kv_heads": 4}},
    }
    with pytest.raises(errors.UserError, match=r"^row 'shared num_heads=6': model\.num_kv_heads=4"):
        results.rows_of(record)
    with pytest.raises(errors.UserError, match="rows 'a b' and 'a-b' would share the folder"):
        results.rows_of({**record, "rows": {"base": {}, "a b": {}, "a-b": {}}, "tune": {}})


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
    rows = {row: {"train.start_from": of} for row, of in ("ab", "ba")}
    done = run(server, tmp_path / "circle", f"ROWS = {rows}", *flags)
    assert done.returncode == 2
    assert "row 'a' starts from weights that start from its own" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "circle").exists()


@pytest.mark.parametrize("flags", [[], ["--dry_run"]])
def test_a_row_that_starts_from_weights_that_nobody_makes_is_refused(server, tmp_path, flags):
    rows = {"a": {}, "b": {"train.start_from": "a"}}
    flags = [f"--cache_dir={tmp_path / 'cache'}", *flags]
    done = run(server, tmp_path / "half", f"ROWS = {rows}", "--rows=base,b", *flags)
    assert done.returncode == 2
    says = r"row 'b' starts from the weights in .*/half/a/seed0, which holds no finished run: "
    assert re.search(says, done.stderr)
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
def test_a_sweep_runs_and_another_takes_its_runs_over(server, tmp_path):
    done = run(server, tmp_path / "one", "GRID = {'train.warmup_steps': [5, 20]}")
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "one" / "one_rows.md").read_text(encoding="utf-8")
    assert "| warmup_steps=5 | train.warmup_steps=5 |" in table
    assert "paper" not in table
    other = "ROWS = {'slow': {'train.warmup_steps': 20}}"
    (tmp_path / "rest").mkdir()  # as a machine leaves it that ran base alone
    shutil.copy(tmp_path / "one/sweep.json", tmp_path / "rest")
    (tmp_path / "one/base").rename(tmp_path / "rest/base")
    reused = f"--reuse={tmp_path / 'rest'},{tmp_path / 'one'}"
    done = run(server, tmp_path / "two", other, reused, f"--cache_dir={tmp_path / 'one' / 'cache'}")
    assert done.returncode == 0, done.stderr
    assert "2 of 2 runs are done; 0 to go" in done.stderr
    taken, source = (
        json.loads((tmp_path / folder / "seed0" / "result.json").read_bytes())
        for folder in ("two/slow", "one/warmup_steps-20")
    )
    assert (taken["row"], source["row"]) == ("slow", "warmup_steps=20")
    assert taken["bleu"] == source["bleu"]
    assert "| slow | train.warmup_steps=20 |" in (tmp_path / "two" / "two_rows.md").read_text()
    two = f"--workdir={tmp_path / 'two'}"
    for name, flags, message in (
        ("two", ["--reuse=nowhere"], "--reuse=nowhere holds no sweep"),
        ("two", [f"--reuse={tmp_path / 'two'}"], "is --workdir itself"),
        (
            "two",
            ["--match=flops"],
            "a sweep of two_rows, not a sweep of two_rows with --match=flops",
        ),
        ("three", [two], "two holds a sweep of two_rows, not a sweep of three_rows"),
    ):
        refused = run(server, tmp_path / name, other, *flags)
        assert refused.returncode == 2
        assert message in refused.stderr.splitlines()[-1]
    (tmp_path / "two" / "sweep.json").write_text("{")  # what is damaged is written anew
    assert run(server, tmp_path / "two", other).returncode == 0
