"""Attention weights of all layers and heads of a model, for one sentence pair.

Modules sow their weights, of shape (B, H, T, S), as "weights" into the collection "intermediates".
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import traverse_util
from jaxtyping import Float

from transformer_jax import config as config_lib
from transformer_jax import errors, sequences
from transformer_jax.data import batching
from transformer_jax.data import tokenizer as tokenizer_lib
from transformer_jax.decoding import translator as translator_lib
from transformer_jax.models import interface, positions

# Title and legend of the maps of each kind.
CAPTIONS = {
    "encoder": (
        "Encoder self-attention",
        "row: a token of the source; columns: the tokens of the source that it reads",
    ),
    "decoder": (
        "Decoder self-attention",
        "row: the token being written; columns: the tokens written before, which it reads",
    ),
    "cross": (
        "Decoder to encoder attention",
        "row: the token being written; columns: the tokens of the source that it reads",
    ),
    "joint": (
        "Self-attention over source and target",
        "row: a token of the source, or the one being written; columns: the tokens of the source, "
        "then those written before",
    ),
}


@dataclasses.dataclass(frozen=True)
class Maps:
    """The attention weights of all layers for one kind of attention, such as cross-attention.

    Each row has the weights of one query, which sum to 1. A row of a decoder is labelled with the
    token that is predicted there. The columns of a decoder's self-attention begin with BOS: column
    t is the token before the token of row t, and row t reads columns 0 to t.
    """

    # "encoder" and "decoder": self-attention; "cross": attention of the decoder to the encoder;
    # "joint": self-attention of a decoder-only model over source and target
    kind: str
    weights: Float[np.ndarray, "layers H T S"]
    rows: list[str]  # tokens of the queries
    columns: list[str]  # tokens of the keys


def _labels(translator: translator_lib.Translator, ids: list[int]) -> list[str]:
    # "_" is easier to read than U+2581, SentencePiece's space.
    return [piece.replace("\u2581", "_") for piece in translator.pieces(ids)]


def collect(
    translator: translator_lib.Translator,
    source: str | None,
    target: str | None = None,
    to: str = "",
) -> list[Maps]:
    """Returns the attention weights of a trained model for a sentence and its translation.

    Args:
      translator: the trained model.
      source: the source sentence; None for a language model.
      target: the translation of the source; None: the model translates the source.
      to: the language into which the model translates; "": that of its main direction.

    Returns:
      Maps of each kind of attention that the model has.

    Raises:
      UserError: a sentence is missing, empty or too long for learned positions; the model does not
        know the language; or the model has no attention.
    """
    config = translator.config.model
    source_ids, target = _sides(translator, source, target, to)
    target_ids = _encode(config, "target", target, translator.tokenizer.encode)
    target_length, source_length = len(target_ids) + 1, len(source_ids) + 1
    if translator.model.one_sequence:
        _require_positions(config, "pair has", source_length + target_length - 1)
    # A position of padding makes the lengths differ, so that shapes tell kinds of attention apart.
    if source_length == target_length:
        target_length += 1
    batch = batching.fill([[(source_ids, target_ids)]], source_length, target_length)
    all_weights = sown(translator.model, translator.params, batch).values()
    read = _labels(translator, [*source_ids, tokenizer_lib.EOS])
    written = _labels(translator, [*target_ids, tokenizer_lib.EOS])
    before = _labels(translator, [tokenizer_lib.BOS, *target_ids])
    maps = []
    for kind, shape, rows, columns in (
        ("encoder", (source_length, source_length), read, read),
        ("decoder", (target_length, target_length), written, before),
        ("cross", (target_length, source_length), written, read),
        ("joint", (source_length + target_length,) * 2, [*read, *written], [*read, *before]),
    ):
        layers = [
            weights[0, :, : len(rows), : len(columns)]
            for weights in all_weights
            if weights.shape[2:] == shape
        ]
        if layers:
            maps.append(Maps(kind, np.stack(layers), rows, columns))
    if not maps:
        raise _no_attention(config)
    return maps


def _sides(
    translator: translator_lib.Translator, source: str | None, target: str | None, to: str
) -> tuple[list[int], str]:
    """Returns the ids of the source, and the text of the target.

    A language model has no source, so that its ids are empty. A target of None is replaced by the
    model's translation.

    Raises:
      UserError: a sentence is missing, empty or too long, or does not suit the model.
    """
    if not translator.config.data.source_language:
        if source is not None or target is None or to:
            raise errors.UserError("this model reads no source: give --target alone")
        return [], target
    if source is None:
        raise errors.UserError("no sentence is given: give --source")
    encode = functools.partial(translator.encode, to=to)
    source_ids = _encode(translator.config.model, "source", source, encode)
    if target is None:
        (target,) = translator.translate([source], to=to)
        if not target:
            raise errors.UserError("the model's translation of this source is empty: give --target")
    return source_ids, target


def of_text(
    model: interface.Architecture,
    params: Any,
    tokenizer: tokenizer_lib.Tokenizer,
    config: config_lib.ModelConfig,
    sentences: Sequence[str],
) -> list[Maps]:
    """Returns the attention weights of an encoder-only model for a text of one or two sentences.

    Raises:
      UserError: a sentence is missing, empty or too long for learned positions; or the model has no
        attention.
    """
    if not sentences:
        raise errors.UserError("no sentence is given: give --source, or --source and --target")
    ids = [_encode(config, "given", sentence, tokenizer.encode) for sentence in sentences]
    text = [token for sentence in ids for token in (tokenizer_lib.EOS, *sentence)][1:]
    _require_positions(config, "sentences have", len(text))
    batch = batching.fill([[((), text)]], 1, len(text) + 1)
    layers = [weights[0] for weights in sown(model, params, batch).values()]
    if not layers:
        raise _no_attention(config)
    pieces = tokenizer.pieces([tokenizer_lib.BOS, *text])
    tokens = [piece.replace("\u2581", "_") for piece in pieces]
    return [Maps("encoder", np.stack(layers), tokens, tokens)]


def _no_attention(config: config_lib.ModelConfig) -> errors.UserError:
    return errors.UserError(f"model.architecture={config.architecture} has no attention to show")


def sown(
    model: interface.Architecture, params: Any, batch: sequences.Batch
) -> dict[str, Float[np.ndarray, "B H _ _"]]:
    """Returns the attention weights of a forward pass without dropout, by module path.

    Paths are sorted with numbers in numerical order: layer 10 comes after layer 9. If a module is
    called several times, the result has a path for each call.
    """

    @jax.jit
    def forward(params: Any, batch: sequences.Batch) -> Any:
        _, variables = model.apply(params, batch.source, batch.target, mutable=["intermediates"])
        return variables

    intermediates: dict[str, Any] = traverse_util.flatten_dict(
        forward(params, batch).get("intermediates", {}), sep="/"
    )
    weights = {
        f"{name.removesuffix('weights')}{call}": np.asarray(array, np.float32)
        for name, calls in intermediates.items()
        if name.split("/")[-1] == "weights"
        for call, array in enumerate(calls)
    }

    def by_numbers(name: str) -> list[str | int]:
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

    return {name: weights[name] for name in sorted(weights, key=by_numbers)}


def _encode(
    config: config_lib.ModelConfig,
    side: str,
    sentence: str,
    encode: Callable[[list[str]], list[list[int]]],
) -> list[int]:
    """Returns a sentence's ids; raises UserError if it is empty or has too many tokens."""
    ids = encode([sentence])[0]
    if not sentence.strip() or not ids:
        raise errors.UserError(f"the {side} sentence is empty")
    _require_positions(config, f"{side} sentence has", len(ids))
    return ids


def _require_positions(config: config_lib.ModelConfig, what: str, tokens: int) -> None:
    """Raises UserError if learned positions do not cover the tokens and BOS or EOS.

    Args:
      config: the model's config.
      what: the subject and verb of the error message, such as "pair has".
      tokens: the number of tokens, without BOS and EOS.
    """
    if positions.KINDS[config.position].bounded and tokens >= config.max_positions:
        raise errors.UserError(
            f"the {what} {tokens} tokens, but this model's learned positions "
            f"(model.max_positions={config.max_positions}) allow at most {config.max_positions - 1}"
        )
