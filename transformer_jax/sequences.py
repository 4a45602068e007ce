"""The one form in which sentences reach the model: rows of packed segments."""

from typing import Any, NamedTuple

from jaxtyping import Int


class Sequences(NamedTuple):
    """Rows of tokens in which several sentences may stand one after another.

    The arrays are NumPy's until they are put on devices.
    """

    tokens: Int[Any, "B T"]  # vocabulary ids; 0 where there is no token
    segments: Int[Any, "B T"]  # 1, 2, … for the first, second, … sentence of a row; 0 is padding
    positions: Int[Any, "B T"]  # 0, 1, … within each sentence


class Batch(NamedTuple):
    """Sentence pairs for teacher forcing; segment k of a source row belongs to target segment k."""

    source: Sequences  # the source sentences, each with its EOS
    target: Sequences  # the decoder's input: the target shifted right by one, each after its BOS
    labels: Int[Any, "B T"]  # what follows each target position, up to EOS; 0 does not count
