"""A whole run with a vocabulary of bytes."""

import json

import pytest

import transformer_jax
from transformer_jax.data import tokenizer, toy


@pytest.fixture(scope="module")
def workdir(train):
    lengths = ("data.source_length=160", "data.target_length=160", "train.batch_tokens=1280")
    return train(*(f"--config.{change}" for change in ("data.vocabulary=bytes", *lengths)))


def test_its_tokens_are_bytes_and_its_translations_are_text(server, workdir):
    result = json.loads((workdir / "result.json").read_text())
    for side, name in (("source", "sources"), ("target", "references")):
        lines = (workdir / f"{name}.txt").read_bytes().splitlines(keepends=True)
        tokens = sum(map(len, lines)) / len(lines)  # the end of a line in place of the EOS
        assert result["tokens_per_sentence"][side] == pytest.approx(tokens)
    assert (workdir / "tokenizer.model").read_bytes() == tokenizer.ByteTokenizer.MODEL
    loaded = transformer_jax.load(workdir)
    assert loaded.params["params"]["embedding"].shape[0] == loaded.tokenizer.vocab_size == 260
    sentences = [pair.english for pair in toy.sentences(5, 1, 5)[0]]
    done = server.run(
        "transformer_jax.translate",
        f"--workdir={workdir}",
        stdin="".join(f"{line}\n" for line in sentences).encode(),
    )
    assert done.stdout.decode().split("\n") == [*loaded.translate(sentences), ""]


def test_its_speed_counts_sentences_of_the_training_set(workdir):
    result = json.loads((workdir / "result.json").read_text())
    held_out = {field: result["data"]["pairs"][field] for field in ("train", "dev")}
    train, _ = toy.sentences(held_out["train"], 2 * held_out["dev"], 0)
    lengths = [[len(text.encode()) + 1 for text in (p.english, p.german)] for p in train]
    usable = [german for english, german in lengths if max(english, german) <= 160]
    tokens = result["tokens_per_second"] / result["sentences_per_second"]
    assert tokens == pytest.approx(sum(usable) / len(usable))
