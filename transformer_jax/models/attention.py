"""Scaled dot-product and multi-head attention (section 3.2 of the paper).

One dimension key gives the letters of all shape annotations and einsum products in the package. As
in jaxtyping, # marks a size that may be 1, *B any number of axes, and _ any size.

  B batch   T query length   S key length   D d_model   H heads   K key–value heads
  G query heads for each key–value head (H = K G)   N queries for each key–value head, G T
  d_k width of a head's queries and keys   d_v width of its values   C d_k or d_v   F d_ff
  V vocabulary   I input width   O output width   layers of one stack
  W hypotheses kept for each sentence   M best continuations of one   U buckets of distances
  L target positions that decoding has room for   slots of a cache, W for each of L
  half of a width   taps of a convolution, side by side   gates of a cell, side by side
  sentences of a set   pairs of sentences   lists of tokens   ids in one list or all
  examples of an epoch   n tokens of one text   parts of a number   segments of a row

Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V
MultiHead(Q, K, V) = Concat(head_1, …, head_h) W_O, head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)

d_k and d_v are independent of each other and of d_model / h, as rows B of Table 3 need.
"""

import functools
import math
from typing import Any, NamedTuple, final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax.models import dropout, initializers, kernels, products
from transformer_jax.models import positions as positions_lib


class KeysValues(NamedTuple):
    """Keys and values, one per key–value head and position."""

    keys: Float[Array, "B K S d_k"]
    values: Float[Array, "B K S d_v"]


class Cache(NamedTuple):
    """Keys and values in the layout that a decoding step multiplies without copying them."""

    keys: Float[Array, "B K d_k S"]
    values: Float[Array, "B K S d_v"]

    @classmethod
    def of(cls, keys_values: KeysValues) -> "Cache":
        """Returns a cache of keys and values."""
        keys, values = keys_values
        return cls(keys.swapaxes(2, 3), values)

    def write(self, new: KeysValues, slot: Int[Array, ""]) -> "Cache":
        """Returns the cache with new keys and values written into it, the first at `slot`."""
        keys, values = Cache.of(new)
        return Cache(
            jax.lax.dynamic_update_slice_in_dim(self.keys, keys, slot, axis=3),
            jax.lax.dynamic_update_slice_in_dim(self.values, values, slot, axis=2),
        )

    def lengthened(self, slots: int) -> "Cache":
        """Returns the cache extended with zeros to `slots` keys and values."""
        none, more = (0, 0), (0, slots - self.keys.shape[3])
        return Cache(
            jnp.pad(self.keys, (none, none, none, more)),
            jnp.pad(self.values, (none, none, more, none)),
        )


class Attended(NamedTuple):
    """The keys and values that attention reads, their positions and the mask."""

    keys_values: KeysValues | Cache
    mask: Bool[Array, "#B #1 #T S"]  # true where a query may attend
    positions: Int[Array, "#B S"]  # of the keys


def attention_weights(
    queries: Float[Array, "B H T d_k"],
    keys_values: KeysValues | Cache,
    mask: Bool[Array, "#B #1 #T S"],
    bias: Float[Array, "#B H T S"] | None,
) -> Float[Array, "B H T S"]:
    """Returns softmax(Q Kᵀ / sqrt(d_k) + bias) in float32, with weights of 0 for masked keys.

    Query head h reads key–value head h // G. The mask must allow every query at least one key.
    """
    spec = "BKNC,BKCS->BKNS" if isinstance(keys_values, Cache) else "BKNC,BKSC->BKNS"
    grouped = _grouped(queries, keys_values.keys.shape[1])
    logits = products.einsum(spec, grouped, keys_values.keys, jnp.float32)
    return jax.nn.softmax(_masked(logits, queries.shape[1], mask, bias))


def weighted_values(
    weights: Float[Array, "B H T S"], values: Float[Array, "B K S d_v"]
) -> Float[Array, "B H T d_v"]:
    """Returns, for each query and head, the weighted mean of its key–value head's values."""
    batch, heads, length, keys = weights.shape
    grouped = weights.astype(values.dtype).reshape(batch, values.shape[1], -1, keys)
    mixed = products.einsum("BKNS,BKSC->BKNC", grouped, values)
    return mixed.reshape(batch, heads, length, -1)


def attend(
    queries: Float[Array, "B H T d_k"],
    keys_values: KeysValues,
    mask: Bool[Array, "#B #1 #T S"],
    bias: Float[Array, "#B H T S"] | None = None,
) -> Float[Array, "B H T d_v"]:
    """Returns softmax(Q Kᵀ / sqrt(d_k) + bias) V, the output of attention for each head.

    The result is that of `weighted_values` with `attention_weights`, computed in fewer passes over
    the T × S weights: the sum of exponentials divides the result instead of each weight. The
    gradient is computed likewise (as in FlashAttention, Dao et al. 2022, section 3.1).
    """
    batch, heads, length, _ = queries.shape
    grouped = _grouped(queries, keys_values.keys.shape[1])
    sharded = products.is_sharded()
    mixed: Any = _attend(sharded, heads, grouped, *keys_values, mask, bias)
    return mixed.reshape(batch, heads, length, -1)


def _grouped(queries: Float[Array, "B H T d_k"], kv_heads: int) -> Float[Array, "B K N d_k"]:
    """Returns queries / sqrt(d_k), grouped by key–value head."""
    batch, _, _, d_k = queries.shape
    return queries.reshape(batch, kv_heads, -1, d_k) / math.sqrt(d_k)


def _masked(
    logits: Float[Array, "B K N S"],
    heads: int,
    mask: Bool[Array, "#B #1 #T S"],
    bias: Float[Array, "#B H T S"] | None,
) -> Float[Array, "B H T S"]:
    """Returns logits by query head, with the bias added and float32's minimum where masked."""
    batch, _, _, keys = logits.shape
    logits = logits.reshape(batch, heads, -1, keys)
    if bias is not None:
        logits += bias
    return jnp.where(mask, logits, jnp.finfo(jnp.float32).min)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(sharded: bool, heads: int, *arguments: Any) -> Float[Array, "B K N d_v"]:
    return _attend_forward(sharded, heads, *arguments)[0]


def _attend_forward(
    sharded: bool, heads: int, queries: Any, keys: Any, values: Any, mask: Any, bias: Any
) -> tuple[Float[Array, "B K N d_v"], Any]:
    """Returns E V / Z, and the arrays that `_attend_backward` needs.

    S = Q Kᵀ + bias, E = exp(S - max S), and Z is the sum of E over the keys.
    """
    shape = (*queries.shape[:3], keys.shape[2])
    logits = products.multiply("BKNC,BKSC->BKNS", queries, keys, sharded)
    logits = _masked(logits, heads, mask, bias)
    exponentials = jnp.exp(logits - logits.max(axis=-1, keepdims=True)).reshape(shape)
    total = exponentials.sum(axis=-1, keepdims=True)
    exponentials = exponentials.astype(values.dtype)
    mixed = products.multiply("BKNS,BKSC->BKNC", exponentials, values, sharded) / total
    mixed = mixed.astype(values.dtype)
    return mixed, (queries, keys, values, bias, exponentials, total, mixed)


def _attend_backward(sharded: bool, heads: int, saved: Any, dy: Float[Array, "B K N d_v"]) -> Any:
    """Returns the gradients of queries, keys, values, mask (None) and bias.

    With O = E V / Z, P = E / Z: dV = Pᵀ dO, dS = P (dO Vᵀ - sum of O dO), dQ = dS K, dK = dSᵀ Q.
    The code uses dO / Z and E in place of dO and P.
    """
    queries, keys, values, bias, exponentials, total, mixed = saved
    dy = (dy.astype(jnp.float32) / total).astype(values.dtype)
    row_sums = jnp.sum(mixed.astype(jnp.float32) * dy, axis=-1, keepdims=True)
    d_values = products.multiply("BKNS,BKNC->BKSC", exponentials, dy, sharded, values.dtype)
    d_weights = products.multiply("BKNC,BKSC->BKNS", dy, values, sharded)
    d_logits = exponentials * (d_weights - row_sums)
    d_bias = None
    if bias is not None:
        d_bias = d_logits.reshape(len(d_logits), *bias.shape[1:])
        d_bias = d_bias.sum(axis=0, keepdims=True) if len(bias) == 1 else d_bias
    d_logits = d_logits.astype(queries.dtype)
    d_queries = products.multiply("BKNS,BKSC->BKNC", d_logits, keys, sharded, queries.dtype)
    d_keys = products.multiply("BKNS,BKNC->BKSC", d_logits, queries, sharded, keys.dtype)
    return d_queries, d_keys, d_values, None, d_bias


_attend.defvjp(_attend_forward, _attend_backward)


@final
class Projection(nn.Module):
    """A product with one matrix for all heads, without bias.

    The matrix has the shape (inputs, outputs), and is initialised with Glorot's uniform values.
    """

    spec: str  # "BTI,IHC->BHTC" splits heads, "BHTC,HCO->BTO" joins them
    shape: tuple[int, int]  # of the parameter
    heads: tuple[int, ...]  # the same with an axis for the heads and one for their width
    axes: tuple[str, str]  # logical names of the parameter's axes
    dtype: jnp.dtype  # of the result

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        initialiser = nn.with_logical_partitioning(initializers.glorot_uniform, self.axes)
        kernel = jnp.asarray(self.param("kernel", initialiser, self.shape), self.dtype)
        return products.einsum(self.spec, x, kernel.reshape(self.heads))


@final
class MultiHeadAttention(nn.Module):
    """Multi-head, grouped-query (1 < K < H) or multi-query (K = 1) attention, without biases."""

    config: config_lib.ModelConfig
    position: positions_lib.Position  # `NoPosition` in cross-attention

    def setup(self) -> None:
        config, position = self.config, self.position
        self.own_position = position.clone(parent=None) if position.in_each_layer else position
        self.query = self._projection(config.num_heads, config.d_k)
        self.key = self._projection(config.key_value_heads, config.d_k)
        self.value = self._projection(config.key_value_heads, config.d_v)
        heads = (config.num_heads, config.d_v, config.d_model)
        shape = (config.num_heads * config.d_v, config.d_model)
        self.output = Projection("BHTC,HCO->BTO", shape, heads, ("heads", "embed"), config.dtype)

    def _projection(self, heads: int, width: int) -> Projection:
        inputs, dtype = self.config.d_model, self.config.dtype
        shapes = (inputs, heads * width), (inputs, heads, width)
        return Projection("BTI,IHC->BHTC", *shapes, ("embed", "heads"), dtype)

    def keys_values(self, x: Float[Array, "B S D"], positions: Int[Array, "#B S"]) -> KeysValues:
        """Returns the keys, with their positions applied, and the values of x."""
        return KeysValues(self.own_position.rotate(self.key(x), positions), self.value(x))

    def __call__(
        self,
        x: Float[Array, "B T D"],
        positions: Int[Array, "#B T"],
        read: Attended,
        rate: dropout.Rate = None,
    ) -> Float[Array, "B T D"]:
        """Returns the output of attention at each position of x.

        Args:
          x: the features that queries are computed from.
          positions: the positions of the queries.
          read: the keys and values, their positions and the mask.
          rate: dropout rate of the attention weights.
        """
        keys_values, mask, key_positions = read
        queries = self.own_position.rotate(self.query(x), positions)
        offset = key_positions[:, None, :] - positions[:, :, None]
        bias = self.own_position.bias(queries, offset)
        sows_weights = self.is_mutable_collection("intermediates")  # never in training
        decodes = isinstance(keys_values, Cache)
        if not (decodes or sows_weights or rate is not None or self.own_position.reads_weights()):
            if kernels.takes(self.config, x.shape[1], mask.shape[-1]):
                return self.output(kernels.fused(queries, *keys_values, mask, bias))
            return self.output(attend(queries, keys_values, mask, bias))
        weights = attention_weights(queries, keys_values, mask, bias)
        self.sow("intermediates", "weights", weights)
        weights = dropout.drop(weights, rate, self)
        mixed = weighted_values(weights, keys_values.values)
        related = self.own_position.relate_values(weights, offset)
        return self.output(mixed if related is None else mixed + related)
