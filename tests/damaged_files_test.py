"""Files of runs, caches and sweeps that were damaged: one clear line names the file and the remedy.

Damaged checkpoints have tests of their own, and so have sweeps that are made up.
"""

import json
import shutil

import pytest

from tests import refusals

NEWER = rb'{"model": {"flux": 1}}'
READ = (  # what is wrong with a run's folder, as whoever reads it says
    ("config missing", "config.json", None, r"holds no trained run: it has no config\.json"),
    ("config cut short", "config.json", lambda b: b[:99], r"config\.json is damaged \(.*: restore"),
    ("config a list", "config.json", b"[]", r"config\.json is damaged \(it is \[\], which is no o"),
    ("config not UTF-8", "config.json", b'{"\xff": 1}', r"config\.json is damaged .*utf-8"),
    ("config too deep", "config.json", b"[" * 10**5, r"config\.json is damaged .*too deeply"),
    (
        "config a folder",
        "config.json",
        refusals.FOLDER,
        r"cannot read .*config\.json: .*Is a directory",
    ),
    ("config of another version", "config.json", NEWER, r"no config field model\.flux.*another ve"),
    ("config with NaN", "config.json", b'{"model": {"d_k": NaN}}', r"damaged \(NaN is no JSON"),
    (
        "config not its own",
        "config.json",
        refusals.changed("model/d_ff", 32),
        r"config\.json is not the one",
    ),
    (
        "huge number",
        "config.json",
        refusals.changed("decode/alpha", 10**400),
        r"a number of 1329 bits",
    ),
    ("tokenizer missing", "tokenizer.model", None, r"it has no tokenizer\.model"),
    (
        "tokenizer cut short",
        "tokenizer.model",
        lambda b: b[:999],
        r"cannot read .*tokenizer\.model",
    ),
    ("tokenizer a folder", "tokenizer.model", refusals.FOLDER, r"cannot read .*tokenizer\.model"),
    ("record damaged", "run.json", b"{}", r"run\.json is damaged \(it has no config_hash\)"),
    ("checkpoints missing", "checkpoints", None, r"it has no checkpoints"),
    ("checkpoints a file", "checkpoints", b"x", r"it has no checkpoints"),
    ("no checkpoint", "checkpoints", refusals.FOLDER, r"checkpoints has 0|no checkpoint in"),
)


def train(server, cache_dir, workdir):
    flags = (f"--workdir={workdir}", f"--cache_dir={cache_dir}")
    return server.run("transformer_jax.train", *refusals.TOY, *flags)


@refusals.table(*READ)
def test_a_damaged_run_does_not_translate(server, trained, tmp_path, case):
    name, content, message = case
    copy = shutil.copytree(trained, tmp_path / "run")
    refusals.damage(copy / name, content)
    arguments = ["transformer_jax.translate", f"--workdir={copy}"]
    refusals.assert_refused(server.run(*arguments, stdin=b"A dog.\n"), message)


def test_another_runs_tokenizer_is_told_from_the_runs_own(server, trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    cache = f"--cache_dir={tmp_path / 'cache'}"
    done = server.run("transformer_jax.prepare", *refusals.TOY, "--config.data.toy_seed=1", cache)
    assert done.code == 0, done.stderr
    shutil.copy(next((tmp_path / "cache").glob("tokenizer-*.model")), copy / "tokenizer.model")
    done = server.run("transformer_jax.translate", f"--workdir={copy}", stdin=b"A dog.\n")
    refusals.assert_refused(done, r"tokenizer\.model is not the one that this run was trained with")


@refusals.table(
    ("record cut short", "run.json", lambda b: b[:20], r"run\.json is damaged .*: restore it, or"),
    ("record a list", "run.json", b"[]", r"run\.json is damaged \(it is \[\], which is no object"),
    (
        "no hash",
        "run.json",
        refusals.changed("config_hash", "../../x"),
        r"config_hash is no SHA-256",
    ),
    ("record missing", "run.json", None, r"holds checkpoints, but no run\.json says of which run"),
    ("result cut short", "result.json", lambda b: b[:30], r"result\.json is damaged .*: delete it"),
    (
        "result without a score",
        "result.json",
        refusals.changed("bleu", {"other": {"score": 1.0, "signature": ""}}),
        r"it\.bleu has no sacrebleu_13a",
    ),
    (
        "another run",
        "run.json",
        refusals.changed("config_hash", "0" * 64),
        r"a run of another config",
    ),
)
def test_a_damaged_run_does_not_go_on(server, commands_cache, trained, tmp_path, case):
    name, content, message = case
    copy = shutil.copytree(trained, tmp_path / "run")
    refusals.damage(copy / name, content)
    before = {path: path.stat().st_mtime_ns for path in (copy / "checkpoints").rglob("*")}
    refusals.assert_refused(
        train(server, commands_cache, copy),
        message,
    )
    assert before == {path: path.stat().st_mtime_ns for path in (copy / "checkpoints").rglob("*")}


@refusals.table(
    ("broken in the middle", lambda b: b'{"step"\n' + b, r"line 1 is damaged .*: delete that line"),
    ("no step", lambda b: b + b"{}\n", r"line 3 is damaged \(it has no step\)"),
    ("not UTF-8", lambda b: b'"\xff"\n' + b, r"metrics\.jsonl: line 1 is damaged"),
)
def test_a_damaged_log_of_metrics_is_named(server, commands_cache, trained, tmp_path, case):
    content, message = case
    copy = shutil.copytree(trained, tmp_path / "run")
    refusals.damage(copy / "metrics.jsonl", content)
    (copy / "result.json").unlink()
    refusals.assert_refused(
        train(server, commands_cache, copy),
        message,
    )


@refusals.table(
    (
        "tokenizer",
        "tokenizer-*.model",
        b"",
        r"tokenizer-\w+\.model .*: delete it, and it is trained again",
    ),
    (
        "ids cut short",
        "tokens-*/source-ids.bin",
        lambda b: b[:-2],
        r"source-ids\.bin is damaged .*: delete .*encode",
    ),
    (
        "ends missing",
        "tokens-*/target-ends.bin",
        None,
        r"target-ends\.bin is damaged \(0 bytes instead of",
    ),
    ("checks", "checks-*.json", b"{}", r"checks-\w+\.json is damaged .*: delete it"),
)
def test_a_damaged_cache_is_named(server, trained, commands_cache, tmp_path, case):
    pattern, content, message = case
    copy = shutil.copytree(commands_cache, tmp_path / "cache")
    for path in copy.glob(pattern):
        refusals.damage(path, content)
    arguments = [*refusals.TOY, f"--cache_dir={copy}"]
    refusals.assert_refused(server.run("transformer_jax.prepare", *arguments), message)


@pytest.fixture(scope="module")
def swept(trained, tmp_path_factory):
    """A sweep's folder of two rows."""
    workdir = tmp_path_factory.mktemp("swept")
    config = json.loads((trained / "config.json").read_bytes())
    for row in ("base", "E"):
        shutil.copytree(trained, workdir / row / "seed0")
    sweep = {"table": "table3", "base": config, "rows": {"base": {}, "E": {}}, "tune": {}}
    (workdir / "sweep.json").write_text(json.dumps(sweep))
    return workdir


def test_the_report_of_the_undamaged_sweep_is_written(server, swept, tmp_path):
    copy = shutil.copytree(swept, tmp_path / "sweep")
    done = server.run("experiments.report", f"--workdir={copy}")
    assert done.code == 0, done.stderr
    assert (copy / "table3.md").exists()


BASE, COUNTS = "base/seed0/result.json", "E/seed0/bleu_counts.json"


@refusals.table(
    ("no sweep", "sweep.json", None, r"holds no sweep: it has no sweep\.json"),
    ("cut short", "sweep.json", lambda b: b[:50], r"sweep\.json is damaged .*: start the sweep ag"),
    ("a list", "sweep.json", b"[]", r"sweep\.json is damaged \(it is \[\], which is no object"),
    (
        "no rows",
        "sweep.json",
        refusals.changed("rows", {}),
        r"sweep\.json is damaged \(it has no rows\)",
    ),
    (
        "rows a list",
        "sweep.json",
        refusals.changed("rows", []),
        r"it\.rows is \[\], which is no object",
    ),
    (
        "unknown field",
        "sweep.json",
        refusals.changed("rows/E", {"model.x": 1}),
        r"no config field model\.x",
    ),
    (
        "no dot",
        "sweep.json",
        refusals.changed("rows/E", {"position": 1}),
        r"no config field position",
    ),
    (
        "a bad value",
        "sweep.json",
        refusals.changed("rows/E", {"model.d_k": "x"}),
        r"d_k should be a whole n",
    ),
    (
        "bad base",
        "sweep.json",
        refusals.changed("base/train", {}),
        r"lacks the field train\.num_steps",
    ),
    (
        "bad tune",
        "sweep.json",
        refusals.changed("tune", {"model.y": [1]}),
        r"no config field model\.y",
    ),
    (
        "claims' rows",
        "sweep.json",
        refusals.changed("table", "variations"),
        r"lacks rows that claims compa",
    ),
    ("result cut short", BASE, lambda b: b[:80], r"base/seed0/result\.json is damaged"),
    (
        "result without ppl",
        BASE,
        refusals.changed("ppl", None),
        r"it\.ppl is null, which is no number",
    ),
    (
        "infinite ppl",
        BASE,
        lambda b: b.replace(b'"ppl": ', b'"ppl": 1e999, "x": '),
        r"it\.ppl is Infinity",
    ),
    ("no parameters", BASE, refusals.changed("params", 0), r"damaged \(a model without param"),
    ("another corpus", BASE, refusals.changed("data_sha256", "0"), r"differ in corpus"),
    ("counts cut short", COUNTS, lambda b: b[:50], r"bleu_counts\.json is damaged"),
    (
        "nine counts",
        COUNTS,
        refusals.changed("sacrebleu_13a", [[1] * 9]),
        r"a sentence has 10 counts",
    ),
    (
        "counts of another run",
        COUNTS,
        refusals.changed("sacrebleu_13a", [[1] * 10]),
        r"E/seed0/bleu_counts\.json is of other sentences than result\.json .* 100\.00 and 0\.00",
    ),
    ("record damaged", "E/seed0/run.json", b"{", r"E/seed0/run\.json is damaged"),
    (
        "result of another run",
        BASE,
        refusals.changed("config_hash", "0"),
        r"base/seed0/result\.json is of another run than run\.json beside it: delete",
    ),
)
def test_a_damaged_sweep_is_not_reported(server, swept, tmp_path, case):
    name, content, message = case
    copy = shutil.copytree(swept, tmp_path / "sweep")
    refusals.damage(copy / name, content)
    refusals.assert_refused(server.run("experiments.report", f"--workdir={copy}"), message)
    assert not (copy / "table3.md").exists()
