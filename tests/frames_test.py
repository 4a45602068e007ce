"""Damaged results are named with a remedy; tuned sweeps can be published twice."""

import json
import math

import numpy as np
import pytest

from experiments import publish
from experiments.results import frames
from tests import sweeps
from transformer_jax import errors


@pytest.fixture
def swept(tmp_path):
    """A sweep of three rows, two of them tuned."""
    rows = {name: sweeps.some_rows()[name] for name in ("base", "A h=1")}
    tune = {"train.learning_rate_scale": [1.0, 2.0]}
    sweeps.make(tmp_path / "sweep", sweeps.Made(rows, seeds=1, tune=tune, tested=True))
    return tmp_path / "sweep"


@pytest.mark.parametrize(
    "changes", [{"bleu": []}, {"data": {}}, {"bleu_by_length": [{}]}, {"versions": {}}], ids=str
)
def test_a_damaged_result_is_named(swept, changes):
    path = sweeps.folder(swept, "base") / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(errors.UserError, match=r"result\.json is damaged .*: delete the run's"):
        frames.load(swept)


def test_a_logged_metric_cannot_move_a_curve_to_another_row(swept):
    path = sweeps.folder(swept, "base") / "metrics.jsonl"
    path.write_text('{"step": 10, "loss": 2.0, "row": "A h=1", "seed": 7}\n')
    curves = frames.load(swept).curves
    assert set(curves["seed"]) == {0}
    assert (curves["row"] == "base").sum() == 1


def test_a_tuned_sweep_is_published_twice(swept, tmp_path):
    output = tmp_path / "published"
    publish.publish(swept, output)
    first = {path.name: path.read_bytes() for path in output.iterdir()}
    publish.publish(swept, output)
    assert {path.name: path.read_bytes() for path in output.iterdir()} == first


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("sentences.npz", lambda content: content[: len(content) // 2]),
        ("runs.csv", lambda content: content.replace(b"config_hash", b"hash", 1)),
        ("runs.csv", lambda content: content[:-40]),
        ("runs.csv", lambda content: content[: content[:-1].rindex(b"\n") + 1]),
        ("curves.csv", lambda content: content[:-1]),
        ("runs.csv", None),
        ("curves.csv", None),
    ],
)
def test_a_damaged_published_folder_is_named(swept, tmp_path, name, damage):
    output = tmp_path / "published"
    publish.publish(swept, output)
    path = output / name
    if damage:
        path.write_bytes(damage(path.read_bytes()))
    else:
        path.unlink()
    with pytest.raises(errors.UserError, match=rf"{name} is damaged .*: restore the published"):
        frames.load(output).counts("base", "bleu")


def test_likelihoods_of_sentences_give_the_perplexity(swept):
    folder = sweeps.folder(swept, "base")
    tokens = [3, 5, 2]
    ppl = json.loads((folder / "result.json").read_bytes())["ppl"]
    nats = [math.log(ppl) * count for count in tokens]
    path = folder / "nll.json"
    path.write_text(json.dumps({"nats": nats, "tokens": tokens}))
    perplexities, likelihoods = frames.load(swept).likelihoods("base")
    assert perplexities == {0: ppl}
    assert likelihoods[0] == pytest.approx(np.transpose([nats, tokens]))
    path.write_text(json.dumps({"nats": [1.01 * each for each in nats], "tokens": tokens}))
    with pytest.raises(errors.UserError, match="likelihoods of the dev set give perplexity"):
        frames.load(swept).likelihoods("base")


def test_a_working_sweep_is_not_overwritten_by_a_published_one(swept, tmp_path):
    other = tmp_path / "other"
    sweeps.make(other, sweeps.Made(sweeps.some_rows(), seeds=1))
    before = (other / "sweep.json").read_bytes()
    with pytest.raises(errors.UserError, match="is the folder of a sweep, not a published one"):
        publish.publish(swept, other)
    assert (other / "sweep.json").read_bytes() == before
