"""Bad input to commands: one clear line that names the thing and the remedy, exit code 2.

Each case is a line of a table: what is wrong, and what the message says. Files that we wrote and
others damaged have theirs in `tests/damaged_files_test.py`; what is handled instead of refused
stands in `tests/odd_text_test.py`.
"""

import gzip
import re
import shutil

import pytest

from tests import refusals
from transformer_jax.data.toy import generator


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A small corpus of files in which nothing is wrong."""
    folder = tmp_path_factory.mktemp("corpus")
    pairs, held_out = generator.sentences(300, 20, 0)
    for name, some in (("train", pairs), ("dev", held_out)):
        for end, side in (("en", "english"), ("de", "german")):
            text = "".join(f"{getattr(pair, side)}\n" for pair in some)
            (folder / f"{name}.{end}").write_text(text, encoding="utf-8")
    return folder


@refusals.table(
    ("unknown field", "model.d_kk=3", r"'d_kk' Did you mean \"d_k\""),
    ("unknown section", "modle.d_k=3", r"no such config field: 'modle' Did you mean \"model\""),
    ("words for a number", "model.d_k=wide", r"--config\.model\.d_k=wide: .*invalid literal"),
    ("a number for a section", "model=3", r"Flag --config\.model is provided after"),
    ("not a number", "model.dropout_rate=nan", r"dropout_rate should be a finite number"),
    ("beyond 64 bits", f"data.toy_pairs={10**30}", r"toy_pairs is a number of 100 bits: at most"),
    ("beyond 32 bits", f"model.d_model={10**12}", r"d_model=1000000000000 should be at most 2,147"),
    ("a corpus without end", f"data.toy_pairs={10**9}", r"toy_pairs=1000000000 should be at most"),
    ("no such corpus", "data.corpus=tex", r"data\.corpus='tex' is unknown; did you mean text"),
    (
        "vocabulary too big",
        "data.vocab_size=90000",
        r"too small for data\.vocab_size=90,000: it yi",
    ),
    (
        "no such vocabulary",
        "data.vocabulary=byte",
        r"vocabulary='byte' is unknown; did you mean by",
    ),
    ("vocabulary too small", "data.vocab_size=3", r"data\.vocab_size=3 should be at least 261"),
    ("no room for characters", "data.vocab_size=262", r"less than the corpus's characters"),
    (
        "corpus without pairs",
        "data.toy_pairs=0",
        r"data\.corpus=toy needs data\.toy_pairs of at le",
    ),
    (
        "a language it has not",
        "data.target_language=fr",
        r"toy corpus is in en and de, not in en a",
    ),
    (
        "a source that is not read in order",
        "train.source_loss=0.5",
        r"0\.5 needs a model that reads",
    ),
    ("a source that is not joined", "model.source_attention=full", r"no use for model\.source_att"),
    ("text without files", "data.corpus=text", r"data\.train is empty: give a path prefix"),
    ("trees without files", "data.corpus=trees", r"data\.train has no trees: give files in Penn"),
)
def test_a_config_that_cannot_be_run_is_named(server, commands_cache, tmp_path, case):
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
    ("missing", None, r"config\.py is not a config file: .*No such file"),
    ("a folder", refusals.FOLDER, r"config\.py is not a config file: .*Is a directory"),
    ("broken syntax", b"def get_config(:\n", r"config\.py: SyntaxError: invalid syntax"),
    ("not text", b"\0\xff\xfe", r"config\.py: SyntaxError"),
    ("no get_config", b"x = 1\n", r"config\.py should have a function get_config"),
    ("raises", b"def get_config():\n  raise ValueError('no')\n", r"config\.py: ValueError: no"),
    ("imports what is not there", b"import nosuch\n", r"config\.py: .*No module named 'nosuch'"),
    ("forgets its return", b"def get_config():\n  pass\n", r"that returns a ConfigDict"),
    ("returns a dict", b"def get_config():\n  return {1: 2}\n", r"ConfigDict, but returns a dict"),
    (
        "lacks all fields",
        b"import ml_collections\nget_config = ml_collections.ConfigDict\n",
        r"the config lacks the field model",
    ),
    (
        "lacks a field",
        b"from configs import toy\ndef get_config():\n  c = toy.get_config()\n"
        b"  del c.decode.alpha\n  return c\n",
        r"the config lacks the field decode\.alpha",
    ),
)
def test_a_config_file_that_is_none_is_named(server, tmp_path, case):
    content, message = case
    path = tmp_path / "config.py"
    refusals.damage(path, content)
    arguments = [f"--config={path}", f"--workdir={tmp_path}/run"]
    refusals.assert_refused(server.run("transformer_jax.train", *arguments), message)


@refusals.table(
    ("a missing file", "train.de", None, r"there is no file .*train\.de, nor train\.de\.gz"),
    ("UTF-16", "train.en", "a\n".encode("utf-16"), r"train\.en: line 1 is not UTF-8"),
    ("a folder", "train.en", refusals.FOLDER, r"train\.en is a folder or a pipe: give a file"),
    ("one side blank", "train.en", b"\n" * 300, r"no training pair is left: 300 are empty and 0"),
    (
        "held out of nothing",
        "dev.en",
        b"\n" * 20,
        r"dev set has no sources: all 20 lines are blank",
    ),
    ("held out with nothing", "dev.de", b"\n" * 20, r"dev set has no targets: all 20 lines are"),
    ("only long lines", "train.en", b"long " * 900 + b"\n" + b"\n" * 299, r"no training pair is l"),
)
def test_a_corpus_that_is_none_is_named(server, commands_cache, corpus, tmp_path, case):
    name, content, message = case
    shutil.copytree(corpus, tmp_path, dirs_exist_ok=True)
    refusals.damage(tmp_path / name, content)
    refusals.assert_refused(train_on(server, tmp_path, commands_cache), message)


def train_on(server, folder, commands_cache):
    sets = (f"--config.data.{name}={folder / name}" for name in ("train", "dev"))
    arguments = [
        *refusals.TOY,
        "--config.data.corpus=text",
        *sets,
        f"--workdir={folder}/run",
        f"--cache_dir={commands_cache}",
    ]
    return server.run("transformer_jax.train", *arguments)


def test_an_archive_with_a_flipped_byte_is_named(server, commands_cache, corpus, tmp_path):
    shutil.copytree(corpus, tmp_path, dirs_exist_ok=True)
    plain = tmp_path / "train.en"
    packed = gzip.compress(plain.read_bytes())
    (tmp_path / "train.en.gz").write_bytes(packed[:90] + b"\0\0" + packed[92:])
    plain.unlink()
    refusals.assert_refused(train_on(server, tmp_path, commands_cache), r"cannot read .*\.gz")


def test_a_training_set_of_blank_lines_is_empty(server, commands_cache, corpus, tmp_path):
    shutil.copytree(corpus, tmp_path, dirs_exist_ok=True)
    for end in ("en", "de"):
        (tmp_path / f"train.{end}").write_bytes(b" \n\t\n\n")
    message = r"the training set is empty: all its lines are blank"
    refusals.assert_refused(train_on(server, tmp_path, commands_cache), message)


TRAIN, SWEEP = "transformer_jax.train", "experiments.table3"
TOY = [SWEEP, "--config=configs/toy.py", "--workdir=RUN"]
SCORE = "transformer_jax.score"


@refusals.table(
    ("no workdir", [TRAIN, *refusals.TOY], r"flag --workdir"),
    (
        "an empty workdir",
        [TRAIN, *refusals.TOY, "--workdir="],
        r"--workdir is empty: name a folder",
    ),
    (
        "workdir a file",
        [TRAIN, *refusals.TOY, "--workdir=FILE"],
        r"cannot make the run's folder: .*/two",
    ),
    (
        "workdir in a file",
        [TRAIN, *refusals.TOY, "--workdir=FILE/x"],
        r"cannot make the run's folder",
    ),
    (
        "workdir not writable",
        [TRAIN, *refusals.TOY, "--workdir=/proc/x"],
        r"cannot make the run's folder",
    ),
    (
        "a name too long",
        [TRAIN, *refusals.TOY, f"--workdir=RUN/{'x' * 300}"],
        r"File name too long",
    ),
    (
        "an unknown flag",
        [TRAIN, *refusals.TOY, "--workdri=x"],
        r"'workdri'\. Did you mean: workdir",
    ),
    (
        "a positional argument",
        [TRAIN, *refusals.TOY, "--workdir=RUN", "x"],
        r"unexpected argument 'x'",
    ),
    (
        "not UTF-8",
        [TRAIN, *refusals.TOY, "--workdir=RUN", "--row=\udcff"],
        r"'--row=.udcff' is not UTF-8",
    ),
    ("no such row", [*TOY, "--rows=Z"], r"--rows: none matches 'Z'; there are 'b"),
    ("no seed at all", [*TOY, "--seeds=0"], r"--seeds=0"),
    ("no field to tune", [*TOY, "--tune=x"], r"--tune=x: only fields of"),
    ("no value", [*TOY, "--tune=model.d_k:"], r"give a field and its valu"),
    ("no such device", [*TOY, "--dry_run", "--device=a"], r"known: v4, v5e"),
    ("device alone", [*TOY, "--device=v4-8"], r"give --dry_run with them"),
    ("compile for nothing", [*TOY, "--dry_run", "--compile"], r"give --device=v5e-8 with it"),
    (
        "utilisation of nothing",
        [*TOY, "--dry_run", "--utilisation=0.5"],
        r"--utilisation is of --device",
    ),
    (
        "utilisation of a program",
        [
            *TOY,
            "--dry_run",
            "--utilisation=0.5",
            "--device=v5e-8",
            "--compile",
        ],
        r"--utilisation is of --device without --compile",
    ),
    ("compile without a plan", [*TOY, "--device=v5e-8", "--compile"], r"give --dry_run with them"),
    (
        "sweep in a file",
        [SWEEP, "--config=configs/toy.py", "--workdir=FILE"],
        r"cannot make the sweep's folder",
    ),
    (
        "one sweep to compare",
        ["experiments.compare", "RUN"],
        r"SWEEP2 is missing: give SWEEP1 SWEEP2",
    ),
    (
        "three sweeps to compare",
        ["experiments.compare", "RUN", "RUN", "third"],
        r"unexpected argument 'third'",
    ),
    (
        "no sweep to compare",
        ["experiments.compare", "RUN", "RUN"],
        r"holds no sweep: it has no sweep.json",
    ),
    ("one sweep to agree with", ["experiments.agree", "RUN"], r"LARGE is missing: give SMALL"),
    ("no sweep to agree", ["experiments.agree", "RUN", "RUN"], r"holds no sweep: it has no sweep"),
    ("no sweep of rows", ["experiments.diff", "RUN", "a", "b"], r"holds no sweep: it has no sweep"),
    (
        "no sweep to draw",
        ["experiments.figures", "--workdir=RUN"],
        r"holds no sweep: it has no sweep.json",
    ),
    (
        "sweep in a bucket",
        [SWEEP, "--config=configs/toy.py", "--workdir=gs://bucket/sweep"],
        r"gs://bucket/sweep is no folder of this machine",
    ),
    (
        "cache in a bucket",
        [TRAIN, *refusals.TOY, "--workdir=RUN", "--cache_dir=gs://bucket/cache"],
        r"gs://bucket/cache is no folder of this machine",
    ),
    (
        "run at another address",
        [TRAIN, *refusals.TOY, "--workdir=s3://bucket/run"],
        r"neither a folder of this machine nor one in a bucket, gs://",
    ),
    (
        "profile in a bucket",
        [TRAIN, *refusals.TOY, "--workdir=gs://bucket/run", "--profile"],
        r"--profile writes to a --workdir of this machine only",
    ),
    (
        "cache a file",
        ["transformer_jax.prepare", *refusals.TOY, "--cache_dir=FILE"],
        r"make the cache's fol",
    ),
    (
        "no cache",
        ["transformer_jax.prepare", *refusals.TOY, "--cache_dir="],
        r"--cache_dir is empty",
    ),
    (
        "lengths differ",
        [SCORE, "--references=FILE", "--hypotheses=ONE"],
        r"has 2 lines, but .*one ",
    ),
    ("no such file", [SCORE, "--references=FILE", "--hypotheses=NO"], r"cannot read NO: .*No such"),
    ("empty files", [SCORE, "--references=EMPTY", "--hypotheses=EMPTY"], r"empty is empty: it has"),
    (
        "a folder",
        [SCORE, "--references=FILE", "--hypotheses=/tmp"],
        r"cannot read /tmp: .*Is a dir",
    ),
    ("no reference", [SCORE, "--hypotheses=FILE"], r"flag --references"),
    (
        "capitals",
        [SCORE, "--references=FILE", "--hypotheses=FILE", "--language=DE"],
        r"--language=DE should be two or three small letters",
    ),
    ("no run", ["transformer_jax.translate", "--workdir=RUN"], r"no trained run: it has no c"),
    ("a file", ["transformer_jax.translate", "--workdir=FILE"], r"two holds no trained run"),
)
def test_a_command_line_that_means_nothing_is_refused(server, tmp_path, case):
    command, message = case
    names = {"RUN": "run", "FILE": "two", "ONE": "one", "EMPTY": "empty"}
    for name, content in (("two", "eins\nzwei\n"), ("one", "eins\n"), ("empty", "")):
        (tmp_path / name).write_text(content)
    arguments = [
        re.sub(r"=(RUN|FILE|ONE|EMPTY)\b", lambda m: f"={tmp_path / names[m[1]]}", argument)
        for argument in command
    ]
    refusals.assert_refused(server.run(*arguments), message)
    assert not (tmp_path / "run" / "config.json").exists()
