"""Text corpora: accepted files and errors."""

import gzip

import pytest

from tests import tiny
from transformer_jax import errors, files
from transformer_jax.data import dataset, text


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def corpus(tmp_path):
    for name in ("train", "dev"):
        write(tmp_path, f"{name}.en", "a dog\na cat\n")
        write(tmp_path, f"{name}.de", "ein Hund\neine Katze\n")
    return tmp_path


def load(folder, train="train", dev="dev", test=""):
    prefixes = ",".join(str(folder / name) for name in train.split(","))
    paths = {"dev": str(folder / dev), "test": test and str(folder / test)}
    return text.load(tiny.data(train=prefixes, **paths))


def test_several_corpora_plain_and_compressed(corpus):
    write(corpus, "more.en.gz", gzip.compress(b"a horse\n"))
    write(corpus, "more.de.gz", gzip.compress(b"ein Pferd\n"))
    loaded = load(corpus, train="train,more")
    pairs = [("a dog", "ein Hund"), ("a cat", "eine Katze"), ("a horse", "ein Pferd")]
    assert list(loaded.train.read()) == pairs
    for start in range(4):
        assert list(loaded.train.read(start, every=2)) == pairs[start::2]
    assert len(loaded.train) == 3
    assert [file["lines"] for file in loaded.provenance["files"]] == [2, 2, 1, 1, 2, 2]
    assert len(loaded.test) == 0


def test_lines_end_at_newlines_only(tmp_path):
    content = "one\u0085still one\ntwo\u2028still two\x0b\n\n  four "
    path = write(tmp_path, "x.en", content)
    assert text.read_lines(path) == ["one\u0085still one", "two\u2028still two\x0b", "", "  four "]


def test_the_digest_follows_the_content(corpus):
    before = load(corpus)
    assert before.digest == load(corpus).digest
    assert load(corpus, test="dev").digest == before.digest
    write(corpus, "dev.en", "a dog\na cow\n")
    assert load(corpus).digest != before.digest
    assert load(corpus).train_digest == before.train_digest


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.de", "ein Hund\n", r"train\.en has 2 lines, but .*train\.de has 1"),
        ("train.de", b"ein Hund\nein \xff\n", r"train\.de: line 2 is not UTF-8 .*byte 5"),
        ("dev.en", "", r"dev\.en is empty: it has 0 lines"),
        ("train.en", None, r"there is no file .*train\.en, nor train\.en\.gz"),
    ],
)
def test_mistakes_name_the_file_the_line_and_the_count(corpus, name, content, message):
    if content is None:
        (corpus / name).unlink()
    else:
        write(corpus, name, content)
    with pytest.raises(errors.UserError, match=message):
        load(corpus)


def test_a_broken_archive_is_named(corpus):
    (corpus / "train.en").unlink()
    write(corpus, "train.en.gz", gzip.compress(b"a dog\na cat\n")[:-9])
    with pytest.raises(errors.UserError, match=r"cannot read .*train\.en\.gz"):
        load(corpus)


def test_without_a_prefix_the_error_names_the_flag():
    with pytest.raises(errors.UserError, match=r"data\.train is empty.*--config\.data\.train="):
        text.load(tiny.data(train=""))


def test_an_empty_target_language_is_refused():
    with pytest.raises(errors.UserError, match=r"data\.target_language is empty: set it"):
        text.load(tiny.data(target_language=""))


def test_empty_and_long_training_pairs_are_dropped_and_counted(make_config, tmp_path, cache_dir):
    lines = [f"{word} {other} sleeps" for word in "abcdefghij" for other in "klmnopqrst"]
    source = [*lines, "", "x", "  ", "long " * 90, "end"]
    target = [*lines, "leer", "\r", "blank", "lang", "lang " * 90]
    for name, sides in (("train", (source, target)), ("dev", (source, target))):
        for end, side in zip(("en", "de"), sides, strict=True):
            write(tmp_path, f"{name}.{end}", "\n".join(side) + "\n")
    config = make_config(
        {
            "data.corpus": "text",
            "data.train": str(tmp_path / "train"),
            "data.dev": str(tmp_path / "dev"),
            "data.vocab_size": 300,
        }
    )
    loaded = dataset.load(config.data, cache_dir)
    assert len(loaded.usable) == 100
    assert loaded.provenance["dropped"] == {"empty": 3, "too_long": 2, "left_out": 0}
    assert len(loaded.dev) == 105


def test_a_byte_order_mark_is_left_out_with_one_warning(tmp_path, caplog):
    path = tmp_path / "a.de"
    path.write_bytes("\ufeffein Hund\nzwei\n".encode())
    for _ in range(2):
        assert text.read_lines(path) == ["ein Hund", "zwei"]
    assert caplog.text.count("byte order mark") == 1


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.path("~/run") == files.local_path("~/run") == tmp_path / "run"
    with pytest.raises(errors.UserError, match=r"~nobody-of-this-name/x: .*home"):
        files.path("~nobody-of-this-name/x")
