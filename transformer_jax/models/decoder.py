"""The Transformer's decoder alone, which reads source and target as one sequence."""

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

# Whether attention within the source is causal. If it is full, the model is the prefix language
# model of Raffel et al. 2020, section 3.2.1.
SOURCE_ATTENTIONS = {"causal": True, "full": False}


@final
class DecoderOnly(interface.Decoder):
    """A decoder-only model, whose single stack reads the source and then the target.

    Segment k of the source row, which ends with EOS, and segment k of the target row, which starts
    with BOS, are one sequence: the target's positions continue the source's positions.
    """

    uses: ClassVar[frozenset[str]] = interface.COMMON | layers.USED | {"source_attention"}
    one_sequence: ClassVar[bool] = True

    def setup(self) -> None:
        config = self.config
        self.embedding = embedding.make(self, config, self.vocab_size)
        self.causal = SOURCE_ATTENTIONS[config.source_attention]
        self.position = positions_lib.KINDS[config.position](config, causal=self.causal)
        self.decoder = layers.make_stack(config, self.position, "self_attention")
        self.decoder_final_norm = layers.make_final_norm(config, "decoder_end")

    def __call__(
        self,
        source: sequences.Sequences,
        target: sequences.Sequences,
        rates: dropout.Rates = dropout.NONE,
    ) -> Float[Array, "B T D"]:
        """Returns the output at each target position, which predicts the next token."""
        source_of_target = (
            masks.same_segment(target.segments, source.segments)[:, 0]
            & (target.segments > 0)[..., None]
        )
        target_positions = target.positions + source_of_target.sum(axis=-1)
        order = self._order(source.positions)
        tokens = jnp.concatenate([source.tokens, target.tokens], axis=1)
        segments = jnp.concatenate([source.segments, target.segments], axis=1)
        positions = jnp.concatenate([source.positions, target_positions], axis=1)
        order = jnp.concatenate([order, target_positions], axis=1)
        mask = masks.same_segment(segments, segments) & masks.causal(order, order)
        x = self._embed(tokens, positions, rates)
        patterns = masks.by_layer(self.config, positions, positions)
        for layer, pattern in zip(self.decoder, patterns, strict=True):
            x = layer(x, mask & pattern, positions, rates)
        return self.decoder_final_norm(x)[:, source.tokens.shape[1] :]

    def prefill(
        self, source: sequences.Sequences, width: int, max_length: int
    ) -> hypotheses.Hypotheses:
        """Returns a state whose caches begin with the source's keys and values.

        All hypotheses share these keys and values.
        """
        batch, length = source.tokens.shape
        slots = length + max_length * width
        order = self._order(source.positions)
        mask = masks.same_segment(source.segments, source.segments) & masks.causal(order, order)
        patterns = masks.by_layer(self.config, source.positions, source.positions)
        x, caches = self._embed(source.tokens, source.positions, dropout.NONE), []
        for layer, pattern in zip(self.decoder, patterns, strict=True):
            cache = attention.Cache.of(layer.keys_values(x, source.positions))
            caches.append(cache.lengthened(slots))
            x = layer(x, mask & pattern, source.positions, dropout.NONE)
        return hypotheses.Hypotheses(
            tuple(caches),
            jnp.zeros((batch, width, max_length), jnp.int32),
            (),
            (source.segments > 0)[:, None, None, :],
        )

    def decode_step(
        self, tokens: Int[Array, "B W"], index: Int[Array, ""], state: hypotheses.Hypotheses
    ) -> tuple[Float[Array, "B W V"], hypotheses.Hypotheses]:
        """Returns the logits of the next token; see `interface.Decoder`."""
        state, target_mask = state.at(index)
        (batch, width), length = tokens.shape, state.source_mask.shape[-1]
        lengths = state.source_mask[:, 0, 0].sum(axis=-1, keepdims=True)
        positions = jnp.broadcast_to(lengths + index, (batch, width))
        source = jnp.broadcast_to(jnp.arange(length), (batch, length))
        slots = jnp.concatenate([source, lengths + state.slots], axis=1)
        source_mask = jnp.broadcast_to(state.source_mask, (batch, 1, width, length))
        mask = jnp.concatenate([source_mask, target_mask], axis=-1)
        x, caches = self._embed(tokens, positions, dropout.NONE), []
        patterns = masks.by_layer(self.config, positions, slots)
        first = length + index * width
        for layer, pattern, cache in zip(self.decoder, patterns, state.caches, strict=True):
            x, cache = layer.step(x, positions, slots, cache, first, mask & pattern)
            caches.append(cache)
        logits = embedding.logits(self.embedding, self.decoder_final_norm(x))
        return logits, state._replace(caches=tuple(caches))

    def _order(self, positions: Int[Array, "B S"]) -> Int[Array, "B S"]:
        """Returns a number for each source position, from which the causal mask is made.

        A position attends to all positions with the same or a lower number. If attention within the
        source is causal, the number is the position itself. If it is full, the number is 0.
        """
        return positions if self.causal else jnp.zeros_like(positions)

    def _embed(
        self, tokens: Int[Array, "B T"], positions: Int[Array, "#B #T"], rates: dropout.Rates
    ) -> Float[Array, "B T D"]:
        x = layers.shard_batch(embedding.embed(self.embedding, tokens, self.config.dtype))
        return dropout.drop(self.position.embed(x, positions), rates.residual, self)
