"""Inputs of models: rows of packed sentences."""

from typing import Any, NamedTuple

from jaxtyping import Int


class Sequences(NamedTuple):
    """Rows of token ids; each row holds one or several sentences.

    The arrays are NumPy arrays until `sharding.put` transfers them to devices.
    """

    tokens: Int[Any, "B T"]  # vocabulary ids; 0 is padding
    segments: Int[Any, "B T"]  # number of the sentence in its row, from 1; 0 is padding
    positions: Int[Any, "B T"]  # 0, 1, … within each sentence


class Batch(NamedTuple):
    """Sentence pairs for teacher forcing.

    Segment k of a source row and segment k of the same target row are a pair.
    """

    source: Sequences  # the source sentences, each with its EOS
    target: Sequences  # the decoder's input: BOS and the target sentence, for each pair
    labels: Int[Any, "B T"]  # the token after each target position, up to EOS; 0 does not count
