"""The variations and eras: their rows, what they claim, and a small sweep of them."""

import json
import os
import subprocess
import sys

import pytest

from configs import base as base_config
from configs import small as small_config
from configs import toy as toy_config
from experiments import claims, cost, eras, results, sweep, variations
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax import recipe
from transformer_jax.training import optimizer


def base_of(module):
    return config_lib.from_mapping(module.get_config().to_dict())


def test_rows_cover_every_group_and_kind():
    rows = variations.rows_for(base_of(base_config))
    assert {name[0] for name in rows} == set("bFGHIJK")
    assert len([name for name in rows if name.startswith("J")]) == 3 * 3 + 2
    assert set(rows) >= claims.COMPARED
    slugs = {results.slug(name) for name in rows}
    assert len(slugs) == len(rows)
    assert not any("/" in slug for slug in slugs)


@pytest.mark.parametrize("module", [toy_config, small_config, base_config])
def test_every_row_can_be_built(module):
    base = base_of(module)
    params = {
        row: cost.parameters(config_lib.replace(base, overrides))
        for row, overrides in variations.rows_for(base).items()
    }
    # SwiGLU at equal parameters, up to rounding d_ff; positions without parameters have none.
    assert params["I SwiGLU"] == pytest.approx(params["base"], rel=0.01)
    assert params["F rotary"] == params["F ALiBi"] == params["F none"] == params["base"]
    # One T5 table for each stack, not for each layer: 2 tables × 32 buckets × h.
    assert params["F T5 bias"] - params["base"] == 2 * 32 * base.model.num_heads


def test_a_base_without_enough_heads_is_named():
    base = config_lib.replace(base_of(toy_config), {"model.num_heads": 4})
    with pytest.raises(config_lib.UserError, match=r"model\.num_heads.*is 4"):
        variations.rows_for(base)


def test_the_papers_config_departs_from_it_nowhere():
    base = base_of(base_config)
    assert recipe.deviations(base) == []
    changed = config_lib.replace(base, eras.rows_for(base)["tensor2tensor v3"])
    lines = recipe.deviations(changed)
    assert len(lines) == 6
    assert recipe.deviations(config_lib.replace(base, {"model.num_kv_heads": 8})) == []
    assert "model.norm_placement=pre, where the paper has post" in lines


def test_eras_have_their_toolkits_peak_rates():
    base = base_of(base_config)
    peaks = {}
    for row, overrides in eras.rows_for(base).items():
        train = config_lib.replace(base, overrides).train
        peaks[row] = float(optimizer.learning_rate(train.warmup_steps, train, 512))
    assert peaks["base"] == peaks["tensor2tensor v1"] == pytest.approx(512**-0.5 * 4000**-0.5)
    assert peaks["tensor2tensor v2"] == pytest.approx(2 * 512**-0.5 * 8000**-0.5)
    assert peaks["fairseq"] == pytest.approx(7e-4)
    assert peaks["Marian"] == pytest.approx(3e-4)
    # A shorter base keeps the ratios.
    toy = base_of(toy_config)
    train = config_lib.replace(toy, eras.rows_for(toy)["Marian"]).train
    own = toy.train
    ratio = optimizer.learning_rate(train.warmup_steps, train, 512) / optimizer.learning_rate(
        own.warmup_steps, own, 512
    )
    assert train.warmup_steps == 4 * own.warmup_steps
    assert float(ratio) == pytest.approx(3e-4 * (512 * 4000) ** 0.5)


def row(name, *scores):
    found = {
        seed: {
            "bleu_beyond_training": None if score is None else {"score": score},
            "bleu": {"sacrebleu_13a": {"score": score}},
            "bleu_by_length": [{"score": 50.0}, {"score": 50.0 - (score or 0) / 2}],
        }
        for seed, score in enumerate(scores)
    }
    return results.Row(name, {}, found, {}, [])


@pytest.mark.parametrize(
    ("higher", "lower", "expected"),
    [
        ((80, 81, 82), (40, 41, 42), "agrees"),
        ((40, 41, 42), (80, 81, 82), "disagrees"),
        ((70, 80, 90), (69, 79, 89), "undecided"),
        ((80,), (40, 41, 42), "undecided"),
        ((), (40, 41, 42), "not run"),
        ((None, None), (40, 41, 42), "not run"),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side_of_0(higher, lower, expected):
    claim = claims.Claim("", "", [claims.Comparison("a", "b", claims.beyond_training)])
    found = results.Sweep("variations", base_of(toy_config), [row("a", *higher), row("b", *lower)])
    assert claims.judge(claim, found)[0] == expected


def test_no_lower_is_refuted_by_lower_only():
    pairs = {(70, 80, 90): "agrees", (10, 11, 12): "disagrees", (79,): "undecided"}
    claim = claims.Claim("", "", [claims.Comparison("a", "b", strictly=False)])
    for higher, expected in pairs.items():
        rows = [row("a", *higher), row("b", 78, 79, 89)]
        found = results.Sweep("variations", base_of(toy_config), rows)
        assert claims.judge(claim, found)[0] == expected


def test_what_is_lost_on_long_sentences_is_a_share():
    buckets = [{"score": 80.0}, {"score": 70.0}, {"score": 60.0}]
    assert claims.lost_on_long({"bleu_by_length": buckets}) == pytest.approx(25)
    assert claims.lost_on_long({"bleu_by_length": buckets[:1]}) is None


def test_a_base_of_other_kinds_is_refused():
    base = config_lib.replace(base_of(toy_config), {"model.position": "none"})
    with pytest.raises(config_lib.UserError, match=r"the rows vary model\.position"):
        variations.rows_for(base)


def test_a_chain_agrees_only_if_every_link_does():
    claim = claims.Claim(
        "", "", [claims.Comparison("a", "b", m) for m in (claims.whole, claims.lost_on_long)]
    )
    rows = [row("a", 80, 81, 82), row("b", 40, 41, 42)]
    found = results.Sweep("variations", base_of(toy_config), rows)
    assert claims.judge(claim, found)[0] == "agrees"
    opposed = [claims.Comparison("a", "b"), claims.Comparison("b", "a")]
    assert claims.judge(claims.Claim("", "", opposed), found)[0] == "disagrees"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate_scale:1", "--tune=learning_rate_scale:1"),
        ("train.learning_rate:1", "--tune=train.learning_rate:1"),
        ("train.learning_rate_scale", "--tune=train.learning_rate_scale: "),
        ("train.learning_rate_scale:1,fast", "fast"),
        ("model.dropout_rate:0.1,1.5", "should be below 1"),
        ("train.seed:1,2", "no seed"),
        ("mesh.data:1,2", "only fields of model"),
    ],
)
def test_a_bad_tune_is_named(text, message):
    with pytest.raises(config_lib.UserError, match=message):
        sweep.parse_tune(text, base_of(toy_config))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two rows, each with a second learning rate."""
    workdir = tmp_path_factory.mktemp("variations")
    values = {**tiny.OVERRIDES, "model.num_heads": 8, "model.position": "sinusoidal",
              "train.num_steps": 4, "log.bucket_tokens": 8}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "experiments.variations", "--config=configs/toy.py",
         *(f"--config.{name}={value}" for name, value in values.items()),
         f"--workdir={workdir}", "--rows=base,K rotary", "--claim_seeds=1",
         "--tune=train.learning_rate_scale:0.5,4"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "200", "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return workdir, done


def test_rows_stand_at_their_best_beside_the_fixed_recipe(swept):
    workdir, _ = swept
    lines = (workdir / "variations.md").read_text().splitlines()
    heads = lines[0].split(" | ")
    assert "best of learning_rate_scale" in heads
    for name in ("base", "K rotary"):
        scores = {
            scale: json.loads(
                (results.cell_folder(workdir, folder, 0) / "result.json").read_text()
            )["bleu"]["sacrebleu_13a"]["score"]
            for scale, folder in ((0.5, name), (4.0, f"{name} learning_rate_scale=4.0"))
        }
        best = max(scores, key=lambda scale: scores[scale])
        line = next(line for line in lines if line.startswith(f"| {name} |"))
        assert f"| {scores[best]:.2f} at {best} |" in line


def test_claims_stand_beside_our_differences(swept):
    markdown = (swept[0] / "variations.md").read_text()
    for claim in claims.CLAIMS:
        assert f"| {claim.text} | {claim.source} | not run |" in markdown


def test_training_on_short_sentences_is_scored_on_long_ones(swept):
    workdir, _ = swept
    results_of = {
        name: json.loads((results.cell_folder(workdir, name, 0) / "result.json").read_text())
        for name in ("base", "K rotary")
    }
    assert results_of["base"]["data"]["dropped"]["left_out"] == 0
    assert results_of["K rotary"]["data"]["dropped"]["left_out"] > 0
    beyond = results_of["K rotary"]["bleu_beyond_training"]
    longest = tiny.OVERRIDES["data.target_length"] // 4
    first = int(beyond["tokens"].split("-")[0])
    assert first <= longest + 1
    buckets = results_of["K rotary"]["bleu_by_length"]
    assert sum(bucket["sentences"] for bucket in buckets) == 16


def test_a_run_says_where_it_departs_from_the_paper(swept):
    log = (results.cell_folder(swept[0], "K rotary", 0) / "log.txt").read_text()
    departs = "not the paper's: model.position=rotary, where the paper has sinusoidal or learned"
    assert departs in log
    assert "not the paper's: data.train_max_tokens=16, where the paper has 0" in log
