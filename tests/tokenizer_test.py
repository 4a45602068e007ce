"""Vocabularies: lossless, shared, trained once; errors about too small a corpus."""

import io

import pytest
import sentencepiece

from transformer_jax import config, errors
from transformer_jax.data import corpus, tokenizer, toy


@pytest.fixture(scope="module")
def sentences():
    train, _ = toy.sentences(300, 2, 0)
    return [pair.english for pair in train] + [pair.german for pair in train]


@pytest.fixture(scope="module")
def model(sentences):
    return tokenizer.PieceTokenizer(tokenizer.train(sentences, 400))


def test_training_again_gives_the_same_model(model, sentences):
    assert tokenizer.train(sentences, 400) == model.model


def test_a_corpus_too_small_says_how_many_pieces_it_yields(sentences):
    with pytest.raises(errors.UserError, match=r"too small for data\.vocab_size=30,000.*at most"):
        tokenizer.train(sentences, 30_000)


def test_a_vocabulary_below_the_characters_is_refused(sentences):
    with pytest.raises(errors.UserError, match=r"vocab_size=270 is less than"):
        tokenizer.train(sentences, 270)
    with pytest.raises(errors.UserError, match=r"vocab_size=3 should be at least 261"):
        tokenizer.train(sentences, 3)


def test_it_is_trained_once_for_corpus_and_size(sentences, tmp_path):
    half = len(sentences) // 2
    pairs = corpus.Pairs(sentences[:half], sentences[half:])
    nothing = corpus.Pairs([""] * half, [""] * half)  # whose sentences would make no tokenizer
    first = tokenizer.cached(pairs, 400, 1000, "digest", tmp_path)
    assert tokenizer.cached(nothing, 400, 2000, "digest", tmp_path).digest == first.digest
    tokenizer.cached(pairs, 380, 1000, "digest", tmp_path)
    tokenizer.cached(pairs, 400, 1000, "other", tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_it_is_trained_on_evenly_spread_pairs(sentences, tmp_path):
    half = len(sentences) // 2
    pairs = corpus.Pairs(sentences[:half], sentences[half:])
    found = tokenizer.cached(pairs, 380, -(-half // 2), "digest", tmp_path)
    expected = tokenizer.train(sentences[:half:2] + sentences[half::2], 380)
    assert found.model == expected


BYTES = tokenizer.ByteTokenizer()
TEXTS = ("Neununddreißig Bären.", "", " a\tb ", "\u2581 \u0085", "日本語", "😀\0", "e\u0301")


def test_bytes_are_those_of_utf_8_after_the_special_tokens():
    special = {tokenizer.PAD, tokenizer.BOS, tokenizer.EOS, tokenizer.UNK}
    for text, row in zip(TEXTS, BYTES.encode(TEXTS), strict=True):
        assert bytes(token - max(special) - 1 for token in row) == text.encode()
    assert BYTES.encode(["hi"]) == [[4 + 104, 4 + 105]]  # ByT5, whose UNK is 2: 3 + byte
    assert BYTES.vocab_size == config.FIXED_VOCABULARIES["bytes"] == len(special) + 256


def test_bytes_restore_all_text_even_the_space_that_pieces_lose():
    assert BYTES.decode(BYTES.encode(TEXTS)) == list(TEXTS)
    assert BYTES.decode([]) == []


def test_invalid_bytes_are_replaced_and_special_tokens_left_out():
    def ids(content):
        return [len(tokenizer.SPECIAL) + byte for byte in content]

    broken = [*ids(b"a"), tokenizer.BOS, *ids(b"\xe2("), tokenizer.EOS, *ids(b"\xff\xc3")]
    assert BYTES.decode([broken, [tokenizer.PAD, BYTES.vocab_size]]) == ["a\ufffd(\ufffd\ufffd", ""]
    assert BYTES.decode([range(BYTES.vocab_size)])[0].startswith("".join(map(chr, range(128))))


def test_bytes_are_shown_as_sentencepiece_shows_its_own(model):
    unseen = [*range(4 + ord(" ")), *range(4 + 127, BYTES.vocab_size)]
    assert BYTES.pieces(unseen) == model.pieces(unseen)
    assert BYTES.pieces(BYTES.encode(["a b~"])[0]) == ["a", "\u2581", "b", "~"]


def test_a_vocabulary_is_restored_from_its_serialised_model(model, tmp_path):
    for kept in (model, BYTES):
        (tmp_path / "tokenizer.model").write_bytes(kept.model)
        found = tokenizer.read(tmp_path / "tokenizer.model", "")
        assert (type(found), found.digest) == (type(kept), kept.digest)


def test_symbols_are_one_piece_each_and_other_text_stays_lossless(sentences):
    trees = ["(S (NP XX XX )NP (VP-X XX )VP-X )S", "(S (NP XX )NP )S"]
    symbols = sorted({word for tree in trees for word in tree.split()})
    found = tokenizer.PieceTokenizer(tokenizer.train(sentences + trees * 50, 450, symbols))
    for tree in trees:
        (ids,) = found.encode([tree])
        assert found.pieces(ids) == [f"\u2581{word}" for word in tree.split()]
    others = ["(S (NPX XX )NPX )S", "XXL (S)", "a (S  b", *sentences[:20], *trees]
    assert found.decode(found.encode(others)) == others


def test_no_symbols_leave_the_model_as_it_was(model, sentences):
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(sentences),
        model_writer=written,
        vocab_size=400,
        **tokenizer.SETTINGS,
    )
    assert written.getvalue() == model.model


def test_symbols_are_part_of_the_cache_key(sentences, tmp_path):
    half = len(sentences) // 2
    pairs = corpus.Pairs(sentences[:half], sentences[half:])
    without = tokenizer.cached(pairs, 400, 1000, "digest", tmp_path)
    assert tokenizer.cached(pairs, 400, 1000, "digest", tmp_path, ["(S"]).digest != without.digest
    assert tokenizer.cached(pairs, 400, 1000, "digest", tmp_path).digest == without.digest


def test_an_error_of_sentencepiece_is_one_of_the_users():
    with pytest.raises(errors.UserError, match="SentencePiece finds no vocabulary in the training"):
        tokenizer.train(["a\u2585b"] * 100, 400)  # a character that it reserves
