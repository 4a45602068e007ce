"""A gated convolutional sequence-to-sequence model after ConvS2S (Gehring et al. 2017).

Each layer adds the output v ⊙ sigmoid(g) of a convolution over kernel_size positions to the layer's
input. Each decoder layer also attends to the encoder. As in ConvS2S, sums are multiplied by
sqrt(0.5), and the result of attention to m source positions by sqrt(m). Embeddings, their sharing,
positions, dropout, initial weights, data and decoding are the Transformer's. ConvS2S's weight
normalisation, its scaling of the encoder's gradient and its projections between embeddings and
layers are left out.
"""

import math
from typing import ClassVar, final

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer_jax import config as config_lib
from transformer_jax import sequences
from transformer_jax.models import dropout, embedding, interface, masks, products
from transformer_jax.models import positions as positions_lib

_SCALE = math.sqrt(0.5)


@final
class GatedConvolution(nn.Module):
    """A gated convolution over kernel_size positions of an input x.

    The output is v ⊙ sigmoid(g), where [v; g] = W [x_first; …; x_last] + b.
    """

    config: config_lib.ModelConfig

    @nn.compact
    def __call__(self, taps: Float[Array, "*B taps"]) -> Float[Array, "*B D"]:
        """Returns the output at each position.

        Args:
          taps: for each position, the concatenated inputs at the kernel_size positions to read.
        """
        both = products.Dense(2 * self.config.d_model, name="kernel", dtype=self.config.dtype)(taps)
        value, gate = jnp.split(both, 2, axis=-1)
        return value * nn.sigmoid(gate)


@final
class StepAttention(nn.Module):
    """Attention of one decoder layer to the encoder (section 3.3 of Gehring et al.).

    The output is h + W' Σ softmax((W h + b + g) · keys) values, where h is the output of the
    layer's convolution and g is the embedding of the input token. The two sums of h are multiplied
    by sqrt(0.5), and the result of attention to m source positions by sqrt(m).
    """

    config: config_lib.ModelConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], embedded: Float[Array, "B T D"], source: interface.Source
    ) -> Float[Array, "B T D"]:
        query = (self._projection("query")(x) + embedded) * _SCALE
        weights = source.weights(products.einsum("BTD,BSD->BTS", query, source.keys, jnp.float32))
        self.sow("intermediates", "weights", weights[:, None])
        context = products.einsum("BTS,BSD->BTD", weights.astype(x.dtype), source.values)
        context *= jnp.sqrt(source.mask.sum(axis=-1, keepdims=True)).astype(x.dtype)
        return (x + self._projection("output")(context)) * _SCALE

    def _projection(self, name: str) -> products.Dense:
        return products.Dense(self.config.d_model, name=name, dtype=self.config.dtype)


@final
class Convolutional(interface.Decoder):
    """A sequence-to-sequence model whose encoder and decoder are gated convolutions."""

    uses: ClassVar[frozenset[str]] = interface.COMMON | {"position", "max_positions", "kernel_size"}

    def setup(self) -> None:
        config = self.config
        self.embedding = embedding.make(self, config, self.vocab_size)
        self.position = positions_lib.KINDS[config.position](config)
        layers = range(config.num_layers)
        self.encoder = [GatedConvolution(config) for _ in layers]
        self.decoder = [GatedConvolution(config) for _ in layers]
        self.attention = [StepAttention(config) for _ in layers]

    def __call__(
        self,
        source: sequences.Sequences,
        target: sequences.Sequences,
        rates: dropout.Rates = dropout.NONE,
    ) -> Float[Array, "B T D"]:
        """Returns the decoder's output at each target position, which predicts the next token."""
        attended = self.encode(source, rates)._replace(
            mask=masks.same_segment(target.segments, source.segments)[:, 0]
        )
        x = embedded = self._embed(target.tokens, target.positions, rates)
        offsets = range(1 - self.config.kernel_size, 1)
        for convolve, attend in zip(self.decoder, self.attention, strict=True):
            seen = _taps(dropout.drop(x, rates.residual, self), target.segments, offsets)
            x = (attend(convolve(seen), embedded, attended) + x) * _SCALE
        return x

    def encode(
        self, source: sequences.Sequences, rates: dropout.Rates = dropout.NONE
    ) -> interface.Source:
        """Returns the keys and values that the decoder attends to.

        Keys are the encoder's outputs; values are the sums of outputs and embeddings.
        """
        x = embedded = self._embed(source.tokens, source.positions, rates)
        before = (self.config.kernel_size - 1) // 2
        offsets = range(-before, self.config.kernel_size - before)
        for convolve in self.encoder:
            seen = _taps(dropout.drop(x, rates.residual, self), source.segments, offsets)
            x = (convolve(seen) + x) * _SCALE
        return interface.Source(x, (x + embedded) * _SCALE, (source.segments > 0)[:, None])

    def prefill(
        self, source: sequences.Sequences, width: int, max_length: int
    ) -> interface.FixedSizeState:
        """Returns a state with a cache of zeros for each decoder layer.

        A cache holds the layer's inputs at the last kernel_size - 1 positions.
        """
        config = self.config
        shape = (source.tokens.shape[0], width, (config.kernel_size - 1) * config.d_model)
        caches = [jnp.zeros(shape, config.dtype)] * config.num_layers
        return interface.FixedSizeState(caches, self.encode(source))

    def decode_step(
        self, tokens: Int[Array, "B W"], index: Int[Array, ""], state: interface.FixedSizeState
    ) -> tuple[Float[Array, "B W V"], interface.FixedSizeState]:
        """Returns the logits of the next token; see `interface.Decoder`."""
        here = jnp.broadcast_to(index, (1, 1))
        x = embedded = self._embed(tokens, here, dropout.NONE)
        caches = []
        for convolve, attend, cache in zip(self.decoder, self.attention, state.caches, strict=True):
            seen = jnp.concatenate([cache, x], axis=-1)
            caches.append(seen[..., x.shape[-1] :])
            x = (attend(convolve(seen), embedded, state.source) + x) * _SCALE
        return embedding.logits(self.embedding, x), state._replace(caches=caches)

    def _embed(
        self, tokens: Int[Array, "B T"], positions: Int[Array, "#B #T"], rates: dropout.Rates
    ) -> Float[Array, "B T D"]:
        x = embedding.embed(self.embedding, tokens, self.config.dtype)
        return dropout.drop(self.position.embed(x, positions), rates.residual, self)


def _taps(
    x: Float[Array, "B T D"], segments: Int[Array, "B T"], offsets: range
) -> Float[Array, "B T taps"]:
    """Returns, for each position, the concatenation of x at all offsets from it.

    Elements from outside the position's sentence are 0.
    """
    length = x.shape[1]
    index = jnp.arange(length)
    seen = []
    for offset in offsets:
        there = jnp.clip(index + offset, 0, length - 1)
        inside = (index + offset == there) & (segments[:, there] == segments)
        seen.append(jnp.where(inside[..., None], x[:, there], 0))
    return jnp.concatenate(seen, axis=-1)
