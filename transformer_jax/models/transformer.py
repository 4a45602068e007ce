"""The Transformer of "Attention Is All You Need": encoder, decoder and shared embedding."""

from typing import ClassVar, NamedTuple, final

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax import sequences
from transformer_jax.models import attention, dropout, embedding, layers, masks
from transformer_jax.models import positions as positions_lib


class TransformerState(NamedTuple):
    """What decoding one position needs of the positions before it and of the source.

    Hypotheses stay where they were written. What a hypothesis w has at position l stands in slot
    ancestors[w, l] of that position, so that keeping, dropping or doubling one moves no keys.
    """

    caches: tuple[attention.Cache, ...]  # of each layer, the W slots of a position side by side
    ancestors: Int[Array, "B W L"]
    sources: tuple[attention.Cache, ...]  # keys and values of the source, for each layer
    source_mask: Bool[Array, "B 1 1 S"]  # true at the source's real positions

    def select(self, parents: Int[Array, "B W"]) -> "TransformerState":
        """Puts a copy of hypothesis parents[b, w] in the place of hypothesis w."""
        ancestors = jnp.take_along_axis(self.ancestors, parents[:, :, None], axis=1)
        return self._replace(ancestors=ancestors)

    def lengthened(self, length: int) -> "TransformerState":
        """With room for so many positions."""
        _, width, before = self.ancestors.shape
        return self._replace(
            caches=tuple(cache.lengthened(length * width) for cache in self.caches),
            ancestors=jnp.pad(self.ancestors, ((0, 0), (0, 0), (0, length - before))),
        )


@final
class Transformer(nn.Module):
    """Encoder and decoder with one embedding for source, target and output (section 3.4)."""

    config: config_lib.ModelConfig
    vocab_size: int

    reads: ClassVar[frozenset[str]] = frozenset(
        "architecture num_layers d_model d_ff num_heads num_kv_heads d_k d_v dropout_rate "
        "attention_dropout_rate feed_forward_dropout_rate position max_positions norm "
        "norm_placement feed_forward attention_pattern window global_every compute_dtype "
        "attention_kernel rematerialise".split()
    )
    needs_source: ClassVar[bool] = True

    @staticmethod
    def check(config: config_lib.ModelConfig) -> None:
        """Nothing: `masks` and `positions` refuse what does not suit them."""

    def setup(self) -> None:
        config = self.config
        self.embedding = embedding.make(self, config, self.vocab_size)
        self.position = positions_lib.KINDS[config.position](config)
        # One with parameters of its own, if its kind acts on attention; it never embeds.
        self.decoder_position = positions_lib.KINDS[config.position](config, causal=True)
        cross_position = positions_lib.NoPosition(config)
        again = nn.remat if config.rematerialise else lambda layer: layer
        self.encoder = [
            again(layers.EncoderLayer)(config, self.position) for _ in range(config.num_layers)
        ]
        self.decoder = [
            again(layers.DecoderLayer)(config, self.decoder_position, cross_position)
            for _ in range(config.num_layers)
        ]
        make_final_norm = layers.NORM_PLACEMENTS[config.norm_placement].make_final_norm
        # Names that checkpoints have.
        self.encoder_final_norm = make_final_norm(config, "encoder_end")
        self.decoder_final_norm = make_final_norm(config, "decoder_end")

    def __call__(
        self,
        source: sequences.Sequences,
        target: sequences.Sequences,
        rates: dropout.Rates = dropout.NONE,
    ) -> Float[Array, "B T D"]:
        """The decoder's output at each target position, which says the token that follows."""
        encoded = self.encode(source, rates)
        causal = masks.causal(target.positions, target.positions)
        same = causal & masks.same_segment(target.segments, target.segments)
        patterns = self._patterns(target.positions, target.positions)
        source_mask = masks.same_segment(target.segments, source.segments)
        x = self._embed(target.tokens, target.positions, rates)
        sources = self._sources(encoded, source.positions)
        for layer, pattern, keys_values in zip(self.decoder, patterns, sources, strict=True):
            mask = same & pattern
            x = layer(x, mask, target.positions, keys_values, source_mask, source.positions, rates)
        return self.decoder_final_norm(x)

    def encode(
        self, source: sequences.Sequences, rates: dropout.Rates = dropout.NONE
    ) -> Float[Array, "B S D"]:
        """The encoder's output."""
        same = masks.same_segment(source.segments, source.segments)
        patterns = self._patterns(source.positions, source.positions)
        x = self._embed(source.tokens, source.positions, rates)
        for layer, pattern in zip(self.encoder, patterns, strict=True):
            x = layer(x, same & pattern, source.positions, rates)
        return self.encoder_final_norm(x)

    def prefill(self, source: sequences.Sequences, width: int, max_length: int) -> TransformerState:
        """Encodes, projects the source's keys and values, and makes empty caches."""
        sources = self._sources(self.encode(source), source.positions)
        config, batch = self.config, source.tokens.shape[0]
        heads, slots = config.key_value_heads, max_length * width
        cache = attention.Cache(
            jnp.zeros((batch, heads, config.d_k, slots), config.dtype),
            jnp.zeros((batch, heads, slots, config.d_v), config.dtype),
        )
        return TransformerState(
            (cache,) * config.num_layers,
            jnp.zeros((batch, width, max_length), jnp.int32),
            tuple(map(attention.Cache.of, sources)),
            (source.segments > 0)[:, None, None, :],
        )

    def decode_step(
        self, tokens: Int[Array, "B W"], index: Int[Array, ""], state: TransformerState
    ) -> tuple[Float[Array, "B W V"], TransformerState]:
        """Logits for the token that follows `tokens`, which stand at position `index`."""
        batch, width, length = state.ancestors.shape
        hypotheses = jnp.arange(width)
        ancestors = state.ancestors.at[:, :, index].set(hypotheses)
        own = (ancestors[..., None] == hypotheses).reshape(batch, 1, width, length * width)
        here = jnp.broadcast_to(index, (1, width))
        slots = jnp.repeat(jnp.arange(length), width)[None]
        mask, patterns = own & masks.causal(here, slots), self._patterns(here, slots)
        x = self._embed(tokens, here, dropout.NONE)
        caches = []
        for layer, pattern, cache, source in zip(
            self.decoder, patterns, state.caches, state.sources, strict=True
        ):
            x, cache = layer.step(x, here, slots, cache, mask & pattern, source, state.source_mask)
            caches.append(cache)
        logits = embedding.logits(self.embedding, self.decoder_final_norm(x))
        return logits, state._replace(caches=tuple(caches), ancestors=ancestors)

    def _sources(
        self, encoded: Float[Array, "B S D"], positions: Int[Array, "B S"]
    ) -> tuple[attention.KeysValues, ...]:
        modules = (layer.cross_attention for layer in self.decoder)
        return tuple(module.keys_values(encoded, positions) for module in modules)

    def _patterns(
        self, query_positions: Int[Array, "#B T"], key_positions: Int[Array, "#B S"]
    ) -> list[Bool[Array, "#B 1 T S"]]:
        """What each layer's self-attention may see of the same sentence."""
        window = masks.PATTERNS[self.config.attention_pattern]
        windows = [window(self.config, layer + 1) for layer in range(self.config.num_layers)]
        return [masks.within_window(query_positions, key_positions, size) for size in windows]

    def _embed(
        self, tokens: Int[Array, "B T"], positions: Int[Array, "#B #T"], rates: dropout.Rates
    ) -> Float[Array, "B T D"]:
        x = layers.shard_batch(embedding.embed(self.embedding, tokens, self.config.dtype))
        return dropout.drop(self.position.embed(x, positions), rates.residual, self)
