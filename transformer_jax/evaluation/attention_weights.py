"""Where a model attends: the weights of every layer and head, for one sentence pair.

Any module takes part that sows its weights, of shape (B, H, T, S), under the name "weights" in the
collection "intermediates"; an architecture needs nothing else for its attention to be shown.
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

# What a map of each kind shows, and how to read it.
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
    """One kind of attention, in all of the model's N layers; each row of weights sums to 1.

    In the decoder a row is the token being written there, which the model does not know yet: row t
    of its own map reads columns 0 to t. Its columns begin with BOS, so that column t is the token
    written just before row t.
    """

    # "encoder" or "decoder", each to itself, "cross", the decoder to the encoder, or "joint", to
    # itself a decoder that reads the source too
    kind: str
    weights: Float[np.ndarray, "layers H T S"]  # how much each row takes from each column
    rows: list[str]  # the tokens that attend
    columns: list[str]  # the tokens that are read


def collect(
    translator: translator_lib.Translator,
    source: str | None,
    target: str | None = None,
    to: str = "",
) -> list[Maps]:
    """The weights with which a trained model reads a sentence and writes its translation.

    The target may be any translation; None: the model's own, as beam search finds it, into the
    language `to` where it knows several. A model of text alone has a target and no source (None).
    There is one element for each kind of attention that the model has, the encoder's first.

    Raises:
      UserError: a sentence is empty, not given, or too long for learned positions, the model does
        not know the language, or it has no attention.
    """
    config = translator.config.model
    source_ids, target = _sides(translator, source, target, to)
    target_ids = _encode(config, "target", target, translator.tokenizer.encode)
    target_length, source_length = len(target_ids) + 1, len(source_ids) + 1
    if translator.model.one_sequence:
        _require_positions(config, "pair has", source_length + target_length - 1)
    # One position of padding where these are equal: a map's shape then says what attends to what.
    target_length += source_length == target_length
    batch = batching.fill([[(source_ids, target_ids)]], source_length, target_length)
    found = sown(translator.model, translator.params, batch).values()
    read, written, before = (
        # A space as "_" is lighter to the eye than SentencePiece's U+2581.
        [piece.replace("\u2581", "_") for piece in translator.pieces(ids)]
        for ids in (
            [*source_ids, tokenizer_lib.EOS],
            [*target_ids, tokenizer_lib.EOS],
            [tokenizer_lib.BOS, *target_ids],
        )
    )
    maps = []
    for kind, shape, rows, columns in (
        ("encoder", (source_length, source_length), read, read),
        ("decoder", (target_length, target_length), written, before),
        ("cross", (target_length, source_length), written, read),
        ("joint", (source_length + target_length,) * 2, [*read, *written], [*read, *before]),
    ):
        layers = [x[0, :, : len(rows), : len(columns)] for x in found if x.shape[2:] == shape]
        if layers:
            maps.append(Maps(kind, np.stack(layers), rows, columns))
    if not maps:
        raise _no_attention(config)
    return maps


def _sides(
    translator: translator_lib.Translator, source: str | None, target: str | None, to: str
) -> tuple[list[int], str]:
    """The source's ids, none where the model reads none, and the target; raises as `collect`."""
    if not translator.config.data.source_language:
        if source is not None or target is None or to:
            raise errors.UserError("this model reads no source: give --target, and it alone")
        return [], target
    if source is None:
        raise errors.UserError("give a sentence: --source")
    encode = functools.partial(translator.encode, to=to)
    source_ids = _encode(translator.config.model, "source", source, encode)
    if target is None:
        (target,) = translator.translate([source], to=to)
        if not target:
            raise errors.UserError("the model translates this source to nothing: give a target")
    return source_ids, target


def of_text(
    model: interface.Architecture,
    params: Any,
    tokenizer: tokenizer_lib.Tokenizer,
    config: config_lib.ModelConfig,
    sentences: Sequence[str],
) -> list[Maps]:
    """The weights with which a model of whole texts reads one of one or two sentences.

    Raises:
      UserError: as `collect`.
    """
    if not sentences:
        raise errors.UserError("give one sentence or two: --source, --target")
    ids = [_encode(config, "given", sentence, tokenizer.encode) for sentence in sentences]
    text = [token for each in ids for token in (tokenizer_lib.EOS, *each)][1:]
    _require_positions(config, "sentences have", len(text))
    batch = batching.fill([[((), text)]], 1, len(text) + 1)
    found = sown(model, params, batch).values()
    pieces = tokenizer.pieces([tokenizer_lib.BOS, *text])
    words = [piece.replace("\u2581", "_") for piece in pieces]
    if not found:
        raise _no_attention(config)
    return [Maps("encoder", np.stack([x[0] for x in found]), words, words)]


def _no_attention(config: config_lib.ModelConfig) -> errors.UserError:
    return errors.UserError(f"model.architecture={config.architecture} has no attention to show")


def sown(
    model: interface.Architecture, params: Any, batch: sequences.Batch
) -> dict[str, Float[np.ndarray, "B H _ _"]]:
    """All attention weights of a forward pass without dropout, by the path of their module.

    Paths are in the order of their numbers: layer 10 comes after layer 9. A module that is used
    more than once has a path for each use.
    """

    @jax.jit
    def forward(params: Any, batch: sequences.Batch) -> Any:
        _, found = model.apply(params, batch.source, batch.target, mutable=["intermediates"])
        return found

    found: dict[str, Any] = traverse_util.flatten_dict(
        forward(params, batch).get("intermediates", {}), sep="/"
    )
    weights = {
        f"{name.removesuffix('weights')}{use}": np.asarray(array, np.float32)
        for name, uses in found.items()
        if name.split("/")[-1] == "weights"
        for use, array in enumerate(uses)
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
    """A sentence's ids; a UserError if there are none, or more than there are positions."""
    ids = encode([sentence])[0]
    if not sentence.strip() or not ids:
        raise errors.UserError(f"the {side} sentence is empty")
    _require_positions(config, f"{side} sentence has", len(ids))
    return ids


def _require_positions(config: config_lib.ModelConfig, what: str, tokens: int) -> None:
    """Raises UserError if learned positions do not reach so far, and one token farther."""
    if positions.KINDS[config.position].bounded and tokens >= config.max_positions:
        raise errors.UserError(
            f"the {what} {tokens} tokens, but this model's learned positions "
            f"(model.max_positions={config.max_positions}) allow at most {config.max_positions - 1}"
        )
