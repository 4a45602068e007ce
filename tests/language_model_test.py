"""Language models: corpora without a source, training, scores and generation."""

import math
import shutil

import jax
import numpy as np
import pytest

import transformer_jax
from tests import refusals, tiny
from transformer_jax import models
from transformer_jax.data import batching, overlap, text, toy
from transformer_jax.runs import run_folder

SETS = {"train": 300, "dev": 20}
OURS = {
    "data.corpus": "text",
    "data.source_language": "",
    "model.architecture": "decoder",
    "model.position": "learned",
    "model.max_positions": 160,
    "train.num_steps": 60,
    "train.learning_rate_scale": 2,
    "checkpoint.every": 30,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    pairs, held_out = toy.sentences(SETS["train"], SETS["dev"], 0)
    for name, some in (("train", pairs), ("dev", held_out)):
        lines = "".join(f"{pair.german}\n" for pair in some)
        (folder / f"{name}.de").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def arguments(corpus, commands_cache):
    paths = {f"data.{name}": corpus / name for name in SETS}
    values = {**OURS, **paths}
    return [
        *refusals.TOY,
        *(f"--config.{name}={value}" for name, value in values.items()),
        f"--cache_dir={commands_cache}",
    ]


@pytest.fixture(scope="module")
def workdir(server, arguments, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    done = server.run("transformer_jax.train", *arguments, f"--workdir={folder}")
    assert done.code == 0, done.stderr
    return folder


def test_a_resumed_run_ends_the_same(server, workdir, arguments, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(workdir, copy)
    (copy / "result.json").unlink()
    shutil.rmtree(copy / "checkpoints" / "60")
    done = server.run("transformer_jax.train", *arguments, f"--workdir={copy}")
    assert done.code == 0, done.stderr
    assert "step 30" in done.stderr
    assert run_folder.read_result(copy)["ppl"] == run_folder.read_result(workdir)["ppl"]


def load(corpus):
    prefixes = {name: str(corpus / name) for name in ("train", "dev")}
    return text.load(tiny.data(**prefixes, source_language=""))


def test_a_prefix_without_a_source_language_is_one_file(corpus):
    loaded = load(corpus)
    lines = text.read_lines(corpus / "train.de")
    assert list(loaded.train.read(7, every=3)) == [("", line) for line in lines[7::3]]
    assert len(loaded.train) == len(lines) == SETS["train"]
    assert loaded.dev.source == [""] * SETS["dev"]
    assert [file["set"] for file in loaded.provenance["files"]] == ["train", "dev"]


def test_overlap_counts_target_sentences(corpus):
    train, dev = (text.read_lines(corpus / f"{name}.de") for name in SETS)
    both = sum(line in train for line in dev)
    found = overlap.count(load(corpus))["dev"]
    assert found == {"of": len(dev), "sources": both, "pairs": both}
    assert both < len(dev)


def test_perplexity_is_that_of_one_sentence_at_a_time(workdir, corpus):
    run = transformer_jax.load(workdir)
    result = run_folder.read_result(workdir)
    assert not {"bleu", "bleu_by_length"} & set(result)
    ids = run.tokenizer.encode(text.read_lines(corpus / "dev.de"))
    length = max(map(len, ids)) + 1
    batch = batching.fill([[((), sentence)] for sentence in ids], 1, length)
    logits = jax.jit(models.logits, static_argnums=0)(run.model, run.params, batch)
    log_p = np.asarray(jax.nn.log_softmax(logits))
    scores = [
        log_p[row, place, label]
        for row, sentence in enumerate(ids)
        for place, label in enumerate([*sentence, 2])
    ]
    assert result["ppl"] == pytest.approx(math.exp(-np.mean(scores)), rel=1e-4)
    assert result["ppl"] < 100  # of 400 tokens: it has learnt which are frequent


def test_texts_begin_with_the_prompt_and_follow_the_seed(server, workdir):
    def generate(*flags):
        done = server.run(
            "transformer_jax.generate", f"--workdir={workdir}", "--prompt=Der", *flags
        )
        assert done.code == 0, done.stderr
        return done.stdout.decode().splitlines()

    one = generate("--number=4", "--tokens=12")
    assert len(one) == 4
    assert all(line.startswith("Der") for line in one)
    assert len(set(one)) > 1
    assert one == generate("--number=4", "--tokens=12")
    assert one != generate("--number=4", "--tokens=12", "--seed=1")
    assert len(set(generate("--number=4", "--tokens=12", "--method=greedy"))) == 1


@refusals.table(
    ("no number", ["--temperature=nan"], r"--temperature=nan is not a number"),
    ("unknown method", ["--method=gready"], r"--method='gready' is unknown; did you mean greedy"),
    ("no room", ["--tokens=160"], r"--tokens=160 is more than .* positions allow, 159"),
    (
        "a long prompt",
        ["--tokens=2", "--prompt=Der alte Hund"],
        r"has \d+ tokens and leaves none",
    ),
)
def test_invalid_requests_are_refused(server, workdir, case):
    flags, message = case
    done = server.run("transformer_jax.generate", f"--workdir={workdir}", *flags)
    refusals.assert_refused(done, message)


def test_commands_refuse_models_of_the_other_kind(server, workdir, trained, arguments, tmp_path):
    done = server.run("transformer_jax.translate", f"--workdir={workdir}")
    refusals.assert_refused(done, r"no source language: use python -m transformer_jax\.generate")
    done = server.run("transformer_jax.generate", f"--workdir={trained}")
    refusals.assert_refused(done, r"this run translates from en: use python -m transformer_jax\.tr")
    done = server.run("experiments.table3", *arguments, f"--workdir={tmp_path}", "--dry_run")
    refusals.assert_refused(done, r"a table compares translations: data\.source_language is empty")
