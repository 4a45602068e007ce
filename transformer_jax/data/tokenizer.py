"""Tokenizers with one vocabulary for all languages: SentencePiece BPE, or UTF-8 bytes.

Text is not normalised, and spaces are kept; characters outside a BPE model are encoded as bytes.
Decoding therefore restores every sentence, except that U+2581, SentencePiece's space, becomes a
space. The vocabulary of bytes is ByT5's (Xue et al. 2022).
"""

import abc
import hashlib
import io
import json
import logging
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import sentencepiece

from transformer_jax import errors, files
from transformer_jax.data import corpus as corpus_lib

_log = logging.getLogger(__name__)

PAD, BOS, EOS, UNK = 0, 1, 2, 3  # ids of the special tokens in all vocabularies
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")  # their names
SMALLEST = len(SPECIAL) + 256 + 1  # smallest vocabulary: special tokens, bytes and one piece
_SPACE = "\u2581"  # a space in pieces

_VISIBLE = {ord(" "): _SPACE, **{code: chr(code) for code in range(ord("!"), 0x7F)}}
_BYTES = (*SPECIAL, *(_VISIBLE.get(byte, f"<0x{byte:02X}>") for byte in range(256)))

SETTINGS: dict[str, Any] = {  # options of the SentencePiece trainer
    "model_type": "bpe",
    "character_coverage": 0.9999,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "max_sentence_length": 1 << 20,
    "pad_id": PAD,
    "bos_id": BOS,
    "eos_id": EOS,
    "unk_id": UNK,
    "num_threads": 1,
    "minloglevel": 2,
}


class Tokenizer(abc.ABC):
    """A mapping between sentences and lists of ids."""

    def __init__(self, model: bytes, vocab_size: int) -> None:
        self.model = model  # the serialised model, for `read`
        self.vocab_size = vocab_size  # including special tokens
        self.digest = hashlib.sha256(model).hexdigest()

    @abc.abstractmethod
    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each sentence's tokens, without BOS and EOS."""

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each line's tokens, as `encode` does, and [] for a blank line."""
        return self.encode([line if line.strip() else "" for line in lines])

    @abc.abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the text of each id.

        A space is shown as U+2581, and a byte in hexadecimal, such as `<0x0A>`.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each list of ids, without special tokens.

        Bytes that are not valid UTF-8 are decoded as U+FFFD.
        """


@final
class PieceTokenizer(Tokenizer):
    """The tokenizer of a serialised SentencePiece model."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise errors.UserError(f"this is not a SentencePiece model: {error}") from error
        super().__init__(model, self._processor.vocab_size())

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        return self._processor.EncodeAsIds(list(sentences))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self._processor.IdToPiece(list(map(int, ids)))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        rows = [list(map(int, row)) for row in ids]
        return self._processor.DecodeIds(rows) if rows else []  # DecodeIds([]) returns one text


@final
class ByteTokenizer(Tokenizer):
    """A tokenizer of UTF-8 bytes: byte b is token 4 + b (in ByT5, 3 + b)."""

    MODEL = b"transformer_jax: PAD, BOS, EOS, UNK, then byte b as token 4 + b\n"

    def __init__(self) -> None:
        super().__init__(self.MODEL, len(SPECIAL) + 256)

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        return [[len(SPECIAL) + byte for byte in sentence.encode()] for sentence in sentences]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [_BYTES[token] for token in ids]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        first, end = len(SPECIAL), self.vocab_size
        rows = (bytes(token - first for token in row if first <= token < end) for row in ids)
        return [row.decode(errors="replace") for row in rows]


def train(sentences: Iterable[str], vocab_size: int, symbols: Sequence[str] = ()) -> bytes:
    """Trains a SentencePiece model.

    Args:
      sentences: sentences of all languages.
      vocab_size: number of pieces, including special tokens, bytes and symbols.
      symbols: words that become one piece each, together with the space before the word.

    Returns:
      The serialised model.

    Raises:
      UserError: SentencePiece fails, for example because the corpus is too small.
    """
    if vocab_size < SMALLEST:
        raise errors.UserError(
            f"data.vocab_size={vocab_size:,} should be at least {SMALLEST}: 256 bytes, 4 special "
            "tokens and a piece"
        )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            vocab_size=vocab_size,
            user_defined_symbols=[f"{_SPACE}{symbol}" for symbol in symbols],
            **SETTINGS,
        )
    except RuntimeError as error:
        limit = re.search(r"value <= (\d+)", str(error))
        if limit:
            raise errors.UserError(
                f"the training set is too small for data.vocab_size={vocab_size:,}: "
                f"it yields at most {int(limit[1]):,} pieces; give more text or a smaller size"
            ) from error
        if "smaller than required_chars" in str(error):
            raise errors.UserError(
                f"data.vocab_size={vocab_size:,} is less than the corpus's characters, 256 bytes "
                "and 4 special tokens together: choose a larger one"
            ) from error
        raise errors.UserError(
            f"SentencePiece finds no vocabulary in the training set: {' '.join(str(error).split())}"
        ) from error
    return model.getvalue()


def cached(
    pairs: corpus_lib.PairSource,
    vocab_size: int,
    most_pairs: int,
    corpus_digest: str,
    cache_dir: pathlib.Path,
    symbols: Sequence[str] = (),
) -> Tokenizer:
    """Returns the tokenizer of a corpus from the cache; if it is not there, trains and caches it.

    Args:
      pairs: the training pairs. They are read only if the tokenizer is not in the cache.
      vocab_size: number of pieces.
      most_pairs: the greatest number of pairs to train on; they are evenly spread over all pairs.
      corpus_digest: a digest of the training pairs. The name of the tokenizer's file contains a
        hash of this digest and of the settings.
      cache_dir: the folder of the cache.
      symbols: words that become one piece each, together with the space before the word.

    Raises:
      UserError: the corpus is too small, or the model in the cache is damaged.
    """
    every = -(-len(pairs) // most_pairs)
    settings = [corpus_digest, every, vocab_size, SETTINGS]
    if symbols:
        settings.append(list(symbols))
    key = json.dumps(settings, sort_keys=True)
    path = cache_dir / f"tokenizer-{hashlib.sha256(key.encode()).hexdigest()[:16]}.model"
    if not path.exists():
        number = -(-len(pairs) // every)
        _log.info(f"training a tokenizer of {vocab_size:,} pieces on {number:,} pairs")
        sentences = (pair[side] for side in (0, 1) for pair in pairs.read(every=every))
        files.write(path, train(sentences, vocab_size, symbols))
    tokenizer = read(path, "delete it, and it is trained again")
    if tokenizer.vocab_size != vocab_size:
        raise errors.UserError(
            f"{path} has {tokenizer.vocab_size:,} pieces, not {vocab_size:,}: delete it, and it is "
            "trained again"
        )
    return tokenizer


def read(path: files.Path, remedy: str) -> Tokenizer:
    """Reads a tokenizer from a file; raises UserError with the remedy if the file is damaged."""
    try:
        model = path.read_bytes()
        return ByteTokenizer() if model == ByteTokenizer.MODEL else PieceTokenizer(model)
    except (OSError, errors.UserError) as error:
        raise errors.UserError(f"cannot read {path} ({error}): {remedy}") from error


# Functions that return a tokenizer, by the value of data.vocabulary. Their arguments are those of
# `cached`.
VOCABULARIES: dict[str, Callable[..., Tokenizer]] = {
    "bpe": cached,
    "bytes": lambda *_: ByteTokenizer(),
}
