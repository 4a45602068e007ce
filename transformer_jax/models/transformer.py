"""The Transformer of "Attention Is All You Need": encoder, decoder and shared embedding."""

from typing import ClassVar, final

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer_jax import sequences
from transformer_jax.models import (
    attention,
    dropout,
    embedding,
    hypotheses,
    interface,
    layers,
    masks,
)
from transformer_jax.models import positions as positions_lib


@final
class Transformer(interface.Decoder):
    """The paper's encoder–decoder, with one embedding for source, target and output."""

    uses: ClassVar[frozenset[str]] = (
        interface.COMMON | layers.USED | {"embedding_norm", "share_stacks"}
    )

    def setup(self) -> None:
        config = self.config
        self.embedding = embedding.make(self, config, self.vocab_size)
        self.position = positions_lib.KINDS[config.position](config)
        # Kinds that act on attention have separate parameters in each stack. The `embed` hook of
        # this module is never called.
        own_position = positions_lib.KINDS[config.position](config, causal=True)
        self.decoder_position = self.position if config.share_stacks else own_position
        cross_position = positions_lib.NoPosition(config)
        if config.embedding_norm:
            self.embedding_norm = layers.make_norm(config)
        self.decoder = layers.make_stack(
            config, self.decoder_position, "self_attention", cross_position
        )
        own_encoder = layers.make_stack(config, self.position, "attention")
        # A decoder layer without a source is an encoder layer.
        self.encoder = self.decoder if config.share_stacks else own_encoder
        # The last arguments are the norms' names in checkpoints.
        self.encoder_final_norm = layers.make_final_norm(config, "encoder_end")
        self.decoder_final_norm = layers.make_final_norm(config, "decoder_end")

    def __call__(
        self,
        source: sequences.Sequences,
        target: sequences.Sequences,
        rates: dropout.Rates = dropout.NONE,
    ) -> Float[Array, "B T D"]:
        """Returns the decoder's output at each target position, which predicts the next token."""
        encoded = self.encode(source, rates)
        causal = masks.causal(target.positions, target.positions)
        same = causal & masks.same_segment(target.segments, target.segments)
        patterns = masks.by_layer(self.config, target.positions, target.positions)
        source_mask = masks.same_segment(target.segments, source.segments)
        x = self._embed(target.tokens, target.positions, rates)
        sources = self._sources(encoded, source.positions)
        for layer, pattern, keys_values in zip(self.decoder, patterns, sources, strict=True):
            read = attention.Attended(keys_values, source_mask, source.positions)
            x = layer(x, same & pattern, target.positions, rates, read)
        return self.decoder_final_norm(x)

    def encode(
        self, source: sequences.Sequences, rates: dropout.Rates = dropout.NONE
    ) -> Float[Array, "B S D"]:
        """Returns the encoder's output at each source position."""
        same = masks.same_segment(source.segments, source.segments)
        patterns = masks.by_layer(self.config, source.positions, source.positions)
        x = self._embed(source.tokens, source.positions, rates)
        for layer, pattern in zip(self.encoder, patterns, strict=True):
            x = layer(x, same & pattern, source.positions, rates)
        return self.encoder_final_norm(x)

    def prefill(
        self, source: sequences.Sequences, width: int, max_length: int
    ) -> hypotheses.Hypotheses:
        """Returns a state with the source's keys and values, and empty caches for the target."""
        sources = self._sources(self.encode(source), source.positions)
        config, batch = self.config, source.tokens.shape[0]
        heads, slots = config.key_value_heads, max_length * width
        cache = attention.Cache(
            jnp.zeros((batch, heads, config.d_k, slots), config.dtype),
            jnp.zeros((batch, heads, slots, config.d_v), config.dtype),
        )
        return hypotheses.Hypotheses(
            (cache,) * config.num_layers,
            jnp.zeros((batch, width, max_length), jnp.int32),
            tuple(map(attention.Cache.of, sources)),
            (source.segments > 0)[:, None, None, :],
        )

    def decode_step(
        self, tokens: Int[Array, "B W"], index: Int[Array, ""], state: hypotheses.Hypotheses
    ) -> tuple[Float[Array, "B W V"], hypotheses.Hypotheses]:
        """Returns the logits of the next token; see `interface.Decoder`."""
        state, seen = state.at(index)
        width, slots = tokens.shape[1], state.slots
        here = jnp.broadcast_to(index, (1, width))
        patterns = masks.by_layer(self.config, here, slots)
        source_positions = jnp.arange(state.source_mask.shape[-1])[None]
        x = self._embed(tokens, here, dropout.NONE)
        caches = []
        for layer, pattern, cache, source in zip(
            self.decoder, patterns, state.caches, state.sources, strict=True
        ):
            read = attention.Attended(source, state.source_mask, source_positions)
            x, cache = layer.step(x, here, slots, cache, index * width, seen & pattern, read)
            caches.append(cache)
        logits = embedding.logits(self.embedding, self.decoder_final_norm(x))
        return logits, state._replace(caches=tuple(caches))

    def _sources(
        self, encoded: Float[Array, "B S D"], positions: Int[Array, "B S"]
    ) -> tuple[attention.KeysValues, ...]:
        modules = (layer.cross_attention for layer in self.decoder)
        return tuple(module.keys_values(encoded, positions) for module in modules)

    def _embed(
        self, tokens: Int[Array, "B T"], positions: Int[Array, "#B #T"], rates: dropout.Rates
    ) -> Float[Array, "B T D"]:
        x = layers.shard_batch(embedding.embed(self.embedding, tokens, self.config.dtype))
        x = self.position.embed(x, positions)
        if self.config.embedding_norm:
            x = self.embedding_norm(x)
        return dropout.drop(x, rates.residual, self)
