"""Odd text that is handled, not refused: as many lines out as in, each as it would be alone."""

import pytest

import transformer_jax
from tests import refusals, tiny
from transformer_jax import errors
from transformer_jax.data import dataset, text
from transformer_jax.data.toy import generator
from transformer_jax.decoding import translator as translator_lib
from transformer_jax.distributed import memory

ODD = {
    "empty": "",
    "a space": " ",
    "only spaces": "     ",
    "a tab": "\t",
    "NUL": "a\0b",
    "only NUL": "\0",
    "carriage return": "A dog sleeps.\r",
    "carriage return within": "A dog\rsleeps.",
    "next line": "A dog\u0085sleeps.",
    "line separator": "A dog\u2028sleeps.\u2029",
    "vertical tab": "A\x0bdog\x0csleeps\x1c.",
    "BOM": "\ufeffA dog sleeps.",
    "right to left": "הכלב ישן. الكلب نائم.",
    "directions that are set": "\u202eA dog\u202c sleeps.",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽",
    "combining": "e\u0301 " + "z\u0351\u036b\u0343" * 2,
    "a letter apart": "n\u0303",
    "Han": "狗在睡觉。",
    "the last character": "\U0010ffff\ufffe",
    "SentencePiece's space": "a\u2581b",
    "special tokens": "<s> </s> <pad> <unk> <0x00>",
    "one huge token": "x" * 90,
    "a sentence": "A dog sleeps.",
    "the same again": "A dog sleeps.",
}


@pytest.fixture(scope="module")
def translator(trained):
    return transformer_jax.load(trained)


@pytest.fixture(scope="module")
def translations(translator):
    return translator.translate(list(ODD.values()))


@pytest.mark.parametrize("name", ODD)
def test_every_line_is_translated_as_it_would_be_alone(translator, translations, name):
    assert translator.translate([ODD[name]]) == [translations[list(ODD).index(name)]]


def test_the_order_of_lines_does_not_matter(translator, translations):
    assert translator.translate(list(ODD.values())[::-1]) == translations[::-1]


def test_only_blank_lines_are_no_sentences(translator, translations):
    assert all(translator.tokenizer.encode([line])[0] for line in ODD.values() if line)
    for line, ids, found in zip(
        ODD.values(), translator.encode(list(ODD.values())), translations, strict=True
    ):
        assert bool(ids) == (line not in ("", " ", "     ", "\t"))
        assert ids or not found


def test_a_blank_line_that_is_held_out_is_an_empty_one(corpus, make_config, tmp_path, cache_dir):
    for (_, end), side in corpus.items():
        side[:3] = ["  ", "\t", ""] if end == "en" else [" ", "Ein Hund.", "\u3000"]
    loaded = load(corpus, make_config, tmp_path, cache_dir)
    assert list(map(bool, loaded.dev.source_ids[:4])) == [False, False, False, True]
    assert list(map(bool, loaded.dev.target_ids[:4])) == [False, True, False, True]


@pytest.mark.parametrize("end", ["\n", ""], ids=["a last newline", "no last newline"])
def test_the_command_writes_as_many_lines_as_it_reads(server, trained, translations, end):
    lines = [*ODD.values(), "A dog sleeps."]
    done = server.run(
        "transformer_jax.translate",
        f"--workdir={trained}",
        stdin=("\n".join(lines) + end).encode(),
    )
    assert done.code == 0, done.stderr
    expected = [*translations, translations[list(ODD).index("a sentence")]]
    assert done.stdout.decode().split("\n") == [*expected, ""]


def test_nothing_is_translated_to_nothing(server, trained):
    done = server.run("transformer_jax.translate", f"--workdir={trained}", stdin=b"")
    assert (done.code, done.stdout) == (0, b"")


@refusals.table(
    (
        "a stray byte",
        b"A dog.\n\nein \xff\n",
        r"standard input: line 3 is not UTF-8 .*byte 5 of th",
    ),
    ("UTF-16", "A dog.\n".encode("utf-16"), r"standard input: line 1 is not UTF-8"),
    ("a surrogate", b"A dog.\n\xed\xb3\xbf\n", r"standard input: line 2 is not UTF-8"),
)
def test_what_is_not_utf_8_is_refused_by_its_line(server, trained, case):
    stdin, message = case
    done = server.run("transformer_jax.translate", f"--workdir={trained}", stdin=stdin)
    refusals.assert_refused(done, message)


def test_a_translator_does_not_parse(server, trained):
    done = server.run("transformer_jax.parse", f"--workdir={trained}", stdin=b"A dog.\n")
    refusals.assert_refused(
        done, r"was trained on data\.corpus=\w+, which has no trees: name the f"
    )


def test_a_long_sentence_is_translated_by_itself(translator, translations, monkeypatch):
    monkeypatch.setattr(translator_lib, "LONG", 60)
    long = "A dog sleeps. " * 7
    assert len(translator.tokenizer.encode([long])[0]) > 60
    seen = []
    found = translator.translate(["A dog sleeps.", long, "A dog sleeps."], seen.append)
    assert found[0] == found[2] == translations[list(ODD).index("a sentence")]
    assert found[1]
    assert seen == [1, 3]


def test_ten_thousand_words_that_do_not_fit_are_refused_by_name(translator, monkeypatch):
    monkeypatch.setattr(memory, "of_device", lambda mesh: 2**30)
    sentences = ["A dog sleeps.", "word " * 10_000]
    message = r"sentence 2 has about [\d,]+ tokens, which take [\d.]+ GiB .*are 1\.0: split it"
    with pytest.raises(errors.UserError, match=message):
        translator.translate(sentences)


@pytest.fixture
def corpus(tmp_path):
    """Files of a small corpus, whose lines a test may change."""
    pairs, held_out = generator.sentences(300, 20, 0)
    return {
        (name, end): [getattr(pair, side) for pair in some]
        for name, some in (("train", pairs), ("dev", held_out))
        for end, side in (("en", "english"), ("de", "german"))
    }


def load(corpus, make_config, folder, cache_dir, **changes):
    """The data of a run on a corpus, written as files."""
    for (name, end), side in corpus.items():
        (folder / f"{name}.{end}").write_bytes("".join(f"{line}\n" for line in side).encode())
    sets = {f"data.{name}": str(folder / name) for name in ("train", "dev")}
    return dataset.load(make_config({"data.corpus": "text", **sets, **changes}).data, cache_dir)


@refusals.table(
    ("carriage returns", lambda line: f"{line}\r", "300 of its lines end with a carriage return"),
    ("NULs", lambda line: f"\0{line}", "300 of its lines hold a NUL"),
    ("BOMs", lambda line: f"\ufeff{line}", "300 of its lines begin with a BOM"),
    ("U+0085", lambda line: f"{line}\u0085{line}", ""),
    ("U+2028", lambda line: f"{line}\u2028{line}", ""),
    # SentencePiece does not learn from lines with it.
    ("U+2585", lambda line: line + "\u2585" * (len(line) % 2), ""),
    ("emoji", lambda line: f"{line} 👩‍👩‍👧", ""),
    ("right to left", lambda line: f"{line} שלום", ""),
)
def test_odd_characters_of_a_corpus_are_kept(
    corpus, make_config, tmp_path, cache_dir, caplog, case
):
    change, warning = case
    for end in ("en", "de"):
        corpus["train", end] = [change(line) for line in corpus["train", end]]
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


def test_one_line_is_a_corpus(tmp_path):
    for name in ("train", "dev"):
        for end in ("en", "de"):
            (tmp_path / f"{name}.{end}").write_bytes(b"one line without its end")
    loaded = text.load(tiny.data(train=f"{tmp_path}/train", dev=f"{tmp_path}/dev"))
    assert list(loaded.train.read()) == [("one line without its end",) * 2]
