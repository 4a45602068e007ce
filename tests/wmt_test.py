"""WMT with the real TFDS builders, offline: download, preparation, training, table and scores."""

import gzip
import json
import pathlib
import subprocess
import sys

import pytest
from tensorflow_datasets.translate import wmt as tfds_wmt

from configs import base
from tests import offline_wmt, tiny
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.data import dataset, toy, wmt

PAIRS, HELD_OUT = 600, 16


@pytest.fixture(scope="module")
def found():
    return offline_wmt.archives(PAIRS, HELD_OUT)


def overrides(folder, **more):
    values = {
        **{name: value for name, value in tiny.OVERRIDES.items() if "toy" not in name},
        "model.num_layers": 3, "model.num_heads": 8, "model.d_k": 8, "model.d_v": 8,
        "model.d_model": 64, "train.num_steps": 4,
        "data.tfds_dir": str(folder / "tfds"),
        **more,
    }  # fmt: skip
    return [f"--config.{name}={value}" for name, value in values.items()]


def offline(home):
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "JAX_PLATFORMS": "cpu"}


def command(module, *arguments, environment):
    return subprocess.run(
        [sys.executable, "-m", *module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def prepare(config, found, folder, **more):
    """Downloads and prepares the dataset, and returns the output."""
    offline_wmt.write_checksums(found, folder / "checksums.json")
    with offline_wmt.served(found) as environment:
        done = command(
            ["tests.offline_wmt", "transformer_jax.prepare"],
            f"--config=configs/{config}.py",
            f"--cache_dir={folder / 'cache'}",
            *overrides(folder, **more),
            environment={**environment, offline_wmt.CHECKSUMS: str(folder / "checksums.json")},
        )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def prepared(found, tmp_path_factory):
    """Returns a folder with dataset and cache, and the output of `prepare`."""
    folder = tmp_path_factory.mktemp("wmt")
    return folder, prepare("base", found, folder)


@pytest.mark.slow
def test_prepare_prints_the_corpus(prepared):
    _, printed = prepared
    assert f"data.train: {PAIRS} sentence pairs" in printed
    assert f"data.test: {HELD_OUT} sentence pairs" in printed
    assert f"{4 * HELD_OUT} of {4 * HELD_OUT} development and test sentences survive" in printed


@pytest.mark.slow
def test_french_has_a_builder_and_archives_of_its_own(tmp_path):
    found = offline_wmt.archives(PAIRS, HELD_OUT, "fr")
    steps = {"train.num_steps": 40}  # five checkpoints, which are averaged
    printed = prepare("base_fr", found, tmp_path, **steps)
    for split, pairs in (("train", PAIRS), ("dev", HELD_OUT), ("test", HELD_OUT)):
        assert f"wmt14_translate/fr-en, data.{split}: {pairs} sentence pairs" in printed


@pytest.mark.parametrize("end", ["", ".gz"])
def test_lines_are_read_as_tfds_reads_them_whole(tmp_path, end):
    sides = {"de": "Eins\u0085zwei\n\nDrei \r\nVier\n", "en": "One two\nNothing\nThree\nFour\n"}
    names = [str(tmp_path / f"corpus.de-en.{language}{end}") for language in sides]
    for name, text in zip(names, sides.values(), strict=True):
        content = gzip.compress(text.encode()) if end else text.encode()
        pathlib.Path(name).write_bytes(content)
    theirs = list(tfds_wmt._parse_parallel_sentences(*names))
    assert theirs.pop()[1] == {"de": "", "en": ""}  # after the last line's end
    assert list(wmt._parse_line_by_line(*names)) == theirs


@pytest.mark.slow
def test_train_table_and_score_need_no_network(prepared, tmp_path):
    folder, _ = prepared
    cache = f"--cache_dir={folder / 'cache'}"
    environment = {**offline(tmp_path), "http_proxy": "http://127.0.0.1:9"}
    workdir = tmp_path / "one"
    done = command(
        ["transformer_jax.train"],
        "--config=configs/base.py",
        f"--workdir={workdir}",
        cache,
        *overrides(folder),
        environment=environment,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((workdir / "result.json").read_text())
    assert result["data"]["name"].startswith("wmt_t2t_translate/de-en/")
    assert result["data"]["languages"] == ["en", "de"]
    assert set(result["bleu"]) >= {"sacrebleu_13a", "sacrebleu_intl", "paper"}
    references = (workdir / "references.txt").read_text().splitlines()
    _, held_out = toy.sentences(PAIRS, 2 * HELD_OUT, 0)
    assert sorted(references) == sorted(s.german for s in held_out[:HELD_OUT])

    done = command(
        ["experiments.table3"],
        "--config=configs/base.py",
        f"--workdir={tmp_path / 'table'}",
        cache,
        "--rows=base,E",
        *overrides(folder),
        environment=environment,
    )
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "table" / "table3.md").read_text()
    assert "\n| base |" in table
    assert "\n| E |" in table

    done = command(
        ["transformer_jax.score"],
        f"--references={workdir / 'references.txt'}",
        f"--hypotheses={workdir / 'hypotheses.txt'}",
        environment=environment,
    )
    assert done.returncode == 0, done.stderr
    for name, variant in result["bleu"].items():
        line = next(line for line in done.stdout.splitlines() if line.startswith(f"{name} "))
        assert line.split() == [name, f"{variant['score']:.2f}", variant["signature"]]


@pytest.mark.slow
def test_the_other_direction_is_another_corpus(prepared, tmp_path):
    folder, _ = prepared
    arguments = overrides(folder, **{"data.source_language": "de", "data.target_language": "en"})
    environment = offline(tmp_path)
    done = command(
        ["transformer_jax.prepare"],
        "--config=configs/base.py",
        f"--cache_dir={folder / 'cache'}",
        *arguments,
        environment=environment,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((folder / "cache").glob("tokens-*[0-9a-f]"))) == 2
    done = command(
        ["transformer_jax.prepare"],
        "--config=configs/base.py",
        f"--cache_dir={tmp_path}",
        *overrides(folder, **{"data.target_language": "fr"}),
        environment=environment,
    )
    assert done.returncode == 2
    assert "wmt_t2t_translate/de-en is in de and en, not in en and fr" in done.stderr


@pytest.mark.slow
def test_entities_of_sgml_are_decoded(prepared, monkeypatch):
    folder, _ = prepared
    config = tiny.data(tfds_name="wmt_t2t_translate/de-en", tfds_dir=str(folder / "tfds"))
    corpus = wmt.load(config, folder / "cache")
    assert all(sentence.endswith(" & so") for sentence in corpus.test.source + corpus.test.target)
    pairs = list(corpus.train.read())
    assert len(pairs) == len(corpus.train) == PAIRS
    assert list(corpus.train.read(7, every=3)) == pairs[7::3]
    train, _ = toy.sentences(PAIRS, 2 * HELD_OUT, 0)
    assert sorted(pairs) == sorted((s.english, s.german) for s in train)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message", "remedy"),
    [
        ("checksum", "has wrong checksum", "delete it from"),
        ("cut", "could not be fetched", "start again"),
        ("damaged", "could not be unpacked", "delete the archive from"),
        ("missing", "could not be fetched", "start again"),
    ],
)
def test_a_failed_download_is_one_line_with_a_remedy(found, tmp_path, fault, message, remedy):
    europarl = next(url for url in found if "europarl" in url)
    there = {
        url: content for url, content in found.items() if fault != "missing" or url != europarl
    }
    if fault == "damaged":
        there[europarl] = b"no archive"
    known = there if fault == "damaged" else found
    offline_wmt.write_checksums(known, tmp_path / "checksums.json")
    expected = {} if fault == "checksum" else {
        offline_wmt.CHECKSUMS: str(tmp_path / "checksums.json")
    }  # fmt: skip
    runner = [] if fault == "checksum" else ["tests.offline_wmt"]
    with offline_wmt.served(there, cut=europarl if fault == "cut" else "") as environment:
        done = command(
            [*runner, "transformer_jax.prepare"],
            "--config=configs/base.py",
            f"--cache_dir={tmp_path / 'cache'}",
            *overrides(tmp_path),
            environment={**environment, **expected},
        )
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: wmt_t2t_translate/de-en")
    assert message in last
    assert f"{tmp_path / 'tfds' / 'downloads'}" in last
    assert remedy in last


@pytest.mark.slow
def test_an_unknown_dataset_lists_the_known_ones(tmp_path):
    environment = offline(tmp_path)
    for name, message in (
        ("wmt99/de-en", "data.tfds_name='wmt99' is unknown"),
        ("wmt14_translate/de-fr", "de-en"),
    ):
        done = command(
            ["transformer_jax.prepare"],
            "--config=configs/base.py",
            f"--cache_dir={tmp_path}",
            f"--config.data.tfds_name={name}",
            environment=environment,
        )
        assert done.returncode == 2
        assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("corpus", "field"),
    [("tfds", "dev"), ("toy", "train"), ("toy_parsing", "test"), ("text", "parsed")],
)
def test_files_that_a_corpus_does_not_read_are_refused(tmp_path, corpus, field):
    config = config_lib.from_mapping(base.get_config().to_dict())
    given = config_lib.replace(config, {"data.corpus": corpus, f"data.{field}": "newstest2013"})
    message = rf"data\.{field} is set, but data\.corpus={corpus} reads no such files"
    with pytest.raises(errors.UserError, match=message):
        dataset.load(given.data, tmp_path)


def test_trees_have_one_direction(tmp_path):
    config = config_lib.from_mapping(base.get_config().to_dict())
    changes = {"data.corpus": "toy_parsing", "data.directions": "en-trees,trees-en"}
    with pytest.raises(errors.UserError, match=r"data\.directions=en-trees,trees-en: .* leave it"):
        dataset.load(config_lib.replace(config, changes).data, tmp_path)
