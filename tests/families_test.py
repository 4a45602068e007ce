"""The families: their rows, what is claimed of them, and a small sweep."""

import json

import pytest

from configs import base as base_config
from configs import multi30k as multi30k_config
from configs import toy as toy_config
from experiments import families
from experiments.results import frames
from experiments.sweep import cost, store
from experiments.sweep import rows as rows_lib
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import objectives, vocabulary
from transformer_jax.training import metrics

BASES = [toy_config, multi30k_config, base_config]


def base_of(module):
    return config_lib.from_mapping(module.get_config().to_dict())


def configs_of(module):
    base = base_of(module)
    rows = families.rows_for(base)
    return base, {row: config_lib.replace(base, changes) for row, changes in rows.items()}


@pytest.mark.parametrize("module", BASES)
def test_every_objective_has_a_row_within_bases_budget(module):
    base, rows = configs_of(module)
    for config in rows.values():
        models.build(config.model, vocabulary.size(config))
    rows = {name: config for name, config in rows.items() if not name.startswith("E ")}
    found = {config.train.objective for config in rows.values()}
    encoder_only = {name for name, kind in objectives.KINDS.items() if kind.encoder_only}
    assert found == {*objectives.KINDS, objectives.NONE} - encoder_only
    for field in ("num_steps", "warmup_steps", "learning_rate_scale"):
        assert len({getattr(config.train, field) for config in rows.values()}) == 1
    assert len({c.train.batch_tokens // c.data.target_length for c in rows.values()}) == 1  # rows
    for config in rows.values():
        share = 0 if config.train.objective == objectives.NONE else 1 / 8
        assert config.train.objective_steps == int(share * config.train.num_steps)
    assert len({store.slug(name) for name in rows}) == len(rows)
    # Only on the toy is there another recipe than base's own.
    same = rows["base"] == base
    assert same == (base.data.corpus != "toy")


def test_rows_have_bases_parameters_but_for_their_extra_ids():
    base, rows = configs_of(toy_config)
    counted = ("base", *families.OBJECTIVES, *families.ENCODERS)
    params = {row: cost.parameters(rows[row]) for row in counted}
    extra = 8 * base.model.d_model
    for row in families.OBJECTIVES:
        more = 0 if row == "O prefix" else extra
        assert params[row] == params["base"] + more
    assert extra < 0.01 * params["base"]


@pytest.mark.parametrize("module", BASES)
def test_encoder_only_rows_have_bases_budget_and_start_from_one_another(module):
    _, rows = configs_of(module)
    tokens = {name: c.train.num_steps * c.train.batch_tokens for name, c in rows.items()}
    for name, config in rows.items():
        if not name.startswith("E "):
            continue
        # Masked rows predict 15% of their tokens, about base's number. Pair classification reads
        # half of that.
        more, rate = {"bert": (7, 2), "roberta": (7, 2), "matching": (3.5, 0.5)}.get(
            config.train.objective, (1, 1)
        )
        assert tokens[name] == more * tokens["base"]
        assert config.train.learning_rate_scale == rate * rows["base"].train.learning_rate_scale
        if name.endswith((" pairs", " translator")) and "nothing" not in name:
            assert name.startswith(f"{config.train.start_from} ")
        if name.endswith(" translator"):
            changes = {"train.start_from": ""}
            assert config_lib.replace(config, changes) == rows["base"]
        else:
            assert config.train.objective_steps == config.train.num_steps
    student, teacher = (rows[f"E {name}"] for name in ("DistilBERT", "BERT"))
    assert student.train.start_from == "E BERT"
    assert student.train.teacher_layers == teacher.model.num_layers
    assert 1 <= student.model.num_layers <= teacher.model.num_layers / 2
    assert teacher.model.num_layers % student.model.num_layers == 0


def test_two_stacks_layers_in_one_have_fewer_parameters_by_what_joins_them():
    base, rows = configs_of(toy_config)
    alone = [row for row in rows if row.startswith("L decoder")]
    params = {row: cost.parameters(rows[row]) for row in ("base", *alone)}
    model = base.model
    # Each of base's N decoder layers attends to the encoder too: four matrices and a norm.
    joint = 4 * model.d_model * model.num_heads * model.d_k + 2 * model.d_model
    for kind in ("causal", "prefix"):
        assert params["base"] - params[f"L decoder {kind} 2N"] == model.num_layers * joint
        assert params[f"L decoder {kind}"] < 0.6 * params["base"]


def test_claims_compare_rows_that_there_are():
    rows = families.rows_for(base_of(toy_config))
    assert set(rows) >= families.COMPARED
    assert set(families.OBJECTIVES) <= families.COMPARED


@pytest.mark.parametrize(
    "changes",
    [
        {"model.architecture": "lstm", "model.position": "none"},
        {"train.objective": "prefix", "train.objective_steps": 3},
    ],
)
def test_a_base_that_is_none_is_refused(changes):
    base = config_lib.replace(base_of(toy_config), changes)
    with pytest.raises(errors.UserError, match="the rows vary " + next(iter(changes))):
        families.rows_for(base)


def test_a_base_of_one_layer_has_no_half():
    base = config_lib.replace(base_of(toy_config), {"model.num_layers": 1})
    with pytest.raises(errors.UserError, match=r"'E DistilBERT' .*num_layers=1 should be at least"):
        families.rows_for(base)


def test_rows_that_share_a_recipe_can_have_equal_operations():
    base = base_of(toy_config)
    rows = families.rows_for(base)
    rows["deeper"] = {**rows["base"], "model.num_layers": 6}
    matched = rows_lib.matched(rows, ["base", "O BERT-style", "deeper"], base, "flops")
    assert matched["base"] == rows["base"]
    flops = {
        row: cost.training_flops(config_lib.replace(base, matched[row]))
        for row in ("base", "O BERT-style", "deeper")
    }
    steps = {row: matched[row]["train.num_steps"] for row in flops}
    assert 0.98 < steps["O BERT-style"] / steps["base"] < 1  # whose extra ids cost a little
    assert steps["deeper"] < 0.8 * steps["base"]
    # One whose objective takes all its steps stays as it is.
    assert matched["E BERT"] == rows["E BERT"]
    own = {**rows, "short": {"train.num_steps": 9}}
    with pytest.raises(errors.UserError, match=r"'short' .*it sets train\.num_steps itself"):
        rows_lib.matched(own, ["short"], base, "flops")
    for row in flops:
        config = config_lib.replace(base, rows[row])
        total = cost.training_flops(config) / config.train.num_steps * steps[row]
        wanted = cost.training_flops(config_lib.replace(base, rows["base"]))
        assert total == pytest.approx(wanted, rel=1e-3)


@pytest.mark.slow
def test_a_sweep_trains_on_objectives_first_and_shows_the_claims(server, tmp_path):
    changes = {"train.num_steps": 8, "train.warmup_steps": 5, "log.every": 1}
    done = tiny.sweep(server, "families", tmp_path, "--rows=base,O BERT-style", **changes)
    assert done.returncode == 0, done.stderr
    markdown = (tmp_path / "families.md").read_text()
    for number, claim in enumerate(families.CLAIMS, 1):
        assert f"| {claim.text} [{number}] |" in markdown
        assert f"[{number}] {claim.source}" in markdown
    sweep = frames.load(tmp_path)
    folder = sweep.folders[sweep.of("O BERT-style")["config_hash"].iloc[0]]
    assert [record["objective"] for record in metrics.read(folder)] == [1] + [0] * 11
    assert json.loads((folder / "result.json").read_text())["steps"] == 12
    assert "step 1 of 12 (bert_style)" in (folder / "log.txt").read_text()


def test_a_base_that_a_row_cannot_have_is_refused_by_the_rows_name():
    base = config_lib.replace(base_of(toy_config), {"model.norm_placement": "pre"})
    with pytest.raises(errors.UserError, match=r"^row '[^']+': model\.architecture=\w+ has no use"):
        rows_lib.require_effects(base, (), families.rows_for(base))
