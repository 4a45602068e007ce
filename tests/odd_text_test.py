"""Unusual text: one line of output for each line of input."""

import pytest

import transformer_jax
from tests import refusals
from transformer_jax import errors
from transformer_jax.data import dataset, toy
from transformer_jax.decoding import translator as translator_lib
from transformer_jax.distributed import memory

LINES = [
    "",
    "  ",
    "a\0b",
    "A dog sleeps.\r",
    "A dog\u2028sleeps\u0085.",
    "\ufeffA dog sleeps.",
    "הכלב ישן. 狗在睡觉。 👩‍👩‍👧‍👦 e\u0301",
    "a\u2581b <s> </s> <pad>",
    "A dog sleeps.",
    "A dog sleeps.",
]


@pytest.fixture(scope="module")
def translator(trained):
    return transformer_jax.load(trained)


@pytest.fixture(scope="module")
def translations(translator):
    return translator.translate(LINES)


def test_every_line_is_translated_as_it_is_alone(translator, translations):
    assert [translator.translate([line])[0] for line in LINES] == translations
    assert translations[:2] == ["", ""]


def test_the_command_writes_as_many_lines_as_it_reads(server, trained, translations):
    stdin = "\n".join(LINES).encode()  # no newline ends the last line
    done = server.run("transformer_jax.translate", f"--workdir={trained}", stdin=stdin)
    assert done.code == 0, done.stderr
    assert done.stdout.decode().split("\n") == [*translations, ""]


def test_text_that_is_not_utf_8_is_refused_by_its_line(server, trained):
    stdin = b"A dog.\n\nein \xff\n"
    done = server.run("transformer_jax.translate", f"--workdir={trained}", stdin=stdin)
    refusals.assert_refused(done, r"standard input: line 3 is not UTF-8 .*byte 5 of th")


def test_a_translator_does_not_parse(server, trained):
    done = server.run("transformer_jax.parse", f"--workdir={trained}", stdin=b"A dog.\n")
    refusals.assert_refused(
        done, r"was trained on data\.corpus=\w+, which has no trees: name the f"
    )


def test_a_long_sentence_is_translated_alone(translator, translations, monkeypatch):
    monkeypatch.setattr(translator_lib, "LONG", 60)
    long = "A dog sleeps. " * 7
    assert len(translator.tokenizer.encode([long])[0]) > 60
    seen = []
    found = translator.translate(["A dog sleeps.", long, "A dog sleeps."], seen.append)
    assert found[0] == found[2] == translations[-1]
    assert found[1]
    assert seen == [1, 3]


def test_ten_thousand_words_that_do_not_fit_are_refused_by_name(translator, monkeypatch):
    monkeypatch.setattr(memory, "of_device", lambda mesh: 2**30)
    sentences = ["A dog sleeps.", "word " * 10_000]
    message = r"sentence 2 has about [\d,]+ tokens, which need [\d.]+ of 1\.0 GiB of memory"
    with pytest.raises(errors.UserError, match=message):
        translator.translate(sentences)


@pytest.fixture
def corpus():
    """Lines of a small corpus, by set and language."""
    pairs, held_out = toy.sentences(300, 20, 0)
    return {
        (name, end): [getattr(pair, side) for pair in some]
        for name, some in (("train", pairs), ("dev", held_out))
        for end, side in (("en", "english"), ("de", "german"))
    }


def load(corpus, make_config, folder, cache_dir, **changes):
    """Returns the data of a run on a corpus, written as files."""
    for (name, end), side in corpus.items():
        (folder / f"{name}.{end}").write_bytes("".join(f"{line}\n" for line in side).encode())
    sets = {f"data.{name}": str(folder / name) for name in ("train", "dev")}
    return dataset.load(make_config({"data.corpus": "text", **sets, **changes}).data, cache_dir)


@refusals.table(
    ("carriage returns", "\r", "300 lines end with a carriage return"),
    ("emoji", " 👩‍👩‍👧 שלום \u2028", ""),
)
def test_unusual_characters_of_a_corpus_are_kept(
    corpus, make_config, tmp_path, cache_dir, caplog, case
):
    characters, warning = case
    for end in ("en", "de"):
        corpus["train", end] = [line + characters for line in corpus["train", end]]
    loaded = load(corpus, make_config, tmp_path, cache_dir)
    assert (warning in caplog.text) if warning else not caplog.records
    ids = [loaded.source[i].tolist() for i in range(300)]
    assert loaded.tokenizer.decode(ids) == corpus["train", "en"]


def test_pairs_with_either_side_longer_than_asked_for_are_left_out(
    corpus, make_config, tmp_path, cache_dir
):
    sides = {"en": ["abc", "abcd", "abc", "ab"], "de": ["abc", "abc", "abcd", "a"]}
    corpus |= {("train", end): lines for end, lines in sides.items()}
    changes = {"data.vocabulary": "bytes", "data.train_max_tokens": 3}
    loaded = load(corpus, make_config, tmp_path, cache_dir, **changes)
    assert loaded.usable.tolist() == [0, 3]
    assert loaded.provenance["dropped"] == {"empty": 0, "too_long": 0, "left_out": 2}
