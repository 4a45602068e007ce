"""The tokenizer: lossless, shared, trained once, and clear about too small a corpus."""

import pytest

from transformer_jax import errors
from transformer_jax.data import corpus, tokenizer
from transformer_jax.data.toy import generator


@pytest.fixture(scope="module")
def sentences():
    train, _ = generator.sentences(300, 2, 0)
    return [pair.english for pair in train] + [pair.german for pair in train]


@pytest.fixture(scope="module")
def model(sentences):
    return tokenizer.Tokenizer(tokenizer.train(sentences, 400))


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
