"""What every architecture offers, so that training, evaluation and decoding know none of them.

Training and evaluation ask an `Architecture` for its output at each target position; the labels'
logits are that times its embedding (`embedding.of`). A `Decoder` writes sentences too: translating
asks it for one position after another. BERT is an architecture and no decoder; a decoder without an
encoder reads the source as its prompt, or not at all.

Letters of shapes are those of `attention`. To add an architecture, write its class and its line in
`models.ARCHITECTURES`.
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
    """What decoding one position needs of the positions before it and of the source.

    A tree of arrays, whose rows are sentences: `jax.jit` takes it, and rows of it can be chosen.
    """

    def select(self, parents: Int[Array, "B W"]) -> "DecodingState":
        """Puts a copy of hypothesis parents[b, w] in the place of hypothesis w."""
        ...

    def lengthened(self, length: int) -> "DecodingState":
        """With room for so many positions in all."""
        ...


class Source(NamedTuple):
    """What a decoder with single-head attention reads of the source."""

    keys: Float[Array, "B S D"]
    values: Float[Array, "B S D"]
    mask: Bool[Array, "B #T S"]  # true where a target position may look

    def weights(self, scores: Float[Array, "B T S"]) -> Float[Array, "B T S"]:
        """Attention weights, in float32: softmax over the positions that the mask allows."""
        scores = scores.astype(jnp.float32)
        return jax.nn.softmax(jnp.where(self.mask, scores, jnp.finfo(jnp.float32).min))


class FixedSizeState(NamedTuple):
    """The decoding state of architectures whose hypotheses carry along all that they need."""

    caches: Any  # a tree of arrays B W _, as large at every position
    source: Source

    def select(self, parents: Int[Array, "B W"]) -> "FixedSizeState":
        index = parents[:, :, None]
        return self._replace(
            caches=jax.tree.map(lambda x: jnp.take_along_axis(x, index, axis=1), self.caches)
        )

    def lengthened(self, length: int) -> "FixedSizeState":
        return self  # it takes no room that grows


class Predictions(NamedTuple):
    """Outputs under teacher forcing, with the label that each of them predicts."""

    outputs: Float[Array, "B T D"]
    labels: Int[Array, "B T"]
    segments: Int[Array, "B T"]  # 0 where the output and its label do not count


class Architecture(nn.Module, abc.ABC):
    """A module that can be trained and measured.

    It has its tokens' vectors as its parameter "embedding", V D (`embedding.make`), and sows what
    attention weights it has, as `evaluation.attention_weights` wants them.
    """

    config: config_lib.ModelConfig  # its sizes and kinds
    vocab_size: int  # V

    # The fields of `ModelConfig` that it uses; setting another one is an error
    # (`models.require_used`).
    uses: ClassVar[frozenset[str]] = COMMON
    # Whether the target's positions follow the source's, in place of beginning anew.
    one_sequence: ClassVar[bool] = False
    # Whether a position sees its own token, so that it predicts that token only where it is masked.
    needs_masks: ClassVar[bool] = True

    # Linen hashes each architecture by its fields; type checkers believe that nothing does.
    __hash__ = object.__hash__

    @staticmethod
    def check(config: config_lib.ModelConfig) -> None:
        """Raises UserError where the fields that it reads do not suit it, each being known."""

    @abc.abstractmethod
    def __call__(
        self,
        source: sequences.Sequences,
        target: sequences.Sequences,
        rates: dropout.Rates = dropout.NONE,
    ) -> Float[Array, "B T D"]:
        """Returns the output at each target position, under teacher forcing.

        Source and target are packed alike. A `Decoder` predicts the following token, its target
        being shifted right by one; any other architecture may see the whole target and predicts
        masked tokens in place. Rates of dropout need a "dropout" key given to `apply`.
        """

    def predict(self, batch: sequences.Batch, rates: dropout.Rates = dropout.NONE) -> Predictions:
        """Returns the outputs that a batch's loss is computed from, with their labels."""
        outputs = self(batch.source, batch.target, rates)
        return Predictions(outputs, batch.labels, batch.target.segments)


class Decoder(Architecture):
    """An architecture that writes sentences, for several hypotheses of each at a time."""

    @abc.abstractmethod
    def prefill(self, source: sequences.Sequences, width: int, max_length: int) -> DecodingState:
        """The state before the first target position, with room for max_length of them.

        The source has one sentence a row, and is to have `width` hypotheses.
        """

    @abc.abstractmethod
    def decode_step(
        self, tokens: Int[Array, "B W"], index: Int[Array, ""], state: Any
    ) -> tuple[Float[Array, "B W V"], DecodingState]:
        """Logits, in float32, for the token that follows, and the state with this one in it.

        Each hypothesis's newest token stands at position `index`, counted from 0.
        """
