"""From a data config to token ids: corpus, tokenizer and the cache of the encoded training set."""

import dataclasses
import hashlib
import logging
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from transformer_jax import config as config_lib
from transformer_jax import errors, fields
from transformer_jax.data import checks, text, token_cache
from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import tokenizer as tokenizer_lib
from transformer_jax.data.toy import generator

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """A development or test set, its ids without BOS and EOS; a test set may have no pairs."""

    source: list[str]
    target: list[str]
    source_ids: list[list[int]]
    target_ids: list[list[int]]

    def __len__(self) -> int:
        return len(self.source)

    def first(self, number: int) -> "HeldOut":
        """So many of its pairs, or all."""
        return HeldOut(*(getattr(self, side.name)[:number] for side in dataclasses.fields(self)))


@dataclasses.dataclass(frozen=True)
class Dataset:
    """All that a run reads."""

    tokenizer: tokenizer_lib.Tokenizer  # shared by both languages
    source: token_cache.TokenLists  # training sentences, without BOS and EOS
    target: token_cache.TokenLists  # their translations
    usable: Int[np.ndarray, "pairs"]  # training pairs that are neither empty nor too long for a row
    dev: HeldOut
    test: HeldOut
    digests: Mapping[str, str]  # SHA-256 of corpus (train and dev), tokenizer and test set
    provenance: Mapping[str, Any]  # where the corpus comes from, and which pairs were dropped


def _load_toy(config: config_lib.DataConfig, cache_dir: pathlib.Path) -> corpus_lib.Corpus:
    languages = (config.source_language, config.target_language)
    if sorted(languages) != ["de", "en"]:
        raise errors.UserError(
            f"the toy corpus is in en and de, not in {languages[0]} and {languages[1]}"
        )
    for field in ("toy_pairs", "toy_held_out_pairs"):
        if not getattr(config, field):
            raise errors.UserError(f"data.corpus=toy needs data.{field} of at least 1")
    return generator.load(config.toy_pairs, config.toy_held_out_pairs, config.toy_seed, *languages)


def _load_text(config: config_lib.DataConfig, cache_dir: pathlib.Path) -> corpus_lib.Corpus:
    return text.load(
        config.train, config.dev, config.test, config.source_language, config.target_language
    )


def _load_tfds(config: config_lib.DataConfig, cache_dir: pathlib.Path) -> corpus_lib.Corpus:
    for field in ("train", "dev", "test"):
        if getattr(config, field):
            raise errors.UserError(
                f"data.{field} is given, but data.corpus=tfds reads no files of yours: add "
                "--config.data.corpus=text"
            )
    from transformer_jax.data import wmt  # importing TFDS takes a second: not for everyone

    return wmt.load(
        config.tfds_name, config.tfds_dir, config.source_language, config.target_language, cache_dir
    )


CORPORA: dict[str, Callable[[config_lib.DataConfig, pathlib.Path], corpus_lib.Corpus]] = {
    "toy": _load_toy,
    "text": _load_text,
    "tfds": _load_tfds,
}


def load(config: config_lib.DataConfig, cache_dir: pathlib.Path) -> Dataset:
    """Reads the corpus, and the tokenizer and encoded training set from the cache or made now.

    Raises:
      UserError: as the corpus and the tokenizer do, or no training pair is usable.
    """
    corpus = fields.lookup("data.corpus", config.corpus, CORPORA)(config, cache_dir)
    if not any(source.strip() or target.strip() for source, target in corpus.train.read()):
        raise errors.UserError("the training set is empty: all its lines are blank")
    tokenizer = tokenizer_lib.cached(
        corpus.train, config.vocab_size, config.tokenizer_pairs, corpus.train_digest, cache_dir
    )
    key = hashlib.sha256(f"{corpus.train_digest} {tokenizer.digest}".encode()).hexdigest()[:16]
    source, target = token_cache.encoded(corpus.train, tokenizer, cache_dir / f"tokens-{key}")
    found = checks.run(corpus, config.source_language, config.target_language, cache_dir)
    usable, dropped = _usable(source, target, config)
    dev, test = (
        HeldOut(pairs.source, pairs.target, *map(tokenizer.encode, (pairs.source, pairs.target)))
        for pairs in (corpus.dev, corpus.test)
    )
    return Dataset(
        tokenizer,
        source,
        target,
        usable,
        dev,
        test,
        digests={
            "corpus": corpus.digest,
            "tokenizer": tokenizer.digest,
            "test": corpus.test_digest,
        },
        provenance={
            **corpus.provenance,
            "languages": [config.source_language, config.target_language],
            "dropped": dropped,
            "checks": found,
        },
    )


def longest(dataset: Dataset) -> tuple[int, int]:
    """Tokens of the longest development or test source, and reference, with their EOS."""
    dev, test = dataset.dev, dataset.test
    sides = ([*dev.source_ids, *test.source_ids], [*dev.target_ids, *test.target_ids])
    source, target = (1 + max(map(len, side)) for side in sides)
    return source, target


def _usable(
    source: token_cache.TokenLists, target: token_cache.TokenLists, config: config_lib.DataConfig
) -> tuple[Int[np.ndarray, "pairs"], dict[str, int]]:
    """Indices of the pairs to train on, and how many were dropped for which reason."""
    most = config.train_max_tokens
    empty = (source.lengths == 0) | (target.lengths == 0)
    # A row also holds each sentence's EOS.
    too_long = (source.lengths >= config.source_length) | (target.lengths >= config.target_length)
    too_long &= ~empty
    left_out = (source.lengths > (most or np.inf)) | (target.lengths > (most or np.inf))
    left_out &= ~(empty | too_long)
    reasons = {"empty": empty, "too_long": too_long, "left_out": left_out}
    dropped = {name: int(pairs.sum()) for name, pairs in reasons.items()}
    usable = np.flatnonzero(~(empty | too_long | left_out)).astype(np.int32)
    _log.info(
        "%s training pairs; dropped: %s empty, %s longer than data.source_length=%d or "
        "data.target_length=%d",
        *(f"{number:,}" for number in (len(usable), dropped["empty"], dropped["too_long"])),
        config.source_length,
        config.target_length,
    )
    if most:
        _log.info(
            "left out: %s longer than data.train_max_tokens=%d", f"{dropped['left_out']:,}", most
        )
    if not len(usable):
        raise errors.UserError("no training pair is left once empty and long ones are dropped")
    return usable, dropped
