"""The Transformer of "Attention Is All You Need": encoder, decoder and shared embedding."""

from typing import ClassVar, NamedTuple, final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax import sequences
from transformer_jax.models import attention, dropout, embedding, layers, masks
from transformer_jax.models import positions as positions_lib


class TransformerState(NamedTuple):
    """What decoding one position needs of the positions before it and of the source.

    Hypotheses stay where they were written. What a hypothesis w has at position l stands in slot
    ancestors[w, l] of that position, so that keeping, dropping or doubling one moves no keys.

    Attributes:
      caches: for each layer the keys and values so far, the W slots of a position side by side.
      ancestors: see above.
      memories: for each layer the source's keys and values.
      memory_mask: true at the source's real positions.
    """

    caches: tuple[attention.Cache, ...]
    ancestors: Int[jax.Array, "B W L"]
    memories: tuple[attention.Cache, ...]
    memory_mask: Bool[jax.Array, "B 1 1 S"]

    def select(self, parents: Int[jax.Array, "B W"]) -> "TransformerState":
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
    """Encoder and decoder with one embedding for source, target and output (section 3.4).

    Attributes:
      config: the model's sizes and kinds.
      vocab_size: rows of the embedding.
    """

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
        make_end = layers.NORM_PLACEMENTS[config.norm_placement].make_end
        self.encoder_end = make_end(config)
        self.decoder_end = make_end(config)

    def __call__(
        self,
        source: sequences.Sequences,
        target: sequences.Sequences,
        rates: dropout.Rates = dropout.NONE,
    ) -> Float[jax.Array, "B T D"]:
        """The decoder's output at each target position, which says the token that follows.

        Args:
          source: the source sentences.
          target: the target sentences shifted right by one.
          rates: dropout's, which need a "dropout" key given to `apply`.
        """
        memory = self.encode(source, rates)
        causal = masks.causal(target.positions, target.positions)
        same = causal & masks.same_segment(target.segments, target.segments)
        patterns = self._patterns(target.positions, target.positions)
        memory_mask = masks.same_segment(target.segments, source.segments)
        x = self._embed(target.tokens, target.positions, rates)
        memories = self._memories(memory, source.positions)
        for layer, pattern, keys_values in zip(self.decoder, patterns, memories, strict=True):
            mask = same & pattern
            x = layer(x, mask, target.positions, keys_values, memory_mask, source.positions, rates)
        return self.decoder_end(x)

    def encode(
        self, source: sequences.Sequences, rates: dropout.Rates = dropout.NONE
    ) -> Float[jax.Array, "B S D"]:
        """The encoder's output."""
        same = masks.same_segment(source.segments, source.segments)
        patterns = self._patterns(source.positions, source.positions)
        x = self._embed(source.tokens, source.positions, rates)
        for layer, pattern in zip(self.encoder, patterns, strict=True):
            x = layer(x, same & pattern, source.positions, rates)
        return self.encoder_end(x)

    def start_decoding(
        self, source: sequences.Sequences, width: int, max_length: int
    ) -> TransformerState:
        """Encodes one sentence per row and makes empty caches.

        Args:
          source: rows of one sentence each, not packed.
          width: hypotheses for each sentence.
          max_length: target positions that the caches hold.
        """
        memories = self._memories(self.encode(source), source.positions)
        config, batch = self.config, source.tokens.shape[0]
        heads, slots = config.key_value_heads, max_length * width
        cache = attention.Cache(
            jnp.zeros((batch, heads, config.d_k, slots), config.dtype),
            jnp.zeros((batch, heads, slots, config.d_v), config.dtype),
        )
        return TransformerState(
            (cache,) * config.num_layers,
            jnp.zeros((batch, width, max_length), jnp.int32),
            tuple(attention.Cache.of(memory) for memory in memories),
            (source.segments > 0)[:, None, None, :],
        )

    def decode_step(
        self, tokens: Int[jax.Array, "B W"], index: Int[jax.Array, ""], state: TransformerState
    ) -> tuple[Float[jax.Array, "B W V"], TransformerState]:
        """Logits for the token that follows `tokens`, which stand at position `index`."""
        batch, width, length = state.ancestors.shape
        slots = jnp.arange(width)
        ancestors = state.ancestors.at[:, :, index].set(slots)
        own = (ancestors[..., None] == slots).reshape(batch, 1, width, length * width)
        here = jnp.broadcast_to(index, (1, width))
        places = jnp.repeat(jnp.arange(length), width)[None]
        mask, patterns = own & masks.causal(here, places), self._patterns(here, places)
        x = self._embed(tokens, here, dropout.NONE)
        caches = []
        for layer, pattern, cache, memory in zip(
            self.decoder, patterns, state.caches, state.memories, strict=True
        ):
            x, cache = layer.step(x, here, places, cache, mask & pattern, memory, state.memory_mask)
            caches.append(cache)
        logits = embedding.logits(self.embedding, self.decoder_end(x))
        return logits, state._replace(caches=tuple(caches), ancestors=ancestors)

    def _memories(
        self, memory: Float[jax.Array, "B S D"], positions: Int[jax.Array, "B S"]
    ) -> tuple[attention.KeysValues, ...]:
        return tuple(layer.cross_attention.keys_values(memory, positions) for layer in self.decoder)

    def _patterns(
        self, query_positions: Int[jax.Array, "#B T"], key_positions: Int[jax.Array, "#B S"]
    ) -> list[Bool[jax.Array, "#B 1 T S"]]:
        """What each layer's self-attention may see of the same sentence."""
        pattern = masks.PATTERNS[self.config.attention_pattern]
        layers_from_1 = range(1, self.config.num_layers + 1)
        return [pattern(self.config, n, query_positions, key_positions) for n in layers_from_1]

    def _embed(
        self,
        tokens: Int[jax.Array, "B T"],
        positions: Int[jax.Array, "#B #T"],
        rates: dropout.Rates,
    ) -> Float[jax.Array, "B T D"]:
        x = layers.by_rows(embedding.embed(self.embedding, tokens, self.config.dtype))
        return dropout.drop(self.position.embed(x, positions), rates.residual, self)
