"""The cache of encoded sentences: the same after an interruption, and small."""

import itertools
import json

import numpy as np
import pytest

from transformer_jax import errors
from transformer_jax.data import corpus, token_cache, tokenizer, toy


@pytest.fixture(scope="module")
def pairs():
    train, _ = toy.sentences(300, 1, 0)
    source, target = [s.english for s in train], [s.german for s in train]
    source[5], target[7] = "  ", ""
    return corpus.Pairs(source, target)


@pytest.fixture(scope="module")
def model(pairs):
    return tokenizer.PieceTokenizer(tokenizer.train(pairs.source + pairs.target, 400))


class Interrupted(corpus.PairSource):
    """Pairs whose reading fails after some of them."""

    def __init__(self, pairs, after):
        self._pairs, self._after = pairs, after

    def __len__(self):
        return len(self._pairs)

    def read(self, start=0, every=1):
        for number, pair in enumerate(self._pairs.read(start, every), start=start):
            if number == self._after:
                raise KeyboardInterrupt
            yield pair


def test_lists_are_the_tokenizers_and_those_of_blank_lines_are_empty(pairs, model, tmp_path):
    for side, found in zip(
        (pairs.source, pairs.target), token_cache.encoded(pairs, model, tmp_path / "x"), strict=True
    ):
        expected = model.encode([sentence if sentence.strip() else "" for sentence in side])
        assert [ids.tolist() for ids in map(found.__getitem__, range(len(found)))] == expected
        assert found.lengths.tolist() == [len(ids) for ids in expected]
        assert found.ids.dtype == np.uint16  # two bytes a token for a vocabulary below 65,536


def test_an_interrupted_encoding_resumes_and_ends_the_same(pairs, model, tmp_path, monkeypatch):
    monkeypatch.setattr(token_cache, "CHUNK", 64)
    whole = token_cache.encoded(pairs, model, tmp_path / "whole")
    folder = tmp_path / "broken"
    for after in (10, 70, 200):
        with pytest.raises(KeyboardInterrupt):
            token_cache.encoded(Interrupted(pairs, after), model, folder)
        partial = folder.with_suffix(".partial")
        written = json.loads((partial / "written.json").read_text()) if after > 64 else {"pairs": 0}
        assert written["pairs"] == after // 64 * 64
        # A kill may come between writing a chunk and counting it.
        for name in ("source-ids.bin", "target-lengths.bin"):
            with (partial / name).open("ab") as file:
                file.write(b"abcdef")
    again = token_cache.encoded(Interrupted(pairs, -1), model, folder)
    for one, other in zip(whole, again, strict=True):
        for field in ("ids", "ends", "lengths"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    assert not folder.with_suffix(".partial").exists()


def test_a_partial_cache_that_is_truncated_is_refused(pairs, model, tmp_path, monkeypatch):
    monkeypatch.setattr(token_cache, "CHUNK", 64)
    with pytest.raises(KeyboardInterrupt):
        token_cache.encoded(Interrupted(pairs, 200), model, tmp_path / "x")
    (tmp_path / "x.partial" / "source-ids.bin").unlink()
    with pytest.raises(errors.UserError, match=r"source-ids\.bin is shorter than .*: delete "):
        token_cache.encoded(Interrupted(pairs, -1), model, tmp_path / "x")


def test_an_existing_cache_is_not_written_again(pairs, model, tmp_path):
    token_cache.encoded(pairs, model, tmp_path / "x")
    token_cache.encoded(Interrupted(pairs, 0), model, tmp_path / "x")


def test_reading_skips_pairs(pairs):
    everything = list(pairs.read())
    for start, every in itertools.product((0, 3), (1, 7)):
        assert list(pairs.read(start, every)) == everything[start::every]
