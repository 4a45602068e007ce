"""Averaged checkpoints and scores of the test set, which Table 2 needs."""

import json
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer_jax
from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import toy
from transformer_jax.distributed import sharding
from transformer_jax.runs import training_run
from transformer_jax.training import checkpoint
from transformer_jax.training import step as step_lib


@pytest.fixture
def one_device():
    return sharding.make_mesh(config_lib.MeshConfig(1, 1, 1), jax.devices()[:1])


def test_the_average_is_the_mean_of_the_last_checkpoints(make_config, one_device, tmp_path):
    every_two = {"model.num_layers": 1, "checkpoint.every": 2, "checkpoint.keep": 3}
    config = make_config(every_two)
    model = models.build(config.model, config.data.vocab_size)
    first = step_lib.init_state(model, config, one_device)
    checkpoints = checkpoint.Checkpoints(tmp_path, config, "digest")
    params = {}
    for step in (2, 3, 4, 6, 7, 8):  # 3 and 7: the run was stopped there
        params[step] = jax.tree.map(lambda leaf, k=step: leaf * k**2, first.params)
        checkpoints.save(first._replace(step=jnp.int32(step), params=params[step]), 0.0)
    checkpoints.close()
    assert sorted(os.listdir(tmp_path)) == ["4", "6", "8"]
    shapes = step_lib.state_shapes(model, config, one_device)

    def averaged(last):
        changes = {"evaluation.average_checkpoints": last}
        opened = checkpoint.Checkpoints(tmp_path, make_config({**every_two, **changes}), "digest")
        try:
            return opened.averaged(shapes)
        finally:
            opened.close()

    for steps in ((8,), (4, 6, 8)):
        mean = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *[params[s] for s in steps])
        found = averaged(len(steps))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, mean)
    shutil.rmtree(tmp_path / "4")
    with pytest.raises(errors.UserError, match=r"average_checkpoints=3, but .* has 2"):
        averaged(3)


def test_too_few_checkpoints_are_refused_before_training(make_config):
    make_config({"evaluation.average_checkpoints": 3, "checkpoint.keep": 3})
    for changes in ({}, {"checkpoint.keep": 3, "checkpoint.every": 10}):
        with pytest.raises(errors.UserError, match="average_checkpoints=3 is more than"):
            make_config({"evaluation.average_checkpoints": 3, **changes})


def test_the_interval_is_hashed_only_where_checkpoints_are_averaged(make_config):
    def fingerprint(average, every):
        changes = {"evaluation.average_checkpoints": average, "checkpoint.every": every}
        return config_lib.fingerprint(make_config(changes), {})

    assert fingerprint(1, 4) == fingerprint(1, 3)
    assert fingerprint(2, 4) != fingerprint(2, 3)


@pytest.mark.slow
def test_a_run_evaluates_its_average_on_both_sets(make_config, tmp_path, cache_dir):
    config = make_config({"evaluation.average_checkpoints": 2, "evaluation.score_test": True})
    result = training_run.run(config, tmp_path, cache_dir)
    _, held_out = toy.sentences(config.data.toy_pairs, 2 * config.data.toy_held_out_pairs, 0)
    dev, test = held_out[:16], held_out[16:]
    for prefix, part in (("", dev), ("test_", test)):
        references = (tmp_path / f"{prefix}references.txt").read_text().splitlines()
        assert references == [sentence.german for sentence in part]
        sources = (tmp_path / f"{prefix}sources.txt").read_text().splitlines()
        assert sources == [sentence.english for sentence in part]
        counts = json.loads((tmp_path / f"{prefix}bleu_counts.json").read_text())
        assert {len(rows) for rows in counts.values()} == {16}
    assert result["test"]["ppl"] != result["ppl"]
    assert set(result["test"]["bleu"]) == set(result["bleu"])
    hypotheses = (tmp_path / "test_hypotheses.txt").read_text().splitlines()
    loaded = transformer_jax.load(tmp_path)
    assert loaded.translate([sentence.english for sentence in test]) == hypotheses


def test_a_corpus_without_test_set_cannot_be_scored_on_it(make_config, tmp_path, cache_dir):
    lines = [f"{a} {b} sleeps" for a in "abcdefghij" for b in "klmnopqrst"]
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    config = make_config(
        {
            "data.corpus": "text",
            "data.train": str(tmp_path / "train"),
            "data.dev": str(tmp_path / "dev"),
            "data.vocab_size": 300,
            "evaluation.score_test": True,
        }
    )
    with pytest.raises(errors.UserError, match="has no test set"):
        training_run.run(config, tmp_path / "run", cache_dir)
