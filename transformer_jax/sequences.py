"""The one form in which sentences reach the model: rows of packed segments."""

from typing import Any, NamedTuple

from jaxtyping import Int


class Sequences(NamedTuple):
    """Rows of tokens in which several sentences may stand one after another.

    The arrays are NumPy's until they are put on devices.

    Attributes:
      tokens: vocabulary ids; 0 where there is no token.
      segments: 1, 2, … for the first, second, … sentence of a row; 0 is padding.
      positions: 0, 1, … within each sentence.
    """

    tokens: Int[Any, "B T"]
    segments: Int[Any, "B T"]
    positions: Int[Any, "B T"]


class Batch(NamedTuple):
    """Sentence pairs for teacher forcing; segment k of a source row belongs to target segment k.

    Attributes:
      source: the source sentences, each with its end token.
      target: the decoder's input: the target sentences shifted right by one, each beginning
        with the start token.
      labels: what the decoder should say at each target position: the target sentences, each
        with its end token; 0 at padding.
    """

    source: Sequences
    target: Sequences
    labels: Int[Any, "B T"]
