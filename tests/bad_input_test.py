"""Mistakes in configs, corpora and command lines: one line names the mistake, exit code 2.

One case for each kind of mistake. Damaged files of our own are in `tests/damaged_files_test.py`.
"""

import re
import shutil

import pytest

from tests import refusals
from transformer_jax.data import toy


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A small corpus of files without a mistake."""
    folder = tmp_path_factory.mktemp("corpus")
    pairs, held_out = toy.sentences(300, 20, 0)
    for name, some in (("train", pairs), ("dev", held_out)):
        for end, side in (("en", "english"), ("de", "german")):
            text = "".join(f"{getattr(pair, side)}\n" for pair in some)
            (folder / f"{name}.{end}").write_text(text, encoding="utf-8")
    return folder


@refusals.table(
    ("unknown field", "model.d_kk=3", r"no config field model\.d_kk; did you mean d_k\?"),
    ("words for a number", "model.d_k=wide", r"--config\.model\.d_k=wide: .*invalid literal"),
    ("not a number", "model.dropout_rate=nan", r"dropout_rate should be a finite number"),
    ("too large", f"model.d_model={10**12}", r"d_model=1000000000000 should be at most 2,147"),
    ("unknown kind", "data.corpus=tex", r"data\.corpus='tex' is unknown; did you mean text"),
    (
        "vocabulary too large",
        "data.vocab_size=90000",
        r"too small for data\.vocab_size=90,000: it yi",
    ),
    ("another language", "data.target_language=fr", r"toy corpus is in en and de, not in en a"),
    ("text without files", "data.corpus=text", r"data\.train is empty: give a path prefix"),
    ("trees without files", "data.corpus=trees", r"data\.train has no trees: give files in Penn"),
)
def test_an_invalid_config_is_refused(server, commands_cache, tmp_path, case):
    override, message = case
    workdir = tmp_path / "run"
    arguments = [
        *refusals.TOY,
        f"--config.{override}",
        f"--workdir={workdir}",
        f"--cache_dir={commands_cache}",
    ]
    refusals.assert_refused(server.run("transformer_jax.train", *arguments), message)
    assert not (workdir / "config.json").exists()


@refusals.table(
    ("missing", None, r"no such file: .*config\.py"),
    ("broken syntax", b"def get_config(:\n", r"config\.py fails: SyntaxError: invalid syntax"),
    ("no get_config", b"x = 1\n", r"config\.py has no function get_config"),
    (
        "raises",
        b"def get_config():\n  raise ValueError('no')\n",
        r"config\.py fails: ValueError: no",
    ),
    (
        "forgets its return",
        b"def get_config():\n  pass\n",
        r"get_config\(\) should return a ConfigDict, but returns a NoneType",
    ),
    ("returns a dict", b"def get_config():\n  return {1: 2}\n", r"ConfigDict, but returns a dict"),
)
def test_an_invalid_config_file_is_refused(server, tmp_path, case):
    content, message = case
    path = tmp_path / "config.py"
    refusals.damage(path, content)
    arguments = [f"--config={path}", f"--workdir={tmp_path}/run"]
    refusals.assert_refused(server.run("transformer_jax.train", *arguments), message)


@refusals.table(
    ("a missing file", "train.de", None, r"there is no file .*train\.de, nor train\.de\.gz"),
    ("UTF-16", "train.en", "a\n".encode("utf-16"), r"train\.en: line 1 is not UTF-8"),
    ("one side blank", "train.en", b"\n" * 300, r"no training pair is left: 300 are empty and 0"),
    ("blank sources", "dev.en", b"\n" * 20, r"dev set has no sources: all 20 lines are blank"),
)
def test_an_invalid_corpus_is_refused(server, commands_cache, corpus, tmp_path, case):
    name, content, message = case
    shutil.copytree(corpus, tmp_path, dirs_exist_ok=True)
    refusals.damage(tmp_path / name, content)
    arguments = [
        *refusals.TOY,
        "--config.data.corpus=text",
        f"--config.data.train={tmp_path / 'train'}",
        f"--config.data.dev={tmp_path / 'dev'}",
        f"--workdir={tmp_path}/run",
        f"--cache_dir={commands_cache}",
    ]
    refusals.assert_refused(server.run("transformer_jax.train", *arguments), message)


TRAIN = ["transformer_jax.train", *refusals.TOY]
SWEEP = ["experiments.table3", "--config=configs/toy.py", "--workdir=RUN"]
SCORE = "transformer_jax.score"


@refusals.table(
    ("no workdir", TRAIN, r"--workdir is required"),
    ("an empty workdir", [*TRAIN, "--workdir="], r"--workdir is empty: name a folder"),
    ("workdir in a file", [*TRAIN, "--workdir=FILE/x"], r"cannot make the run's folder"),
    ("an unknown flag", [*TRAIN, "--workdri=x"], r"'workdri'\. Did you mean: workdir"),
    ("a positional argument", [*TRAIN, "--workdir=RUN", "x"], r"unexpected argument 'x'"),
    ("an unknown row", [*SWEEP, "--rows=Z"], r"--rows: no row matches 'Z'; the rows are"),
    ("no seed", [*SWEEP, "--seeds=0"], r"--seeds=0"),
    ("no field to tune", [*SWEEP, "--tune=x"], r"--tune=x: give a field of"),
    ("an unknown device", [*SWEEP, "--dry_run", "--device=a"], r"known: v4, v5e"),
    ("a device without --dry_run", [*SWEEP, "--device=v4-8"], r"--device needs --dry_run"),
    (
        "no sweep to compare",
        ["experiments.compare", "RUN", "RUN"],
        r"holds no sweep: it has no sweep.json",
    ),
    (
        "no sweep to draw",
        ["experiments.figures", "--workdir=RUN"],
        r"holds no sweep: it has no sweep.json",
    ),
    (
        "sweep in a bucket",
        ["experiments.table3", "--config=configs/toy.py", "--workdir=gs://bucket/sweep"],
        r"gs://bucket/sweep is no folder of this machine",
    ),
    (
        "run at another address",
        [*TRAIN, "--workdir=s3://bucket/run"],
        r"neither a folder of this machine nor one in a bucket, gs://",
    ),
    (
        "profile in a bucket",
        [*TRAIN, "--workdir=gs://bucket/run", "--profile"],
        r"--profile writes to a --workdir of this machine only",
    ),
    (
        "lengths differ",
        [SCORE, "--references=FILE", "--hypotheses=ONE"],
        r"has 2 lines, but .*one ",
    ),
    ("no such file", [SCORE, "--references=FILE", "--hypotheses=NO"], r"cannot read NO: .*No such"),
    ("no run", ["transformer_jax.translate", "--workdir=RUN"], r"no trained run: it has no c"),
)
def test_an_invalid_command_line_is_refused(server, tmp_path, case):
    command, message = case
    names = {"RUN": "run", "FILE": "two", "ONE": "one"}
    for name, content in (("two", "eins\nzwei\n"), ("one", "eins\n")):
        (tmp_path / name).write_text(content)
    arguments = [
        re.sub(r"=(RUN|FILE|ONE)\b", lambda m: f"={tmp_path / names[m[1]]}", argument)
        for argument in command
    ]
    refusals.assert_refused(server.run(*arguments), message)
    assert not (tmp_path / "run" / "config.json").exists()
