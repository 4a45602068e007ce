"""A convolutional sequence-to-sequence model, gated, as ConvS2S (Gehring et al. 2017).

Each layer is a convolution over kernel_size positions whose output is half value, half gate,
v ⊙ sigmoid(g), added to its input; each decoder layer attends to the encoder besides. Sums are
multiplied by sqrt(0.5), and what attention finds among m source positions by sqrt(m), as there.
Embeddings, their sharing, positions, dropout, initial weights, data and decoding are the
Transformer's; ConvS2S's weight normalisation, its scaling of the encoder's gradient and its
projections between embeddings and layers are left out.
"""

import math
from typing import ClassVar, NamedTuple, final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax import errors, sequences
from transformer_jax.models import dense, dropout, embedding, masks, products
from transformer_jax.models import positions as positions_lib

_SCALE = math.sqrt(0.5)


class Memory(NamedTuple):
    """What decoder layers attend to: the encoder's output, and it plus its input."""

    keys: Float[Array, "B S D"]
    values: Float[Array, "B S D"]


class ConvolutionalState(NamedTuple):
    """What decoding one position needs of the positions before it and of the source.

    Attributes:
      caches: each layer's last kernel_size - 1 inputs, side by side.
      memory: the encoder's output.
      memory_mask: true at the source's real positions.
    """

    caches: list[Float[Array, "B W taps"]]
    memory: Memory
    memory_mask: Bool[Array, "B 1 S"]

    def select(self, parents: Int[Array, "B W"]) -> "ConvolutionalState":
        """Puts a copy of hypothesis parents[b, w] in the place of hypothesis w."""
        rows = parents[:, :, None]
        return self._replace(
            caches=jax.tree.map(lambda x: jnp.take_along_axis(x, rows, axis=1), self.caches)
        )

    def lengthened(self, length: int) -> "ConvolutionalState":
        """The same: it takes no room that grows."""
        del length
        return self


@final
class GatedConvolution(nn.Module):
    """v ⊙ sigmoid(g), [v; g] = W [x_first; …; x_last] + b over kernel_size positions of x."""

    config: config_lib.ModelConfig

    @nn.compact
    def __call__(self, taps: Float[Array, "*B taps"]) -> Float[Array, "*B D"]:
        """Convolves, given at each position the positions that its kernel sees, side by side."""
        both = dense.Dense(
            2 * self.config.d_model,
            name="kernel",
            dtype=self.config.dtype,
        )(taps)
        value, gate = jnp.split(both, 2, axis=-1)
        return value * nn.sigmoid(gate)


@final
class StepAttention(nn.Module):
    """One decoder layer's attention: h + W' Σ softmax((W h + b + g) · keys) values, scaled.

    g is the embedding of the token that was read: section 3.3 of Gehring et al.
    """

    config: config_lib.ModelConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        embedded: Float[Array, "B T D"],
        memory: Memory,
        mask: Bool[Array, "B #T S"],
    ) -> Float[Array, "B T D"]:
        query = (self._projection("query")(x) + embedded) * _SCALE
        scores = products.einsum("BTD,BSD->BTS", query, memory.keys, jnp.float32)
        weights = jax.nn.softmax(jnp.where(mask, scores, jnp.finfo(jnp.float32).min))
        self.sow("intermediates", "weights", weights[:, None])
        context = products.einsum("BTS,BSD->BTD", weights.astype(x.dtype), memory.values)
        context *= jnp.sqrt(mask.sum(axis=-1, keepdims=True)).astype(x.dtype)
        return (x + self._projection("output")(context)) * _SCALE

    def _projection(self, name: str) -> dense.Dense:
        return dense.Dense(
            self.config.d_model,
            name=name,
            dtype=self.config.dtype,
        )


@final
class Convolutional(nn.Module):
    """An encoder–decoder of gated convolutions; its positions act on embeddings."""

    config: config_lib.ModelConfig
    vocab_size: int

    reads: ClassVar[frozenset[str]] = frozenset(
        "architecture num_layers d_model dropout_rate position max_positions kernel_size "
        "compute_dtype".split()
    )
    needs_source: ClassVar[bool] = True

    @staticmethod
    def check(config: config_lib.ModelConfig) -> None:
        """Raises UserError unless positions act on embeddings, or nowhere."""
        kinds = positions_lib.KINDS
        if kinds[config.position].acts_on_attention():
            others = [name for name, kind in kinds.items() if not kind.acts_on_attention()]
            raise errors.UserError(
                f"model.architecture={config.architecture} has no self-attention for "
                f"model.position={config.position} to act on: choose one of {', '.join(others)}"
            )

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
        """The decoder's output at each target position; see Transformer."""
        memory = self.encode(source, rates)
        mask = masks.same_segment(target.segments, source.segments)[:, 0]
        x = embedded = self._embed(target.tokens, target.positions, rates)
        for convolve, attend in zip(self.decoder, self.attention, strict=True):
            seen = _taps(
                dropout.drop(x, rates.residual, self),
                target.segments,
                range(1 - self.config.kernel_size, 1),
            )
            x = (attend(convolve(seen), embedded, memory, mask) + x) * _SCALE
        return x

    def encode(self, source: sequences.Sequences, rates: dropout.Rates = dropout.NONE) -> Memory:
        """What the decoder attends to."""
        x = embedded = self._embed(source.tokens, source.positions, rates)
        before = (self.config.kernel_size - 1) // 2
        for convolve in self.encoder:
            seen = _taps(
                dropout.drop(x, rates.residual, self),
                source.segments,
                range(-before, self.config.kernel_size - before),
            )
            x = (convolve(seen) + x) * _SCALE
        return Memory(x, (x + embedded) * _SCALE)

    def start_decoding(
        self, source: sequences.Sequences, width: int, max_length: int
    ) -> ConvolutionalState:
        """Encodes one sentence per row; the caches need no room for max_length positions."""
        del max_length
        config = self.config
        shape = (source.tokens.shape[0], width, (config.kernel_size - 1) * config.d_model)
        cache = jnp.zeros(shape, config.dtype)
        return ConvolutionalState(
            [cache] * config.num_layers, self.encode(source), (source.segments > 0)[:, None]
        )

    def decode_step(
        self, tokens: Int[Array, "B W"], index: Int[Array, ""], state: ConvolutionalState
    ) -> tuple[Float[Array, "B W V"], ConvolutionalState]:
        """Logits for the token that follows `tokens`, which stand at position `index`."""
        here = jnp.broadcast_to(index, (1, 1))
        x = embedded = self._embed(tokens, here, dropout.NONE)
        caches = []
        for convolve, attend, cache in zip(self.decoder, self.attention, state.caches, strict=True):
            seen = jnp.concatenate([cache, x], axis=-1)
            caches.append(seen[..., x.shape[-1] :])
            y = convolve(seen)
            x = (attend(y, embedded, state.memory, state.memory_mask) + x) * _SCALE
        return embedding.logits(self.embedding, x), state._replace(caches=caches)

    def _embed(
        self, tokens: Int[Array, "B T"], positions: Int[Array, "#B #T"], rates: dropout.Rates
    ) -> Float[Array, "B T D"]:
        x = embedding.embed(self.embedding, tokens, self.config.dtype)
        return dropout.drop(self.position.embed(x, positions), rates.residual, self)


def _taps(
    x: Float[Array, "B T D"], segments: Int[Array, "B T"], offsets: range
) -> Float[Array, "B T taps"]:
    """What stands at some offsets from each position, side by side; 0 outside its sentence."""
    length = x.shape[1]
    places = jnp.arange(length)
    seen = []
    for offset in offsets:
        there = jnp.clip(places + offset, 0, length - 1)
        inside = (places + offset == there) & (segments[:, there] == segments)
        seen.append(jnp.where(inside[..., None], x[:, there], 0))
    return jnp.concatenate(seen, axis=-1)
