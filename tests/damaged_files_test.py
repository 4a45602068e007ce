"""Damaged files of runs, caches and sweeps: one line names the file and the remedy.

One case for each kind of damage. Damaged checkpoints have tests of their own.
"""

import json
import shutil

import pytest

from experiments.sweep import store
from tests import refusals
from transformer_jax import config as config_lib
from transformer_jax import files


def truncated(content):
    """The first half of a file."""
    return content[: len(content) // 2]


@refusals.table(
    ("a field missing", b'{"b": 1}', r"it has no a"),
    ("a value of another type", b'{"a": "x"}', r'a is "x", which is no number'),
    ("a number that is none", b'{"a": NaN}', r"NaN is not JSON"),
    ("a list", b"[]", r"it is \[\], not an object"),
    ("truncated", b'{"a": 1', r"line 1"),
)
def test_json_of_another_shape_is_refused(case):
    content, message = case
    with pytest.raises(ValueError, match=message):
        files.parse_json(content, {"a": float})


def train(server, cache_dir, workdir):
    flags = (f"--workdir={workdir}", f"--cache_dir={cache_dir}")
    return server.run("transformer_jax.train", *refusals.TOY, *flags)


@refusals.table(
    ("config missing", "config.json", None, r"holds no trained run: it has no config\.json"),
    ("config truncated", "config.json", truncated, r"config\.json is damaged \(.*: restore"),
    (
        "config of another version",
        "config.json",
        b'{"model": {"flux": 1}}',
        r"no config field model\.flux.*another ve",
    ),
    (
        "config of another run",
        "config.json",
        refusals.changed("model/d_ff", 32),
        r"config\.json is not the one",
    ),
    ("tokenizer truncated", "tokenizer.model", truncated, r"cannot read .*tokenizer\.model"),
    ("no checkpoint", "checkpoints", refusals.FOLDER, r"checkpoints has 0|no checkpoint in"),
)
def test_a_damaged_run_does_not_translate(server, trained, tmp_path, case):
    name, content, message = case
    copy = shutil.copytree(trained, tmp_path / "run")
    refusals.damage(copy / name, content)
    arguments = ["transformer_jax.translate", f"--workdir={copy}"]
    refusals.assert_refused(server.run(*arguments, stdin=b"A dog.\n"), message)


@refusals.table(
    ("record truncated", "run.json", truncated, r"run\.json is damaged .*: restore it, or"),
    (
        "record of another run",
        "run.json",
        refusals.changed("config_hash", "0" * 64),
        r"a run of another config",
    ),
    ("result truncated", "result.json", truncated, r"result\.json is damaged .*: delete it"),
)
def test_a_damaged_run_does_not_resume(server, commands_cache, trained, tmp_path, case):
    name, content, message = case
    copy = shutil.copytree(trained, tmp_path / "run")
    refusals.damage(copy / name, content)
    before = {path: path.stat().st_mtime_ns for path in (copy / "checkpoints").rglob("*")}
    refusals.assert_refused(train(server, commands_cache, copy), message)
    assert before == {path: path.stat().st_mtime_ns for path in (copy / "checkpoints").rglob("*")}


def test_a_damaged_log_of_metrics_is_named(server, commands_cache, trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    refusals.damage(copy / "metrics.jsonl", lambda content: b'{"step"\n' + content)
    (copy / "result.json").unlink()
    message = r"line 1 is damaged .*: delete that line"
    refusals.assert_refused(train(server, commands_cache, copy), message)


def test_a_damaged_cache_is_named(server, trained, commands_cache, tmp_path):
    written_now = shutil.ignore_patterns("*.partial", "xla")  # by the commands of other tests
    copy = shutil.copytree(commands_cache, tmp_path / "cache", ignore=written_now)
    for path in copy.glob("tokens-*/source-ids.bin"):
        refusals.damage(path, truncated)
    arguments = [*refusals.TOY, f"--cache_dir={copy}"]
    message = r"source-ids\.bin is damaged .*: delete .*encode"
    refusals.assert_refused(server.run("transformer_jax.prepare", *arguments), message)


@pytest.fixture(scope="module")
def swept(trained, tmp_path_factory):
    """A sweep's folder of two rows, whose runs differ in their hashes alone."""
    workdir = tmp_path_factory.mktemp("swept")
    config = json.loads((trained / "config.json").read_bytes())
    runs = [store.Run(row, 0, digit * 64) for row, digit in (("base", "1"), ("E", "2"))]
    for run in runs:
        folder = shutil.copytree(trained, workdir / store.folder_name(run))
        for name in ("run.json", "result.json"):
            refusals.damage(folder / name, refusals.changed("config_hash", run.config_hash))
    rows = {"base": {}, "E": {}}
    store.write(workdir, store.Description("table3", config_lib.from_mapping(config), rows, runs))
    return workdir


def test_the_report_of_the_undamaged_sweep_is_written(server, swept, tmp_path):
    copy = shutil.copytree(swept, tmp_path / "sweep")
    done = server.run("experiments.report", f"--workdir={copy}")
    assert done.code == 0, done.stderr
    assert (copy / "table3.md").exists()


RESULT = "base/seed0-11111111/result.json"
COUNTS = "E/seed0-22222222/bleu_counts.json"


@refusals.table(
    ("sweep missing", "sweep.json", None, r"holds no sweep: it has no sweep\.json"),
    ("sweep truncated", "sweep.json", truncated, r"sweep\.json is damaged .*: start the sweep ag"),
    ("result truncated", RESULT, truncated, r"base/seed0-1+/result\.json is damaged"),
    (
        "result without perplexity",
        RESULT,
        lambda content: content.replace(b'"ppl": ', b'"other": ', 1),
        r"result\.json is damaged \(it has no ppl\): delete it",
    ),
    (
        "result of another run",
        RESULT,
        refusals.changed("config_hash", "0"),
        r"base/seed0-1+/result\.json is the result of another run than run\.json beside it: delete",
    ),
    ("another corpus", RESULT, refusals.changed("data_sha256", "0"), r"differ in corpus"),
    (
        "counts missing",
        COUNTS,
        None,
        r"E/seed0-2+ has a bleu score of the dev set without the counts .*result\.json",
    ),
    (
        "counts of another run",
        COUNTS,
        refusals.changed("sacrebleu_13a", [[1] * 10]),
        r"E/seed0-2+: the counts of the dev set give bleu 100\.00, but the result says 0\.00",
    ),
)
def test_a_damaged_sweep_is_not_reported(server, swept, tmp_path, case):
    name, content, message = case
    copy = shutil.copytree(swept, tmp_path / "sweep")
    refusals.damage(copy / name, content)
    refusals.assert_refused(server.run("experiments.report", f"--workdir={copy}"), message)
    assert not (copy / "table3.md").exists()
