"""An encoder-only model, such as BERT or RoBERTa: attention is bidirectional within a text.

It reads the target row and no source. The output at a position predicts the token there, masked or
not; the output at a text's start (BOS, for BERT's [CLS]) predicts a property of the text as a
whole. A text may be two sentences with an EOS (BERT's [SEP]) between them, each with a vector added
to its embeddings (BERT's segment embeddings).
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
    """The layers between an encoder and its logits, as in the code of Devlin et al. 2019.

    norm(gelu(W x + b)) predicts the token at a position; at a text's start tanh(W' x + b'), their
    "pooler", predicts a property of the text.
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
    """The encoder of Devlin et al. 2019, made of the Transformer's layers.

    With model.embedding_norm, norm_placement=post, position=learned and feed_forward=gelu it is
    BERT without biases in attention's projections and in the logits.
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
        """Returns outputs that predict each token and, at position 0, a property of the text."""
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
    """Returns 0 up to and including the first EOS of each text, and 1 after it."""
    ends = jnp.asarray(texts.tokens == tokenizer_lib.EOS, jnp.int32)
    before = jnp.cumsum(ends, axis=1) - ends  # EOS before each position of the row
    first = jnp.where(texts.positions == 0, before, 0)
    return jnp.minimum(before - jax.lax.cummax(first, axis=1), 1)
