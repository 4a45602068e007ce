"""The variations: their rows, what they claim, and a small sweep of them."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.stats

from configs import base as base_config
from configs import small as small_config
from configs import toy as toy_config
from experiments import variations
from experiments.analysis import claims, tuning
from experiments.benchmarks import cost
from experiments.sweep import results
from experiments.sweep import rows as rows_lib
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.evaluation import bleu
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
    assert set(rows) >= claims.COMPARED
    slugs = {results.slug(name) for name in rows}
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


def row(name, *scores):
    found: dict[int, Any] = {
        seed: {
            "bleu_beyond_training": None if score is None else {"score": score},
            "bleu": {"sacrebleu_13a": {"score": score}},
            "bleu_by_length": [
                {"score": 50.0, "sentences": 40, "tokens": "1-9"},
                {"score": 50.0 - (score or 0) / 2, "sentences": 40, "tokens": "10-20"},
            ],
            "params": 100,
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
        ((80, 80, 80), (40, 40, 40), "undecided"),
        ((), (40, 41, 42), "not run"),
        ((80, None, 82), (40, 41, 42), "not measurable"),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side_of_0(higher, lower, expected):
    claim = claims.Claim("", "", [claims.Inequality("a", "b", claims.BEYOND_TRAINING)])
    rows = {"a": row("a", *higher), "b": row("b", *lower)}
    assert claims.judge(claim, rows)[0] == expected


def test_a_row_that_failed_is_no_evidence():
    claim = claims.Claim("", "", [claims.Inequality("a", "b")])
    rows = {"a": row("a", 80, 81, 82), "b": row("b", 40, 41, 42)}
    rows["b"] = dataclasses.replace(rows["b"], failures={3: "diverged"})
    assert claims.judge(claim, rows)[0] == "failed"


def test_no_lower_allows_a_margin():
    pairs = {
        (79.6, 79.7, 79.8): "agrees",  # about 0.3 lower, but surely less than 1
        (70, 80, 90): "undecided",
        (76, 76.1, 76.2): "disagrees",
        (79,): "undecided",
    }
    claim = claims.Claim("", "", [claims.Inequality("a", "b", strictly=False)])
    for higher, expected in pairs.items():
        rows = {"a": row("a", *higher), "b": row("b", 79.9, 80, 80.1)}
        assert claims.judge(claim, rows)[0] == expected, higher


def test_what_is_lost_on_long_sentences_is_a_share():
    buckets = [{"score": score, "sentences": 20} for score in (80.0, 70.0, 60.0)]
    assert claims.LOST_ON_LONG.measure({"bleu_by_length": buckets}) == pytest.approx(25)
    assert claims.LOST_ON_LONG.measure({"bleu_by_length": buckets[:1]}) is None
    few = [{"score": 90.0, "sentences": 19}, *buckets, {"score": 10.0, "sentences": 5}]
    assert claims.LOST_ON_LONG.measure({"bleu_by_length": few}) == pytest.approx(25)
    assert claims.LOST_ON_LONG.measure({"bleu_by_length": few[:2]}) is None


def test_a_base_of_other_kinds_is_refused():
    base = config_lib.replace(base_of(toy_config), {"model.position": "none"})
    with pytest.raises(errors.UserError, match=r"the rows vary model\.position"):
        variations.rows_for(base)


def test_a_chain_agrees_only_if_every_link_does():
    claim = claims.Claim(
        "", "", [claims.Inequality("a", "b", m) for m in (claims.WHOLE, claims.LOST_ON_LONG)]
    )
    rows = {"a": row("a", 80, 81, 82), "b": row("b", 40, 41, 42), "c": row("c", 30, 40, 50)}
    assert claims.judge(claim, rows)[0] == "agrees"
    first = claims.Inequality("a", "b")
    for second, expected in (
        (claims.Inequality("b", "a"), "disagrees"),
        (claims.Inequality("b", "c"), "undecided"),
        (claims.Inequality("b", "d"), "not run"),
    ):
        rows["d"] = row("d")
        assert claims.judge(claims.Claim("", "", [first, second]), rows)[0] == expected


def test_one_link_of_many_refutes_a_claim_only_at_its_share_of_5_percent():
    # By scipy: p = 0.030 for the second link, below 0.05 but not below 0.05 / 2.
    rows = {"a": row("a", 80, 81, 82), "b": row("b", 40, 41, 42), "c": row("c", 42.5, 43.7, 44.9)}
    links = [claims.Inequality("a", "b"), claims.Inequality("b", "c")]
    found: Any = scipy.stats.ttest_ind([40, 41, 42], [42.5, 43.7, 44.9], equal_var=False)
    assert 0.025 < found.pvalue < 0.05
    assert claims.judge(claims.Claim("", "", links), rows)[0] == "undecided"
    assert claims.judge(claims.Claim("", "", links[1:]), rows)[0] == "disagrees"


def test_rows_at_their_best_are_judged_too():
    def tried(value, own, chosen_by, *matches):
        counts = np.array([[9, 9, n, n - 1, n - 2, n - 3, 9, 8, 7, 6] for n in matches])
        runs = {seed: counts + seed % 2 for seed in own.results}
        return tuning.Tried(value, own, runs, chosen_by, 0.0, 0.0)

    rows = {"a": row("a", 80, 81, 82), "b": row("b", 70, 71, 72)}
    claim = claims.Claim("", "", [claims.Inequality("a", "b")])
    assert claims.judge(claim, rows)[0] == "agrees"
    grids = {
        "a": [tried(1, rows["a"], 50, 5, 5)],
        "b": [tried(1, rows["b"], 40, 4, 4), tried(2, row("b 2", 1, 2, 3), 60, 8, 8)],
    }
    tuned = {name: tuning.Tuned(grid, [], False) for name, grid in grids.items()}
    best = {name: tuning.at_best(rows[name], tuned[name]) for name in rows}
    scores = bleu.from_counts(tuned["b"].best.counts[0].sum(0), bleu.MAIN)
    assert (best["b"].name, claims.WHOLE.measure(best["b"].results[0])) == ("b 2", scores)
    assert claims.judge(claim, best)[0] == "disagrees"
    unknown = {name: tuning.at_best(each, None) for name, each in rows.items()}
    assert claims.judge(claim, unknown)[0] == "not measurable"


def test_short_sentences_are_compared_with_short_sentences():
    base = base_of(toy_config)
    rows = [
        results.Row(name, overrides, {}, {}, [])
        for name, overrides in variations.rows_for(base).items()
    ]
    sweep = results.Sweep("variations", base, rows, pathlib.Path())
    reference = {each.name: results.reference(each, sweep).name for each in rows}
    assert reference["F none"] == reference["J LSTM"] == "base"
    assert reference["K none"] == reference["K sinusoidal"] == "K sinusoidal"


def test_the_table_of_claims_shows_differences_and_parameters():
    rows = [row(name, 80, 81, 82) for name in claims.COMPARED if name != "F none"]
    sweep = results.Sweep(
        "variations",
        base_of(toy_config),
        [*rows, row("F none", 40, 41, 42)],
        pathlib.Path(),
    )
    (table,) = claims.section(sweep).shown
    stated, found = (dict(zip(table.heads, line, strict=True)) for line in table.lines[:2])
    assert (stated["claim"], found["claim"]) == ("no positions hurts [1]", "· base > F none")
    assert stated["verdict"] == found["verdict"] == "agrees"
    assert table.note.startswith("[1] Vaswani et al. 2017")
    assert found["difference"].startswith("+40.00 ± 2.27")
    assert found["runs"] == "3 and 3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate_scale:1", "--tune=learning_rate_scale:1"),
        ("train.learning_rate:1", "--tune=train.learning_rate:1"),
        ("train.learning_rate_scale", "--tune=train.learning_rate_scale: "),
        ("train.learning_rate_scale:1,fast", "fast"),
        ("model.dropout_rate:0.1,1.5", "should be below 1"),
        ("train.learning_rate_scale:1,0.5,1.0", "value twice; give a field"),
        ("train.seed:1,2", "no seed"),
        ("mesh.data:1,2", "only fields of model"),
    ],
)
def test_a_bad_tune_is_named(text, message):
    with pytest.raises(errors.UserError, match=message):
        rows_lib.parse_tune(text, base_of(toy_config))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two rows, each with a second learning rate."""
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
    return workdir, done


@pytest.mark.slow
def test_rows_stand_at_their_best_beside_the_fixed_recipe_and_claims_beside_them(swept):
    workdir, _ = swept
    lines = (workdir / "variations.md").read_text().splitlines()
    heads = lines[0].split(" | ")
    assert "best of learning_rate_scale" in heads
    for name in ("base", "K rotary"):
        dev, test = (
            {
                scale: bleu.from_counts(
                    np.sum(
                        json.loads((results.cell_folder(workdir, folder, 0) / file).read_text())[
                            bleu.MAIN
                        ],
                        0,
                    ),
                    bleu.MAIN,
                )
                for scale, folder in ((0.5, name), (4.0, f"{name} learning_rate_scale=4.0"))
            }
            for file in ("bleu_counts.json", "test_bleu_counts.json")
        )
        best = max(dev, key=lambda scale: dev[scale])
        line = next(line for line in lines if line.startswith(f"| {name} |"))
        assert f"| {test[best]:.2f} at {best} |" in line
    for number, claim in enumerate(claims.CLAIMS, 1):
        assert f"| {claim.text} [{number}] |  |  | not run | not run |  |" in lines


@pytest.mark.slow
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
    assert first == longest + 1
    buckets = results_of["K rotary"]["bleu_by_length"]
    assert sum(bucket["sentences"] for bucket in buckets) == 16


@pytest.mark.slow
def test_a_run_says_where_it_departs_from_the_paper(swept):
    log = (results.cell_folder(swept[0], "K rotary", 0) / "log.txt").read_text()
    departs = "not the paper's: model.position=rotary, where the paper has sinusoidal or learned"
    assert departs in log
    assert "not the paper's: data.train_max_tokens=16, where the paper has 0" in log
