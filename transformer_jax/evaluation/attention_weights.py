"""Where a model attends: the weights of every layer and head, for one sentence pair.

Any module takes part that sows its weights, of shape (B, H, T, S), under the name "weights" in the
collection "intermediates"; an architecture needs nothing else for its attention to be shown.
"""

import dataclasses
import re
from typing import Any

import jax
import numpy as np
from flax import traverse_util
from jaxtyping import Float

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
}


@dataclasses.dataclass(frozen=True)
class Maps:
    """One kind of attention, in all of the model's N layers; each row of weights sums to 1.

    In the decoder a row is the token being written there, which the model does not know yet: row t
    of its own map reads columns 0 to t. Its columns begin with BOS, so that column t is the token
    written just before row t.
    """

    kind: str  # "encoder" or "decoder", each to itself, or "cross", the decoder to the encoder
    weights: Float[np.ndarray, "layers H T S"]  # how much each row takes from each column
    rows: list[str]  # the tokens that attend
    columns: list[str]  # the tokens that are read


def collect(
    translator: translator_lib.Translator, source: str, target: str | None = None
) -> list[Maps]:
    """The weights with which a trained model reads a sentence and writes its translation.

    The target may be any translation; None: the model's own, as beam search finds it. There is one
    element for each kind of attention that the model has, the encoder's first.

    Raises:
      UserError: a sentence is empty or too long for learned positions, or the model has no
        attention.
    """
    source_ids = _encode(translator, "source", source)
    if target is None:
        target = translator.translate([source])[0]
        if not target:
            raise errors.UserError("the model translates this source to nothing: give a target")
    target_ids = _encode(translator, "target", target)
    target_length, source_length = len(target_ids) + 1, len(source_ids) + 1
    # One position of padding where these are equal: a map's shape then says what attends to what.
    source_length += source_length == target_length
    batch = batching.fill([[(source_ids, target_ids)]], source_length, target_length)
    found = sown(translator.model, translator.params, batch).values()
    read, written, before = (
        # A space as "_" is lighter to the eye than SentencePiece's U+2581.
        [piece.replace("\u2581", "_") for piece in translator.tokenizer.pieces(ids)]
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
    ):
        layers = [x[0, :, : len(rows), : len(columns)] for x in found if x.shape[2:] == shape]
        if layers:
            maps.append(Maps(kind, np.stack(layers), rows, columns))
    if not maps:
        raise errors.UserError(
            f"model.architecture={translator.config.model.architecture} has no attention to show"
        )
    return maps


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
    return {name: weights[name] for name in sorted(weights, key=_by_numbers)}


def _by_numbers(name: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _encode(translator: translator_lib.Translator, side: str, sentence: str) -> list[int]:
    """A sentence's ids; a UserError if there are none, or more than there are positions."""
    try:
        sentence.encode()
    except UnicodeEncodeError as error:  # bytes of the command line that are no text
        raise errors.UserError(f"the {side} sentence is not UTF-8") from error
    ids = translator.tokenizer.encode([sentence])[0]
    if not sentence.strip() or not ids:
        raise errors.UserError(f"the {side} sentence is empty")
    config = translator.config.model
    if positions.KINDS[config.position].bounded and len(ids) >= config.max_positions:
        raise errors.UserError(
            f"the {side} sentence has {len(ids)} tokens, but this model's learned positions "
            f"(model.max_positions={config.max_positions}) allow at most {config.max_positions - 1}"
        )
    return ids
