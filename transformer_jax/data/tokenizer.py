"""One SentencePiece BPE model for both languages, trained once per corpus and settings.

Text is taken as it is: no Unicode normalisation, no collapsing of spaces; characters outside the
vocabulary are spelt in bytes. So every sentence survives encoding and decoding, but for U+2581,
which SentencePiece uses for a space and which comes back as one.
"""

import hashlib
import io
import json
import logging
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, final

import sentencepiece

from transformer_jax import errors, files
from transformer_jax.data import corpus as corpus_lib

_log = logging.getLogger(__name__)

PAD, BOS, EOS, UNK = 0, 1, 2, 3  # vocabulary ids that every model of ours has
SMALLEST = 4 + 256 + 1  # vocabulary: special tokens, bytes and one piece

SETTINGS: dict[str, Any] = {  # of the SentencePiece trainer
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


@final
class Tokenizer:
    """Turns sentences into vocabulary ids and back; its digest is the SHA-256 of its model."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.digest = hashlib.sha256(model).hexdigest()
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise errors.UserError(f"this is not a SentencePiece model: {error}") from error

    @property
    def vocab_size(self) -> int:
        """Number of pieces, special ones included."""
        return self._processor.vocab_size()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of each sentence's pieces, without BOS or EOS."""
        return self._processor.EncodeAsIds(list(sentences))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for; U+2581 is a space, `<0x41>` a byte."""
        return self._processor.IdToPiece(list(map(int, ids)))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each list of ids; special tokens are left out."""
        rows = [list(map(int, row)) for row in ids]
        return self._processor.DecodeIds(rows) if rows else []  # of no list it makes one text


def train(sentences: Iterable[str], vocab_size: int) -> bytes:
    """Trains a SentencePiece model, serialised, on sentences of both languages.

    The vocabulary's size includes the special tokens and the 256 bytes.

    Raises:
      UserError: the corpus is too small for this vocabulary.
    """
    if vocab_size < SMALLEST:
        raise errors.UserError(
            f"data.vocab_size={vocab_size:,} should be at least {SMALLEST}: 256 bytes, 4 special "
            "tokens and a piece"
        )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(sentences), model_writer=model, vocab_size=vocab_size, **SETTINGS
        )
    except RuntimeError as error:
        limit = re.search(r"value <= (\d+)", str(error))
        if limit:
            raise errors.UserError(
                f"the training set is too small for data.vocab_size={vocab_size:,}: "
                f"it yields at most {int(limit[1]):,} pieces"
            ) from error
        if "smaller than required_chars" in str(error):
            raise errors.UserError(
                f"data.vocab_size={vocab_size:,} is less than the corpus's characters, 256 bytes "
                "and 4 special tokens together: choose a larger one"
            ) from error
        raise
    return model.getvalue()


def cached(
    pairs: corpus_lib.PairSource,
    vocab_size: int,
    most_pairs: int,
    corpus_digest: str,
    cache_dir: pathlib.Path,
) -> Tokenizer:
    """The tokenizer of a corpus, from the cache or trained now.

    It is trained on most_pairs at most, evenly spread over all; they are read only if the model is
    not in the cache, where a hash of the corpus's digest and the settings is its name.

    Raises:
      UserError: the corpus is too small, or the model in the cache is damaged.
    """
    every = -(-len(pairs) // most_pairs)
    key = json.dumps([corpus_digest, every, vocab_size, SETTINGS], sort_keys=True)
    path = cache_dir / f"tokenizer-{hashlib.sha256(key.encode()).hexdigest()[:16]}.model"
    if not path.exists():
        _log.info(
            "training a tokenizer of %s pieces on %s pairs",
            f"{vocab_size:,}",
            f"{-(-len(pairs) // every):,}",
        )
        sentences = (pair[side] for side in (0, 1) for pair in pairs.read(every=every))
        files.write(path, train(sentences, vocab_size))
    tokenizer = read(path, "delete it, and it is trained again")
    if tokenizer.vocab_size != vocab_size:
        raise errors.UserError(
            f"{path} has {tokenizer.vocab_size:,} pieces, not {vocab_size:,}: delete it, and it is "
            "trained again"
        )
    return tokenizer


def read(path: files.Path, remedy: str) -> Tokenizer:
    """A tokenizer from its file.

    Raises:
      UserError: it cannot be read or is damaged; the message ends with the remedy.
    """
    try:
        return Tokenizer(path.read_bytes())
    except (OSError, errors.UserError) as error:
        raise errors.UserError(f"cannot read {path} ({error}): {remedy}") from error
