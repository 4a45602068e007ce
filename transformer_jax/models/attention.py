"""Scaled dot-product and multi-head attention (section 3.2 of the paper).

One dimension key for the whole package:

  B batch   T query length   S key length   D d_model   H heads   K key–value heads
  G query heads for each key–value head (H = K G)   N = G T   C d_k or d_v   F d_ff   V vocabulary
  I input width   W hypotheses kept for each sentence in beam search   L length of a decoding cache

Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V
MultiHead(Q, K, V) = Concat(head_1, …, head_h) W_O, head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)

d_k and d_v are independent of each other and of d_model / h, as rows B of Table 3 need.
"""

import math
from typing import NamedTuple, final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax.models import dense, dropout, kernels
from transformer_jax.models import positions as positions_lib


class KeysValues(NamedTuple):
    """What attention reads: one key and one value per position and key–value head."""

    keys: Float[jax.Array, "B S K d_k"]
    values: Float[jax.Array, "B S K d_v"]


class Cache(NamedTuple):
    """Keys and values in the order in which `recall` multiplies.

    Read in another order, they would be copied into this one at every step.
    """

    keys: Float[jax.Array, "B K d_k S"]
    values: Float[jax.Array, "B K S d_v"]

    @classmethod
    def of(cls, keys_values: KeysValues) -> "Cache":
        """The same, laid out anew."""
        keys, values = keys_values
        return cls(keys.transpose(0, 2, 3, 1), values.transpose(0, 2, 1, 3))

    def write(self, new: KeysValues, place: Int[jax.Array, ""]) -> "Cache":
        """Puts keys and values in, the first of them at `place`."""
        keys, values = Cache.of(new)
        return Cache(
            jax.lax.dynamic_update_slice_in_dim(self.keys, keys, place, axis=3),
            jax.lax.dynamic_update_slice_in_dim(self.values, values, place, axis=2),
        )

    def lengthened(self, places: int) -> "Cache":
        """With room for so many keys and values."""
        more = (0, places - self.keys.shape[3])
        nothing = (0, 0)
        return Cache(
            jnp.pad(self.keys, (nothing, nothing, nothing, more)),
            jnp.pad(self.values, (nothing, nothing, more, nothing)),
        )


def weigh(
    queries: Float[jax.Array, "B T H d_k"],
    keys: Float[jax.Array, "B S K d_k"],
    mask: Bool[jax.Array, "#B #1 #T S"],
    bias: Float[jax.Array, "#B H T S"] | None = None,
) -> Float[jax.Array, "B H T S"]:
    """softmax(Q Kᵀ / sqrt(d_k) + bias) over the keys that the mask allows, in float32.

    Query head h reads key–value head h // G.

    Args:
      queries: one query per position and head.
      keys: with K heads, K a divisor of H.
      mask: true where a query may look; every query must have at least one such key.
      bias: added to the scaled logits.
    """
    batch, length, heads, d_k = queries.shape
    kv_heads = keys.shape[2]
    # The G queries of a group stand one after another, so that this is one plain batched product.
    grouped = queries.reshape(batch, length, kv_heads, -1, d_k).transpose(0, 3, 1, 2, 4)
    logits = jnp.einsum(
        "BNKC,BSKC->BKNS",
        grouped.reshape(batch, -1, kv_heads, d_k) / math.sqrt(d_k),
        keys,
        preferred_element_type=jnp.float32,
    ).reshape(batch, heads, length, -1)
    if bias is not None:
        logits += bias
    return jax.nn.softmax(jnp.where(mask, logits, jnp.finfo(jnp.float32).min))


def mix(
    weights: Float[jax.Array, "B H T S"], values: Float[jax.Array, "B S K d_v"]
) -> Float[jax.Array, "B T H d_v"]:
    """For each query and head the weighted mean of the values of its key–value head."""
    batch, heads, length, keys = weights.shape
    kv_heads, d_v = values.shape[2:]
    grouped = weights.astype(values.dtype).reshape(batch, kv_heads, -1, keys)
    mixed = jnp.einsum("BKNS,BSKC->BNKC", grouped, values)
    split = mixed.reshape(batch, -1, length, kv_heads, d_v).transpose(0, 2, 3, 1, 4)
    return split.reshape(batch, length, heads, d_v)


def attend(
    queries: Float[jax.Array, "B T H d_k"],
    keys_values: KeysValues,
    mask: Bool[jax.Array, "#B #1 #T S"],
    bias: Float[jax.Array, "#B H T S"] | None = None,
) -> Float[jax.Array, "B T H d_v"]:
    """softmax(Q Kᵀ / sqrt(d_k) + bias) V over the keys that the mask allows."""
    return mix(weigh(queries, keys_values.keys, mask, bias), keys_values.values)


def recall(
    queries: Float[jax.Array, "B W H d_k"],
    cache: Cache,
    mask: Bool[jax.Array, "#B #1 #W S"],
    bias: Float[jax.Array, "#B H W S"] | None = None,
) -> Float[jax.Array, "B W H d_v"]:
    """As `attend`, for the few queries of a decoding step: plain products with what lies there."""
    batch, width, heads, d_k = queries.shape
    kv_heads = cache.keys.shape[1]
    grouped = queries.transpose(0, 2, 1, 3).reshape(batch, kv_heads, -1, d_k)
    logits = jnp.einsum(
        "BKNC,BKCS->BKNS",
        grouped / math.sqrt(d_k),
        cache.keys,
        preferred_element_type=jnp.float32,
    ).reshape(batch, heads, width, -1)
    if bias is not None:
        logits += bias
    weights = jax.nn.softmax(jnp.where(mask, logits, jnp.finfo(jnp.float32).min))
    weights = weights.astype(cache.values.dtype).reshape(
        batch, kv_heads, heads // kv_heads * width, -1
    )
    mixed = jnp.einsum("BKNS,BKSC->BKNC", weights, cache.values)
    return mixed.reshape(batch, heads, width, -1).transpose(0, 2, 1, 3)


@final
class MultiHeadAttention(nn.Module):
    """Multi-head, grouped-query (1 < K < H) or multi-query (K = 1) attention, without biases.

    Attributes:
      config: the model's sizes.
      position: rotates queries and keys and adds to the logits; `NoPosition` in cross-attention.
    """

    config: config_lib.ModelConfig
    position: positions_lib.Position

    def setup(self) -> None:
        config = self.config
        self.query = self._projection(config.num_heads * config.d_k, "embed", "heads")
        self.key = self._projection(config.key_value_heads * config.d_k, "embed", "heads")
        self.value = self._projection(config.key_value_heads * config.d_v, "embed", "heads")
        self.output = self._projection(config.d_model, "heads", "embed")

    def _projection(self, features: int, *axes: str) -> nn.Dense:
        """A (d_in × d_out) matrix, Glorot-uniform by that very shape."""
        return dense.make(
            features,
            use_bias=False,
            dtype=self.config.dtype,
            kernel_init=nn.with_logical_partitioning(nn.initializers.glorot_uniform(), axes),
        )

    def keys_values(
        self, memory: Float[jax.Array, "B S D"], positions: Int[jax.Array, "#B S"]
    ) -> KeysValues:
        """Projects what is attended to; done once, it serves any number of queries."""
        batch, length, _ = memory.shape
        heads = self.config.key_value_heads
        keys = self.key(memory).reshape(batch, length, heads, self.config.d_k)
        values = self.value(memory).reshape(batch, length, heads, self.config.d_v)
        return KeysValues(self.position.rotate(keys, positions), values)

    def __call__(
        self,
        x: Float[jax.Array, "B T D"],
        keys_values: KeysValues,
        mask: Bool[jax.Array, "#B #1 #T S"],
        query_positions: Int[jax.Array, "#B T"],
        key_positions: Int[jax.Array, "#B S"],
        rate: dropout.Rate = None,
    ) -> Float[jax.Array, "B T D"]:
        """Attends from each position of x, as the mask allows; `rate` drops weights."""
        batch, length, _ = x.shape
        queries = self.query(x).reshape(batch, length, self.config.num_heads, self.config.d_k)
        queries = self.position.rotate(queries, query_positions)
        bias = self.position.bias(query_positions, key_positions)
        asked = self.is_mutable_collection("intermediates")  # for weights; never in training
        if kernels.takes(self.config, length, mask.shape[-1], asked or rate is not None):
            mixed = kernels.fused(queries, *keys_values, mask, bias)
            return self.output(mixed.reshape(batch, length, -1))
        weights = weigh(queries, keys_values.keys, mask, bias)
        self.sow("intermediates", "weights", weights)
        mixed = mix(dropout.drop(weights, rate, self), keys_values.values)
        return self.output(mixed.reshape(batch, length, -1))

    def step(
        self,
        x: Float[jax.Array, "B W D"],
        cache: Cache,
        mask: Bool[jax.Array, "#B 1 #W S"],
        query_positions: Int[jax.Array, "1 W"],
        key_positions: Int[jax.Array, "1 S"],
    ) -> Float[jax.Array, "B W D"]:
        """As `__call__`, from one position of each hypothesis."""
        batch, width, _ = x.shape
        queries = self.query(x).reshape(batch, width, self.config.num_heads, self.config.d_k)
        queries = self.position.rotate(queries, query_positions)
        bias = self.position.bias(query_positions, key_positions)
        return self.output(recall(queries, cache, mask, bias).reshape(batch, width, -1))
