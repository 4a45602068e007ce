"""The variations: their rows, and a small sweep of them."""

import json
import os
import subprocess
import sys

import pytest

from configs import base as base_config
from configs import small as small_config
from configs import toy as toy_config
from experiments import variations
from experiments.results import comparison, frames
from experiments.sweep import cost, store
from experiments.sweep import rows as rows_lib
from tests import sweeps, tiny
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.models import (
    layers,
    masks,
    positions,
    recurrent_attention,
    recurrent_cells,
)


def base_of(module):
    return config_lib.from_mapping(module.get_config().to_dict())


def test_rows_cover_every_group_and_kind():
    rows = variations.rows_for(base_of(base_config))
    assert {name[0] for name in rows} == set("bFGHIJK")
    configs = [config_lib.replace(base_of(base_config), row).model for row in rows.values()]
    for field, kinds in (
        ("position", positions.KINDS),
        ("norm", layers.NORMS),
        ("norm_placement", layers.NORM_PLACEMENTS),
        ("feed_forward", layers.FEED_FORWARDS),
        ("attention_pattern", masks.PATTERNS),
        ("architecture", {"transformer", *recurrent_cells.CELLS, "conv"}),
        ("recurrent_attention", recurrent_attention.ATTENTIONS),
    ):
        assert {getattr(config, field) for config in configs} == set(kinds)
    assert len([name for name in rows if name.startswith("J")]) == 3 * 3 + 1
    assert set(rows) >= variations.COMPARED
    slugs = {store.slug(name) for name in rows}
    assert len(slugs) == len(rows)
    assert not any("/" in slug for slug in slugs)


def parameters_of(module, names):
    base = base_of(module)
    of = variations.rows_for(base)
    return {name: cost.parameters(config_lib.replace(base, of[name])) for name in names}


def test_kinds_without_parameters_add_none_and_others_those_of_their_formula():
    names = ("base", "I SwiGLU", "F rotary", "F ALiBi", "F none", "F T5 bias", "F relative")
    params = parameters_of(toy_config, names)
    assert params["I SwiGLU"] == pytest.approx(params["base"], rel=0.01)  # d_ff is rounded
    assert params["F rotary"] == params["F ALiBi"] == params["F none"] == params["base"]
    # One T5 table for each stack, not for each layer: 2 tables × 32 buckets × h.
    model = base_of(toy_config).model
    assert params["F T5 bias"] - params["base"] == 2 * 32 * model.num_heads
    # In each self-attention a key's and a value's vector for each head and distance from -16 to 16.
    vectors = 33 * model.num_heads * (model.d_k + model.d_v)
    assert params["F relative"] - params["base"] == 2 * model.num_layers * vectors


@pytest.mark.slow
@pytest.mark.parametrize("module", [toy_config, small_config, base_config])
def test_every_row_can_be_built(module):
    assert all(parameters_of(module, variations.rows_for(base_of(module))).values())


def test_a_base_without_enough_heads_is_named():
    base = config_lib.replace(base_of(toy_config), {"model.num_heads": 4})
    with pytest.raises(errors.UserError, match=r"model\.num_heads.*is 4"):
        variations.rows_for(base)


def test_rows_trained_on_short_sentences_are_compared_with_each_other():
    base = base_of(toy_config)
    rows = variations.rows_for(base)
    description = sweeps.of_runs({}, rows, configuration=base).description
    reference = {row: comparison.reference(description, row) for row in rows}
    assert reference["F none"] == reference["J LSTM"] == "base"
    assert reference["K none"] == reference["K sinusoidal"] == "K sinusoidal"


def test_a_base_of_other_kinds_is_refused():
    base = config_lib.replace(base_of(toy_config), {"model.position": "none"})
    with pytest.raises(errors.UserError, match=r"the rows vary model\.position"):
        variations.rows_for(base)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate_scale:1", "--tune=learning_rate_scale:1"),
        ("train.learning_rate:1", "--tune=train.learning_rate:1"),
        ("train.learning_rate_scale", "--tune=train.learning_rate_scale: "),
        ("train.learning_rate_scale:1,fast", "fast"),
        ("model.dropout_rate:0.1,1.5", "should be below 1"),
        ("train.learning_rate_scale:1,0.5,1.0", "a value is given twice; give a field"),
        ("train.seed:1,2", "other than train.seed"),
        ("mesh.data:1,2", "give a field of model, train, data or decode"),
    ],
)
def test_a_bad_tune_is_named(text, message):
    with pytest.raises(errors.UserError, match=message):
        rows_lib.parse_tune(text, base_of(toy_config))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Returns the folder of a sweep of two rows, each with a second learning rate."""
    workdir = tmp_path_factory.mktemp("variations")
    values = {**tiny.OVERRIDES, "model.num_heads": 8, "model.position": "sinusoidal",
              "train.num_steps": 4, "train.learning_rate_scale": 0.5,
              "evaluation.score_test": True,
              "log.bucket_tokens": 8}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "experiments.variations", "--config=configs/toy.py",
         *(f"--config.{name}={value}" for name, value in values.items()),
         f"--workdir={workdir}", "--rows=base,K rotary", "--claim_seeds=1",
         "--tune=train.learning_rate_scale:0.5,4"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "200", "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return workdir


def folder_of(workdir, row):
    sweep = frames.load(workdir)
    return sweep.folders[sweep.of(row)["config_hash"].iloc[0]]


@pytest.mark.slow
def test_rows_stand_at_their_best_beside_the_fixed_recipe_and_claims_beside_them(swept):
    sweep = frames.load(swept)
    lines = (swept / "variations.md").read_text().splitlines()
    assert "| best of learning_rate_scale | learning_rate_scale |" in lines[2]
    for name in ("base", "K rotary"):
        variants = {0.5: name, 4.0: f"{name} learning_rate_scale=4.0"}
        dev, test = (
            {value: sweep.values(variant, column)[0] for value, variant in variants.items()}
            for column in ("bleu", "test_bleu")
        )
        best = max(dev, key=lambda value: dev[value])
        line = next(line for line in lines if line.startswith(f"| {name} |"))
        assert f"| {test[best]:.2f} | {best} |" in line
    for number, claim in enumerate(variations.CLAIMS, 1):
        assert f"| {claim.text} [{number}] |  |  | not run | not run |  |" in lines


@pytest.mark.slow
def test_training_on_short_sentences_is_scored_on_long_ones(swept):
    results = {
        name: json.loads((folder_of(swept, name) / "result.json").read_text())
        for name in ("base", "K rotary")
    }
    assert results["base"]["data"]["dropped"]["left_out"] == 0
    assert results["K rotary"]["data"]["dropped"]["left_out"] > 0
    beyond = results["K rotary"]["bleu_beyond_training"]
    longest = tiny.OVERRIDES["data.target_length"] // 4
    first = int(beyond["tokens"].split("-")[0])
    assert first == longest + 1
    buckets = results["K rotary"]["bleu_by_length"]
    assert sum(bucket["sentences"] for bucket in buckets) == 16


@pytest.mark.slow
def test_a_run_says_where_it_departs_from_the_paper(swept):
    log = (folder_of(swept, "K rotary") / "log.txt").read_text()
    departs = "not the paper's: model.position=rotary, where the paper has sinusoidal or learned"
    assert departs in log
    assert "not the paper's: data.train_max_tokens=16, where the paper has 0" in log
