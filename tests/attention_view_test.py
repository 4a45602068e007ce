"""Where rows attend, in a sweep's report: collected once, kept in the runs' folders, and shown."""

import base64
import json
import shutil
import zlib

import numpy as np
import pytest

from experiments.reporting import document
from experiments.sweep import results
from tests import refusals, report_page_test
from transformer_jax import errors


@pytest.fixture(scope="module")
def attended(server, trained, tmp_path_factory):
    """A sweep of two rows whose attention in two sentences is kept; one has no checkpoint."""
    workdir = tmp_path_factory.mktemp("attended") / "sweep"
    config = json.loads((trained / "config.json").read_bytes())
    for row in ("base", "A h=1"):
        shutil.copytree(trained, workdir / results.slug(row) / "seed0")
    shutil.rmtree(workdir / "A-h-1" / "seed0" / "checkpoints")
    said = workdir / "base" / "seed0" / "hypotheses.txt"  # so short a training may say nothing
    said.write_text("Der Hund.\n" * len(said.read_bytes().splitlines()), encoding="utf-8")
    record = {"table": "table3", "base": config, "rows": {"base": {}, "A h=1": {}}, "tune": {}}
    (workdir / "sweep.json").write_text(json.dumps(record))
    done = server.run("experiments.report", f"--workdir={workdir}", "--attention=2,1")
    assert done.code == 0, done.stderr
    return workdir


def test_attention_is_collected_kept_and_shown(attended):
    found = report_page_test.page_of(attended).data["attention-data"]["sentences"]
    assert [each["number"] for each in found] == [1, 2]
    base, other = found[0]["rows"]
    assert other == {"name": "A h=1", "why": "its checkpoint is gone"}
    source = (attended / "base/seed0/sources.txt").read_text(encoding="utf-8").splitlines()[0]
    for kind in base["kinds"]:
        packed = zlib.decompress(base64.b64decode(kind["weights"]))
        shape = (kind["layers"], kind["heads"], len(kind["rows"]), len(kind["columns"]))
        weights = np.frombuffer(packed, np.uint8).reshape(shape) / 255
        np.testing.assert_allclose(weights.sum(-1), 1, atol=len(kind["columns"]) / 255 / 2)
    cross = next(kind for kind in base["kinds"] if kind["kind"] == "cross")
    assert "".join(cross["columns"][:-1]).replace("_", " ").strip() == source


def test_attention_is_collected_again_only_for_another_configuration(server, attended, tmp_path):
    workdir = shutil.copytree(attended, tmp_path / "sweep")
    first, second = (workdir / f"base/seed0/attention/{number}.json" for number in (1, 2))
    kept = json.loads(first.read_bytes())
    first.write_text(json.dumps({**kept, "config_hash": "0" * 64}))
    before = second.stat().st_mtime_ns
    found = report_page_test.content_of(workdir)["attention-data"]["sentences"]
    assert [each["number"] for each in found] == [2]
    done = server.run("experiments.report", f"--workdir={workdir}", "--attention=1,2")
    assert done.code == 0, done.stderr
    assert json.loads(first.read_bytes()) == kept
    assert second.stat().st_mtime_ns == before


@refusals.table(
    ("beyond the last", "5", r"--attention=5: the development set has 4 sentences"),
    ("no number", "x", r"--attention: 'x' should be a whole number"),
    ("zero", "0", r"--attention: '0' should be a whole number"),
)
def test_a_sentence_that_is_not_there_is_refused(server, attended, case):
    number, message = case
    done = server.run("experiments.report", f"--workdir={attended}", f"--attention={number}")
    refusals.assert_refused(done, message)


def maps_of(weights, layers):
    kind = {"kind": "cross", "rows": ["a"], "columns": ["a"], "layers": layers, "heads": 1}
    return refusals.changed("kinds", [{**kind, "weights": weights}])


@refusals.table(
    ("cut short", lambda content: content[:50], r"attention/1\.json is damaged"),
    ("no base 64", maps_of("%", 1), r"attention/1\.json is damaged"),
    ("too few weights", maps_of(base64.b64encode(zlib.compress(b"a")).decode(), 2),
     r"are not of its shape"),
)  # fmt: skip
def test_damaged_maps_are_refused(attended, tmp_path, case):
    how, message = case
    workdir = shutil.copytree(attended, tmp_path / "sweep")
    refusals.damage(workdir / "base/seed0/attention/1.json", how)
    with pytest.raises(errors.UserError, match=message):
        document.write(workdir)
