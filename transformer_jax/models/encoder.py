"""An encoder-only model, such as BERT or RoBERTa: attention is bidirectional within a text.

The model reads the target row and no source. At position 0 of a text, which holds BOS (BERT's
[CLS]), the output predicts a label of the whole text, such as whether its two sentences match. At
any other position, the output predicts the token at that position, which may be masked. A text may
consist of two sentences with an EOS (BERT's [SEP]) between them. One vector is added to all
embeddings of the first sentence, another to those of the second (BERT's segment embeddings).
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

    At position 0 of a text, the output is tanh(W' x + b'), the "pooler", which predicts a label of
    the whole text. At any other position, it is norm(gelu(W x + b)), which predicts the token.
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
        """Returns the output of `Head` at each position.

        At position 0 it predicts a label of the whole text, such as whether a sentence pair
        matches. At any other position it predicts the token.
        """
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
    """Returns the number of the sentence, 0 or 1, that each position of a text belongs to.

    Sentence 0 ends with the first EOS of the text.
    """
    ends = jnp.asarray(texts.tokens == tokenizer_lib.EOS, jnp.int32)
    before = jnp.cumsum(ends, axis=1) - ends  # EOS before each position of the row
    first = jnp.where(texts.positions == 0, before, 0)
    return jnp.minimum(before - jax.lax.cummax(first, axis=1), 1)
