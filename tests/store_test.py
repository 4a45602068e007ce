"""Names, descriptions and folders of the runs of a sweep."""

import dataclasses
import json

import pytest

from experiments import table3
from experiments.sweep import store
from transformer_jax import config as config_lib
from transformer_jax import errors, files


def describe(base, rows, **changes):
    return store.Description("mine", base, rows, **changes)


def run(row="base", seed=0, digit="1"):
    return store.Run(row, seed, digit * 64)


@pytest.mark.parametrize(
    "row", ["../x", "/abs", "..", "", "a\nb", "-rf", ".hidden", "x" * 201, "v[2]", "a*", "{x}"]
)
def test_no_row_can_leave_the_sweeps_folder_or_hide_in_it(row, tmp_path, make_config):
    with pytest.raises(errors.UserError, match="a row cannot be called"):
        store.slug(row)
    store.write(tmp_path, describe(make_config(), {"base": {}, row: {}}))
    with pytest.raises(errors.UserError, match=r"sweep\.json is damaged \(a row cannot be called"):
        store.read(tmp_path)


def test_every_row_has_a_folder_of_its_own():
    assert store.folder_name(run("A h=1", 2)) == "A-h-1/seed2-11111111"
    store.require_folder_names([*table3.ROWS, "Ä ö", "a.b", "b, c"])
    for rows in (["A h=1", "A-h 1"], ["a", "A"]):  # "a" and "A" are one folder on some disks
        with pytest.raises(errors.UserError, match="would share the folder"):
            store.require_folder_names(["base", *rows])
    with pytest.raises(errors.UserError, match=r"the sweep has a file sweep\.json"):
        store.require_folder_names(["base", "sweep.json"])


def test_a_description_is_read_as_it_was_written(tmp_path, make_config):
    description = describe(
        make_config(),
        {"base": {}, "A h=1": {"train.num_steps": 200}},
        runs=[run(), run("A h=1 warmup_steps=20", 1, "2")],
        tune={"train.warmup_steps": [10, 20]},
        match="flops",
        noise_floor=3,
        reuse=["elsewhere"],
        data=[],
    )
    store.write(tmp_path, description)
    assert dataclasses.asdict(store.read(tmp_path)) == dataclasses.asdict(description)
    assert description.variants("A h=1") == {10: "A h=1", 20: "A h=1 warmup_steps=20"}
    assert description.config("A h=1 warmup_steps=20").train.num_steps == 200


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": {}}, "it has no rows"),
        ({"table": "../x"}, "no table can be called"),
        ({"rows": {"base": {"model.nonsense": 1}}}, "row 'base': there is no config field"),
        ({"runs": [{"row": "C", "seed": 0, "config_hash": "1" * 64}]}, "there is no row 'C'"),
        ({"runs": [{"row": "base", "seed": 0, "config_hash": "x"}]}, "'x' is no config_hash"),
        ({"match": "seconds"}, "match='seconds' is unknown"),
    ],
)
def test_a_damaged_description_is_refused_with_a_remedy(tmp_path, make_config, changes, message):
    store.write(tmp_path, describe(make_config(), {"base": {}}))
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(errors.UserError, match=f"sweep.json is damaged .*{message}.*start the"):
        store.read(tmp_path)


def test_records_with_a_removed_field_at_its_default_are_read(tmp_path, make_config):
    rows = {"base": {}, "row": {"train.scheduled_sampling": 0.0}}
    store.write(tmp_path, describe(make_config(), rows))
    assert store.read(tmp_path).rows["row"] == {}
    assert config_lib.REMOVED["train.scheduled_sampling"] == 0.0


def test_a_run_is_found_by_its_hash_whatever_its_row(tmp_path):
    own = tmp_path / "A-h-1/seed0-11111111"
    assert store.locate(tmp_path, run("A h=1")) == own
    other = tmp_path / "base/seed0-11111111"
    files.write_json(other / "run.json", {"config_hash": "1" * 64, "digests": {}})
    assert store.locate(tmp_path, run("A h=1")) == other
    files.write_json(other / "run.json", {"config_hash": "1" * 8 + "2" * 56, "digests": {}})
    assert store.locate(tmp_path, run("A h=1")) == own


def test_runs_with_one_seed_twice_are_refused(tmp_path, make_config):
    runs = [run(), run(digit="2")]
    store.write(tmp_path, describe(make_config(), {"base": {}}, runs=runs))
    with pytest.raises(errors.UserError, match="row 'base' has seed 0 twice"):
        store.read(tmp_path)
