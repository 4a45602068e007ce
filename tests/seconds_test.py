"""Rows with base's training time: what is measured, what is kept, and what follows from it."""

import dataclasses
import json

import pytest

from experiments.sweep import rows, seconds
from launch import local
from tests import refusals
from transformer_jax import config as config_lib
from transformer_jax import errors

DEEP = {"base": {}, "deep": {"model.num_layers": 4}, "smooth": {"train.label_smoothing": 0.3}}


@pytest.mark.parametrize("ratio", [0.25, 1.0, 1.5, 400.0])
def test_a_row_has_as_many_steps_as_bases_seconds_are_enough_for(make_config, ratio):
    base = make_config({"train.num_steps": 120})
    deep = seconds.key(config_lib.replace(base, DEEP["deep"]))
    measured = {seconds.key(base): 1.0, deep: ratio}
    found = rows.matched(DEEP, list(DEEP), base, "seconds", lambda _: measured)
    steps = config_lib.replace(base, found["deep"]).train.num_steps
    assert steps == max(round(120 / ratio), 1)
    assert found["smooth"] == DEEP["smooth"]  # its steps take as long as base's


def test_a_row_that_sets_its_steps_is_refused_before_anything_is_measured(make_config):
    own = {**DEEP, "x": {"train.num_steps": 4}}
    with pytest.raises(errors.UserError, match=r"row 'x' .* it sets train\.num_steps itself"):
        rows.matched(own, list(own), make_config(), "seconds", lambda _: pytest.fail("measured"))


def test_a_row_that_was_not_measured_stays_unless_it_is_chosen(make_config):
    base = make_config()
    known = {seconds.key(base): 1.0}
    assert rows.matched(DEEP, ["smooth"], base, "seconds", lambda _: known) == DEEP
    with pytest.raises(errors.UserError, match=r"row 'deep' .* its steps were not measured"):
        rows.matched(DEEP, ["deep"], base, "seconds", lambda _: known)


@pytest.mark.parametrize(
    ("overrides", "same"),
    [
        ({"train.num_steps": 40, "train.seed": 3, "train.label_smoothing": 0.0}, True),
        ({"model.dropout_rate": 0.0, "decode.beam_size": 1}, True),
        ({"model.d_ff": 32}, False),
        ({"model.attention_dropout_rate": 0.5}, False),  # absent at 0
        ({"train.batch_tokens": 1024}, False),
        ({"data.target_length": 32}, False),
        ({"train.objective": "bert", "train.objective_steps": 1}, False),  # asks for few words
        ({"train.objective": "mass", "train.objective_steps": 1}, True),
    ],
)
def test_what_changes_the_program_is_measured_anew_and_nothing_else(make_config, overrides, same):
    assert (seconds.key(make_config()) == seconds.key(make_config(overrides))) == same


def test_damaged_numbers_are_refused(make_config, tmp_path):
    entry = {"row": "deep", "ratio": 0.0, "devices": "1 CPU core"}
    for content in ("{", '{"a b": {"ratio": 1}}', json.dumps({"a b": entry})):
        (tmp_path / "seconds.json").write_text(content)
        with pytest.raises(errors.UserError, match=r"seconds\.json is damaged .* measures anew"):
            seconds.read(tmp_path, make_config())


def test_what_was_measured_elsewhere_is_not_measured_on_here(make_config, tmp_path):
    base, entry = make_config(), {"row": "x", "ratio": 2.0, "devices": "2 CPU cores"}
    devices = dataclasses.replace(local.share("gpu", 2, 8), model="H100")
    (tmp_path / "seconds.json").write_text(json.dumps({f"{seconds.key(base)} x": entry}))
    with pytest.raises(errors.UserError, match="on 2 CPU cores, and runs would have 1/4 of H100"):
        seconds.measured(base, DEEP, tmp_path, tmp_path, lambda: devices)


@pytest.mark.slow
def test_a_sweep_measures_once_keeps_its_steps_and_says_where(server, commands_cache, tmp_path):
    path, workdir = tmp_path / "mine.py", tmp_path / "sweep"

    def sweep(deep, *more):
        path.write_text(f"ROWS = {{**{DEEP}, 'deep': {{'model.num_layers': {deep}}}}}")
        flags = [f"--workdir={workdir}", f"--cache_dir={commands_cache}", "--match=seconds"]
        done = server.run("experiments.run_sweep", *refusals.TOY, f"--sweep={path}", *flags, *more)
        assert done.code == 0, done.stderr
        return done

    first = sweep(4, "--dry_run")
    assert "measuring the seconds a step of deep\n" in first.stderr
    ((name, entry),) = json.loads((workdir / "seconds.json").read_bytes()).items()
    assert entry["row"] == "deep"
    assert entry["ratio"] > 1  # four times the layers
    assert entry["devices"].endswith("CPU core")
    (workdir / "seconds.json").write_text(json.dumps({name: {**entry, "devices": "8 × TPU"}}))
    refused = server.run(
        "experiments.run_sweep", *refusals.TOY, f"--sweep={path}", f"--workdir={workdir}",
        f"--cache_dir={commands_cache}", "--match=seconds",
    )  # fmt: skip
    assert refused.code == 2
    assert f"measured on 8 × TPU, and runs would have {entry['devices']}" in refused.stderr
    entry["ratio"] = 2.0
    (workdir / "seconds.json").write_text(json.dumps({name: entry}))
    again = sweep(4, "--rows=base,deep")
    assert "measuring" not in again.stderr
    result = json.loads((workdir / "deep" / "seed0" / "result.json").read_bytes())
    assert result["steps"] == refusals.TINY["train.num_steps"] // 2
    report = (workdir / "mine.md").read_text(encoding="utf-8")
    assert "Rows have base's seconds (--match)" in report
    assert f"Seconds a step were measured on {entry['devices']}." in report
    assert "measuring the seconds a step of deep\n" in sweep(3, "--dry_run").stderr
    kept = json.loads((workdir / "seconds.json").read_bytes())
    assert len(kept) == 2
    assert kept[name] == entry


def test_a_row_that_cannot_be_measured_is_named_and_nothing_is_run(server, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("ROWS = {'odd': {'model.position': 'lerned'}}")
    arguments = [*refusals.TOY, f"--sweep={path}", f"--workdir={tmp_path / 'w'}", "--match=seconds"]
    done = server.run("experiments.run_sweep", *arguments)
    assert done.code == 2
    assert done.stderr.splitlines()[-1].startswith(
        "error: --match=seconds: row 'odd': model.position='lerned' is unknown"
    )
    assert not (tmp_path / "w" / "odd").exists()
    elsewhere = server.run("experiments.run_sweep", *arguments, "--launcher=tpu-vm")
    assert elsewhere.code == 2
    assert "start it with --dry_run and --launcher=local" in elsewhere.stderr.splitlines()[-1]
