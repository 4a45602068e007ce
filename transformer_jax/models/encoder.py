"""An encoder alone, as BERT and RoBERTa are: every position sees its whole text.

It reads the target row and no source. What it says at a position is of the word that stands there,
hidden or not; what it says at a text's start, BOS in the place of BERT's [CLS], is of the text as a
whole. A text may be two sentences with an EOS between them, BERT's [SEP]; each has a vector of its
own, BERT's segment embeddings.
"""

from typing import ClassVar, final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer_jax import config as config_lib
from transformer_jax import sequences
from transformer_jax.data import tokenizer as tokenizer_lib
from transformer_jax.models import dropout, embedding, interface, layers, masks, products
from transformer_jax.models import positions as positions_lib


@final
class Head(nn.Module):
    """What turns an encoder's features into outputs, as Devlin et al. 2019's code has it.

    norm(gelu(W x + b)) says which word stands at a position; tanh(W' x + b'), their "pooler", at a
    text's start says what holds of the text.
    """

    config: config_lib.ModelConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], positions: Int[Array, "B T"]
    ) -> Float[Array, "B T D"]:
        words = nn.gelu(self._square("words")(x), approximate=False)
        words = layers.make_norm(self.config, "norm")(words)
        text = jnp.tanh(self._square("text")(x))
        return layers.shard_batch(jnp.where(positions[..., None] == 0, text, words))

    def _square(self, name: str) -> products.Dense:
        sizes = self.config
        return products.Dense(sizes.d_model, name=name, dtype=sizes.dtype, axes=("embed", None))


@final
class EncoderOnly(interface.Architecture):
    """Devlin et al. 2019, in layers that are the Transformer's own.

    With model.embedding_norm, norm_placement=post, position=learned and feed_forward=gelu it is
    BERT, but for the biases of its projections for attention and of its logits.
    """

    uses: ClassVar[frozenset[str]] = interface.COMMON | layers.USED | {"embedding_norm"}

    def setup(self) -> None:
        config = self.config
        self.embedding = embedding.make(self, config, self.vocab_size)
        self.sentences = embedding.make(self, config, 2, "sentences", None)
        self.position = positions_lib.KINDS[config.position](config)
        if config.embedding_norm:
            self.embedding_norm = layers.make_norm(config)
        self.encoder = layers.make_stack(config, self.position, "attention")
        self.encoder_final_norm = layers.make_final_norm(config, "encoder_end")
        self.head = Head(config)

    def __call__(
        self,
        source: sequences.Sequences,
        target: sequences.Sequences,
        rates: dropout.Rates = dropout.NONE,
    ) -> Float[Array, "B T D"]:
        """What it makes of each position: of the word there or, at position 0, of the text."""
        same = masks.same_segment(target.segments, target.segments)
        patterns = masks.by_layer(self.config, target.positions, target.positions)
        x = self._embed(target, rates)
        for layer, pattern in zip(self.encoder, patterns, strict=True):
            x = layer(x, same & pattern, target.positions, rates)
        return self.head(self.encoder_final_norm(x), target.positions)

    def _embed(self, target: sequences.Sequences, rates: dropout.Rates) -> Float[Array, "B T D"]:
        x = layers.shard_batch(embedding.embed(self.embedding, target.tokens, self.config.dtype))
        vectors = self.sentences[sentence_of(target)].astype(x.dtype)
        x = self.position.embed(x + vectors, target.positions)
        if self.config.embedding_norm:
            x = self.embedding_norm(x)
        return dropout.drop(x, rates.residual, self)


def sentence_of(texts: sequences.Sequences) -> Int[Array, "B T"]:
    """For each position 0 up to the first EOS of its text, with it, and 1 after it."""
    ends = jnp.asarray(texts.tokens == tokenizer_lib.EOS, jnp.int32)
    before = jnp.cumsum(ends, axis=1) - ends  # in the row
    first = jnp.where(texts.positions == 0, before, 0)
    return jnp.minimum(before - jax.lax.cummax(first, axis=1), 1)
