"""Base classes of architectures: the methods that training, evaluation and decoding call.

Training and evaluation call an `Architecture` for its output at each target position. The logits
are the products of these outputs and the architecture's embedding (`embedding.of`). A `Decoder`
also generates sentences, one position after another. BERT is an `Architecture` but not a `Decoder`.
A decoder-only model reads the source, if there is one, as its prompt.

The docstring of the module `attention` explains the letters in shapes. To add an architecture,
write its class and its line in `models.ARCHITECTURES`.
"""

import abc
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax import sequences
from transformer_jax.models import dropout

# The fields of `ModelConfig` that every architecture uses.
COMMON = frozenset({"architecture", "num_layers", "d_model", "dropout_rate", "compute_dtype"})


@runtime_checkable
class DecodingState(Protocol):
    """The state that decoding one position needs from earlier positions and from the source.

    It is a pytree of arrays whose first axis is the batch.
    """

    def select(self, parents: Int[Array, "B W"]) -> "DecodingState":
        """Returns a state in which hypothesis parents[b, w] is hypothesis w of sentence b."""
        ...

    def lengthened(self, length: int) -> "DecodingState":
        """Returns the state with room for `length` target positions, decoded ones included."""
        ...


class Source(NamedTuple):
    """Keys and values of the source for single-head attention."""

    keys: Float[Array, "B S D"]
    values: Float[Array, "B S D"]
    mask: Bool[Array, "B #T S"]  # true where a target position may attend

    def weights(self, scores: Float[Array, "B T S"]) -> Float[Array, "B T S"]:
        """Returns the softmax of scores over the positions that the mask allows, in float32."""
        scores = scores.astype(jnp.float32)
        return jax.nn.softmax(jnp.where(self.mask, scores, jnp.finfo(jnp.float32).min))


class FixedSizeState(NamedTuple):
    """A decoding state whose size does not depend on the number of target positions."""

    caches: Any  # a pytree of arrays B W _
    source: Source

    def select(self, parents: Int[Array, "B W"]) -> "FixedSizeState":
        index = parents[:, :, None]
        return self._replace(
            caches=jax.tree.map(lambda x: jnp.take_along_axis(x, index, axis=1), self.caches)
        )

    def lengthened(self, length: int) -> "FixedSizeState":
        return self


class Predictions(NamedTuple):
    """A model's outputs under teacher forcing, with the label that each output predicts."""

    outputs: Float[Array, "B T D"]
    labels: Int[Array, "B T"]
    segments: Int[Array, "B T"]  # 0 where the output and its label do not count


class Architecture(nn.Module, abc.ABC):
    """Base class of models that can be trained and evaluated.

    The parameter "embedding" (`embedding.make`) has a vector for each token. Attention weights, if
    the model has any, are sown under the name "weights"; `evaluation.attention_weights` reads them.
    """

    config: config_lib.ModelConfig  # its sizes and kinds
    vocab_size: int  # V

    # The fields of `ModelConfig` that the architecture uses. Setting any other field is an error
    # (`models.require_used`).
    uses: ClassVar[frozenset[str]] = COMMON
    # Whether positions of the target continue those of the source; otherwise they start from 0.
    one_sequence: ClassVar[bool] = False
    # Whether a position sees the token at that position, and can therefore be trained to predict
    # this token only if it is masked.
    needs_masks: ClassVar[bool] = True

    # Linen hashes each architecture by its fields; type checkers do not know that.
    __hash__ = object.__hash__

    @staticmethod
    def check(config: config_lib.ModelConfig) -> None:
        """Raises UserError if sizes in the config do not suit the architecture.

        `models.build` has already checked that names in the config, such as that of the norm, are
        known.
        """

    @abc.abstractmethod
    def __call__(
        self,
        source: sequences.Sequences,
        target: sequences.Sequences,
        rates: dropout.Rates = dropout.NONE,
    ) -> Float[Array, "B T D"]:
        """Returns the output at each target position, under teacher forcing.

        Segment k of a source row belongs to segment k of the target row. The target of a `Decoder`
        is shifted right by one, and the output at a position predicts the following token. Any
        other architecture may read the whole target, and its output at a position predicts the
        token at that position. With dropout, `apply` needs a "dropout" key in its `rngs`.
        """

    def predict(self, batch: sequences.Batch, rates: dropout.Rates = dropout.NONE) -> Predictions:
        """Returns the outputs that a batch's loss is computed from, with their labels."""
        outputs = self(batch.source, batch.target, rates)
        return Predictions(outputs, batch.labels, batch.target.segments)


class Decoder(Architecture):
    """An architecture that generates sentences, several hypotheses of each at a time."""

    @abc.abstractmethod
    def prefill(self, source: sequences.Sequences, width: int, max_length: int) -> DecodingState:
        """Returns the state before the first target position, with room for max_length positions.

        Each row of the source holds one sentence, of which `width` hypotheses are decoded.
        """

    @abc.abstractmethod
    def decode_step(
        self, tokens: Int[Array, "B W"], index: Int[Array, ""], state: Any
    ) -> tuple[Float[Array, "B W V"], DecodingState]:
        """Returns logits of the next token in float32, and the state after reading `tokens`.

        Args:
          tokens: the newest token of each hypothesis.
          index: the position of `tokens`, from 0.
          state: the state before that position.
        """
