"""Scores of encoder-only models against loops, their runs, and runs that start from them."""

import dataclasses
import json
import logging

import jax
import numpy as np
import pytest
from scipy import stats

from tests import objectives_test, random_parameters
from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax.data import batching, dataset, objectives, vocabulary
from transformer_jax.data import examples as examples_lib
from transformer_jax.distributed import sharding
from transformer_jax.evaluation import attention_weights, encoder_only
from transformer_jax.models import embedding
from transformer_jax.runs import run_folder, starting_weights, training_run
from transformer_jax.training import loop

ENCODER = {
    "model.architecture": "encoder",
    "model.num_layers": 1,
    "data.target_length": 128,
    "data.vocab_size": 1000,
    "data.toy_pairs": 3000,
    "data.toy_held_out_pairs": 120,
    "train.batch_tokens": 1024,
    "train.num_steps": 4,
    "train.objective_steps": 4,
}
LEFT = ["result.json", "checkpoints/4"]
ELMO = {"model.architecture": "elmo", "model.position": "none"}


@pytest.fixture
def small(make_config, cache_dir):
    """Returns a function from overrides to a config and its dataset."""

    def load(**overrides):
        config = make_config({**ENCODER, **overrides})
        return config, dataset.load(config.data, cache_dir)

    return load


def one_device(config):
    return sharding.make_mesh(config.mesh, jax.devices()[:1])


@pytest.mark.parametrize("architecture", ["encoder", "elmo"])
def test_scores_equal_those_of_one_text_at_a_time(small, architecture, caplog, tmp_path):
    chosen = {"train.objective": "bert"} if architecture == "encoder" else {**ELMO}
    config, data = small(**{"train.objective": "elmo", **chosen})
    caplog.set_level(logging.INFO)
    scored_by = "bert_words" if architecture == "encoder" else "elmo"
    judge = dataclasses.replace(config.train, objective="matching")
    model = models.build(config.model, vocabulary.size(config))
    params = random_parameters.of(model)
    pairs = data.dev

    @jax.jit
    def logits(batch):
        outputs = models.predictions(model, params, batch).outputs
        return embedding.logits(embedding.of(params), outputs)

    def alone(example):
        found = np.asarray(logits(batching.fill([[example]], 1, 128)), np.float64)
        return found.reshape(-1, 128, found.shape[-1])  # ELMo has two directions

    nats = [
        [
            np.log(np.exp(scores[place, :1000]).sum()) - scores[place, label]
            for scores in alone(example)
            for place, label in enumerate(np.asarray(example.labels).tolist())
            if label
        ]
        for example in examples_lib.held_out(pairs, config)[scored_by]
    ]
    found = encoder_only.likelihoods(model, pairs, config, one_device(config))(params)
    assert found.tokens.tolist() == [len(each) for each in nats]
    np.testing.assert_allclose(found.nats, [sum(each) for each in nats], rtol=1e-4)
    assert found.perplexity == pytest.approx(np.exp(np.mean(np.concatenate(nats))), rel=1e-4)
    judged = dataclasses.replace(config, train=judge)
    yes, no = objectives.pair_labels(objectives.Ids(1000, 1000))
    right, nats = [], []
    for example in examples_lib.held_out(data.dev, judged)["matching"]:
        scores = alone(example)[0, 0]
        answer, other = (yes, no) if np.asarray(example.labels)[0] == yes else (no, yes)
        right.append(scores[answer] > scores[other])
        nats.append(np.log1p(np.exp(scores[other] - scores[answer])))
    scored = encoder_only.score(
        "dev",
        model,
        params,
        data.dev,
        encoder_only.likelihoods(model, data.dev, judged, one_device(config)),
        judged,
        one_device(config),
        tmp_path,
    )
    left = json.loads((tmp_path / "nll.json").read_text())
    np.testing.assert_allclose(left["nats"], nats, rtol=1e-4, atol=1e-6)
    assert left["tokens"] == [1] * len(right)
    assert scored["accuracy"]["answers"] == len(right) > 3
    assert scored["accuracy"]["share"] == np.mean(right)
    low, high = stats.binomtest(sum(right), len(right)).proportion_ci(0.95, "wilson")
    share = f"{np.mean(right):.1%} of {len(right)} pairs classified right"
    assert f"{share} ({low:.1%} to {high:.1%})" in caplog.text
    assert scored["ppl"] == pytest.approx(np.exp(np.mean(nats)), rel=1e-4)
    assert scored["bleu"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["roberta", "bert"])
def test_a_resumed_run_ends_the_same(small, tmp_path, objective):
    changes = {"train.objective": objective, "checkpoint.every": 2, "log.dev_every": 3}
    config, data = small(**changes)
    objectives_test.assert_stopped_ends_the_same(config, data, tmp_path, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {},
            r"architecture=encoder is encoder-only and cannot translate: set train\.obj",
        ),
        ({"train.objective": "prefix"}, r"encoder is encoder-only"),
        (
            {"train.objective": "elmo"},
            r"=elmo masks no tokens, so that model\.architecture=encoder would see what it p",
        ),
        ({"train.objective": "bert", "train.objective_steps": 3}, r"objective_steps=4"),
        (
            {"model.architecture": "transformer", "train.objective": "roberta"},
            r"objective=roberta is for an encoder-only model",
        ),
    ],
)
def test_objectives_that_do_not_suit_the_architecture_are_refused(small, changes, message):
    objective = {} if changes else {"train.objective": "none", "train.objective_steps": 0}
    config, data = small(**{**objective, **changes})
    with pytest.raises(errors.UserError, match=message):
        training_run.check(config, one_device(config), data)


@pytest.mark.parametrize("row", [16, 128])
def test_learned_positions_must_cover_rows_and_held_out_texts(small, row):
    lengths = {"data.target_length": row, "train.batch_tokens": 8 * row}
    config, data = small(**{"train.objective": "bert", "model.position": "learned", **lengths})
    longest = [
        max(map(len, dev + test))
        for dev, test in (
            (data.dev.source_ids, data.test.source_ids),
            (data.dev.target_ids, data.test.target_ids),
        )
    ]
    needed = max(row, sum(longest) + 2)  # BOS, and an EOS between any two sentences
    reaching = {"model.max_positions": needed}
    training_run.check(config_lib.replace(config, reaching), one_device(config), data)
    few = config_lib.replace(config, {"model.max_positions": needed - 1})
    with pytest.raises(errors.UserError, match=f"of at least {needed} for this corpus"):
        training_run.check(few, one_device(config), data)


def test_a_development_set_without_examples_is_refused(small):
    config, data = small(**{"train.objective": "bert"})
    few = dataclasses.replace(data, dev=dataset.HeldOut(["a"], ["b"], [[5]], [[6]]))
    with pytest.raises(errors.UserError, match="makes no examples of the 1 pairs of the dev set"):
        training_run.check(config, one_device(config), few)


@pytest.mark.parametrize(
    ("there", "changes", "message"),
    [
        ([], {}, r"one/seed0 holds no finished run; train it first"),
        (["result.json"], {}, r"one/seed0 has no checkpoint of its last step, 4; train it again"),
        (LEFT, {"data.vocab_size": 400}, r"one/seed0: its tokenizer is not this run's; train"),
        (LEFT, {"model.num_layers": 3}, r"should be this model with train\.teacher_layers=2"),
        (LEFT, {"model.d_ff": 8}, r"inner/\w+ has the shape .* give both runs the same sizes"),
    ],
)
def test_a_folder_whose_weights_cannot_be_a_start_is_named_before_a_step_is_compiled(
    small, make_config, cache_dir, tmp_path, monkeypatch, there, changes, message
):
    started = {"train.objective": "bert", "train.start_from": f"{tmp_path}/one/seed0"}
    if "model.num_layers" in changes:
        started |= {"train.teacher_layers": 2}
    folder = tmp_path / "one/seed0"
    if there:
        folder.mkdir(parents=True)
        run_folder.claim(folder, *small(**{"train.objective": "bert", **changes}))
    for name in there:
        (folder / name).mkdir(parents=True)
    monkeypatch.setattr(loop, "compile_step", lambda *_: pytest.fail("was compiled"))
    with pytest.raises(errors.UserError, match=message):
        training_run.run(make_config({**ENCODER, **started}), tmp_path / "own", cache_dir)


def test_a_run_starts_from_the_weights_of_another(make_config, cache_dir, tmp_path, monkeypatch):
    """At a learning rate of 0 the weights stay those of the start."""
    still = {"train.learning_rate_scale": 0.0, "train.num_steps": 1, "train.objective_steps": 1}
    one = tmp_path / "one"
    one.mkdir()
    files.write_json(one / "run.json", {"config_hash": 64 * "1", "digests": {}})
    start = {"train.objective": "roberta", "train.start_from": str(one)}
    config = make_config({**ENCODER, **start, **still})
    params = random_parameters.of(models.build(config.model, vocabulary.size(config)))
    before = jax.tree.map(np.array, params)  # a step consumes what it is given
    monkeypatch.setattr(starting_weights, "require", lambda *_: None)
    monkeypatch.setattr(starting_weights, "read", lambda *_: (1, params))

    def evaluate(*_):
        raise errors.RunError("enough")

    monkeypatch.setattr(training_run, "_scores", evaluate)
    with pytest.raises(errors.RunError, match="enough"):
        training_run.run(config, tmp_path / "own", cache_dir)
    after = run_folder.load_model(tmp_path / "own").params
    jax.tree.map(np.testing.assert_array_equal, after, before)


@pytest.mark.slow
def test_runs_start_from_one_another(make_config, cache_dir, tmp_path):
    def run(name, **overrides):
        config = make_config({**ENCODER, "model.num_layers": 2, **overrides})
        return training_run.run(config, tmp_path / name, cache_dir)

    first = run("bert", **{"train.objective": "bert"})
    assert first["bleu"] == {}
    assert first["accuracy"]["answers"] > 0
    start = {"train.start_from": str(tmp_path / "bert")}
    judge = run("pairs", **{"train.objective": "matching", **start})
    assert judge["accuracy"]["low"] < judge["accuracy"]["share"] < judge["accuracy"]["high"]
    student = {"train.objective": "roberta", "train.teacher_layers": 2, "model.num_layers": 1}
    run("distilled", **{**student, **start})
    plain = {"train.objective": "none", "train.objective_steps": 0, **start}
    still = {"train.learning_rate_scale": 0.0}  # the weights stay those of the start
    translator = run("translator", **{"model.architecture": "transformer", **plain, **still})
    ways = {"data.directions": "en-de,de-en"}
    run("both ways", **{"model.architecture": "transformer", **plain, **still, **ways})
    assert set(json.loads((tmp_path / "translator/result.json").read_text())) >= {"bleu", "ppl"}
    assert translator["bleu"]
    with pytest.raises(errors.UserError, match="writes no sentences"):
        run_folder.load(tmp_path / "bert")
    trained, started = (run_folder.load_model(tmp_path / name) for name in ("bert", "translator"))
    for name in ("encoder_0", "encoder_1"):
        pair = (each.params["params"][name] for each in (started, trained))
        jax.tree.map(np.testing.assert_array_equal, *pair)
    # Ids after the tokenizer's that mean something else are drawn anew.
    words = trained.tokenizer.vocab_size
    one, other = (
        np.asarray(run_folder.load_model(tmp_path / name).params["params"]["embedding"])
        for name in ("bert", "both ways")
    )
    np.testing.assert_array_equal(one[:words], other[:words])
    assert (one[words : words + 2] != other[words : words + 2]).all()
    (maps,) = attention_weights.of_text(
        trained.model, trained.params, trained.tokenizer, trained.config.model, ["A dog.", "Hund"]
    )
    assert maps.rows == maps.columns
    np.testing.assert_allclose(maps.weights.sum(axis=-1), 1, rtol=1e-4)
