"""From a data config to token ids: corpus, tokenizer and the cache of the encoded training set."""

import dataclasses
import hashlib
import logging
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
from jaxtyping import Int

from transformer_jax import config as config_lib
from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import text, toy
from transformer_jax.data import tokenizer as tokenizer_lib

_log = logging.getLogger(__name__)


@final
@dataclasses.dataclass(frozen=True)
class TokenLists:
    """Many lists of ids, end to end in one array; list i is ids[offsets[i]:offsets[i + 1]]."""

    ids: Int[np.ndarray, "ids"]
    offsets: Int[np.ndarray, "boundaries"]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int[np.ndarray, "length"]:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> Int[np.ndarray, "lists"]:
        """Number of ids in each list."""
        return np.diff(self.offsets)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """All that a run reads.

    Attributes:
      tokenizer: shared by both languages.
      source: encoded training sentences, without end tokens.
      target: their translations.
      usable: indices of the training pairs that are neither empty nor too long for a row.
      dev: development pairs, as text.
      test: test pairs, as text.
      digests: SHA-256 of corpus and tokenizer.
      provenance: where the corpus comes from, and how many training pairs were dropped.
    """

    tokenizer: tokenizer_lib.Tokenizer
    source: TokenLists
    target: TokenLists
    usable: Int[np.ndarray, "pairs"]
    dev: corpus_lib.Pairs
    test: corpus_lib.Pairs
    digests: Mapping[str, str]
    provenance: Mapping[str, Any]


def _load_toy(config: config_lib.DataConfig) -> corpus_lib.Corpus:
    languages = (config.source_language, config.target_language)
    if sorted(languages) != ["de", "en"]:
        raise config_lib.UserError(
            f"the toy corpus is in en and de, not in {languages[0]} and {languages[1]}"
        )
    for field in ("toy_pairs", "toy_held_out_pairs"):
        if not getattr(config, field):
            raise config_lib.UserError(f"data.corpus=toy needs data.{field} of at least 1")
    return toy.load(config.toy_pairs, config.toy_held_out_pairs, config.toy_seed, *languages)


def _load_text(config: config_lib.DataConfig) -> corpus_lib.Corpus:
    return text.load(
        config.train, config.dev, config.test, config.source_language, config.target_language
    )


CORPORA: dict[str, Callable[[config_lib.DataConfig], corpus_lib.Corpus]] = {
    "toy": _load_toy,
    "text": _load_text,
}


def load(config: config_lib.DataConfig, cache_dir: pathlib.Path) -> Dataset:
    """Reads the corpus, and the tokenizer and encoded training set from the cache or made now.

    Raises:
      UserError: as the corpus and the tokenizer do, or no training pair is usable.
    """
    corpus = config_lib.lookup("data.corpus", config.corpus, CORPORA)(config)
    if not any(map(str.strip, corpus.train.source + corpus.train.target)):
        raise config_lib.UserError("the training set is empty: all its lines are blank")
    tokenizer = tokenizer_lib.cached(
        corpus.train.source + corpus.train.target, config.vocab_size, corpus.train_digest, cache_dir
    )
    source, target = _encoded(corpus, tokenizer, cache_dir)
    # A row also holds each sentence's end token.
    sides = zip(corpus.train.source, corpus.train.target, strict=True)
    empty = np.array([not one.strip() or not other.strip() for one, other in sides])
    too_long = ~empty & (
        (source.lengths >= config.source_length) | (target.lengths >= config.target_length)
    )
    longest = np.maximum(source.lengths, target.lengths)
    left_out = (
        ~(empty | too_long) & bool(config.train_max_tokens) & (longest > config.train_max_tokens)
    )
    usable = np.flatnonzero(~(empty | too_long | left_out))
    dropped = {
        "empty": int(empty.sum()),
        "too_long": int(too_long.sum()),
        "left_out": int(left_out.sum()),
    }
    _log.info(
        "%s training pairs; dropped: %s empty, %s longer than data.source_length=%d or "
        "data.target_length=%d",
        f"{len(usable):,}",
        f"{dropped['empty']:,}",
        f"{dropped['too_long']:,}",
        config.source_length,
        config.target_length,
    )
    if config.train_max_tokens:
        _log.info(
            "left out: %s longer than data.train_max_tokens=%d",
            f"{dropped['left_out']:,}",
            config.train_max_tokens,
        )
    if not len(usable):
        raise config_lib.UserError("no training pair is left once empty and long ones are dropped")
    return Dataset(
        tokenizer,
        source,
        target,
        usable,
        corpus.dev,
        corpus.test,
        digests={"corpus": corpus.digest, "tokenizer": tokenizer.digest},
        provenance={**corpus.provenance, "dropped": dropped},
    )


def longest(dataset: Dataset) -> tuple[int, int]:
    """Tokens of the longest development or test source, and reference, with their end tokens."""
    sides = (dataset.dev.source + dataset.test.source, dataset.dev.target + dataset.test.target)
    source, target = (1 + max(map(len, dataset.tokenizer.encode(side))) for side in sides)
    return source, target


def _encoded(
    corpus: corpus_lib.Corpus, tokenizer: tokenizer_lib.Tokenizer, cache_dir: pathlib.Path
) -> tuple[TokenLists, TokenLists]:
    """The encoded training set, memory-mapped from the cache, which is filled first if need be."""
    key = hashlib.sha256(f"{corpus.train_digest} {tokenizer.digest}".encode()).hexdigest()[:16]
    folder = cache_dir / f"tokens-{key}"
    if not folder.exists():
        temporary = pathlib.Path(tempfile.mkdtemp(dir=cache_dir, prefix=".tokens-"))
        try:
            _write_tokens(temporary / "source", tokenizer.encode(corpus.train.source))
            _write_tokens(temporary / "target", tokenizer.encode(corpus.train.target))
            temporary.chmod(0o755)
            temporary.rename(folder)
        except OSError:
            if not folder.exists():  # otherwise another process was first, with the same content
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return _read_tokens(folder / "source"), _read_tokens(folder / "target")


def _write_tokens(stem: pathlib.Path, lists: Sequence[Sequence[int]]) -> None:
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    ids = np.fromiter((i for tokens in lists for i in tokens), np.int32, int(lengths.sum()))
    np.save(f"{stem}-ids.npy", ids)
    np.save(f"{stem}-offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))


def _read_tokens(stem: pathlib.Path) -> TokenLists:
    return TokenLists(
        np.load(f"{stem}-ids.npy", mmap_mode="r"), np.load(f"{stem}-offsets.npy", mmap_mode="r")
    )
