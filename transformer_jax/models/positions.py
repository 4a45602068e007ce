"""Position kinds, each a small class with four hooks that the model calls.

A kind overrides one or more hooks: `embed` changes embeddings, `rotate` changes queries and keys,
`bias` adds to attention logits, and `relate_values` adds to the weighted values. In the base class,
the hooks do nothing. All layers of a stack share one position module and its parameters, unless the
kind sets `in_each_layer`. The embeddings of both stacks share one position module.

To add a kind, write its class and its line in `KINDS`. Declare its parameters in a method under
`nn.compact`, not in `setup`: then they exist only if a hook is called. To read or to sum an array
by bucket of offsets, use `products.pick` and `products.collect`. Make a size that experiments vary
a field of the config, and any other size a class constant.
"""

import math
from typing import ClassVar, final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer_jax import config as config_lib
from transformer_jax.models import embedding, initializers, products


class Position(nn.Module):
    """Base class of position kinds, whose hooks change nothing."""

    config: config_lib.ModelConfig
    causal: bool = False  # for a self-attention with a causal mask, as the decoder's

    even: ClassVar[tuple[str, ...]] = ()  # model fields that this kind needs to be even
    bounded: ClassVar[bool] = False  # whether positions must be below max_positions
    in_each_layer: ClassVar[bool] = False  # whether each layer has separate parameters

    def embed(
        self, x: Float[Array, "B T D"], positions: Int[Array, "#B #T"]
    ) -> Float[Array, "B T D"]:
        """Returns the embeddings x, changed by their positions.

        The embeddings are already multiplied by sqrt(d_model). The model applies dropout to the
        result.
        """
        return x

    def rotate(
        self, x: Float[Array, "B _ T C"], positions: Int[Array, "#B T"]
    ) -> Float[Array, "B _ T C"]:
        """Returns queries or keys x of a self-attention, changed by their positions."""
        return x

    def bias(
        self, queries: Float[Array, "B H T d_k"], offset: Int[Array, "#B T S"]
    ) -> Float[Array, "#B H T S"] | None:
        """Returns an array to add to a self-attention's logits, in float32, or None.

        Args:
          queries: the queries after `rotate`, in the config's dtype, not divided by sqrt(d_k).
          offset: each key's position minus its query's.
        """
        return None

    def relate_values(
        self, weights: Float[Array, "B H T S"], offset: Int[Array, "#B T S"]
    ) -> Float[Array, "B H T d_v"] | None:
        """Returns an array to add to a self-attention's weighted values, or None.

        The array has the config's dtype.

        Args:
          weights: the attention weights, in float32.
          offset: each key's position minus its query's.
        """
        return None

    @classmethod
    def acts_on_attention(cls) -> bool:
        """Returns whether this position kind overrides an attention hook."""
        hooks = ("rotate", "bias", "relate_values")
        return any(getattr(cls, hook) is not getattr(Position, hook) for hook in hooks)

    @classmethod
    def reads_weights(cls) -> bool:
        """Returns whether this kind needs attention weights, which fused kernels do not store."""
        return cls.relate_values is not Position.relate_values


@final
class NoPosition(Position):
    """No positions: the model reads a bag of words, except for the decoder's causal mask."""


@final
class Sinusoidal(Position):
    """The paper's sinusoidal encodings (section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model))
    """

    even: ClassVar[tuple[str, ...]] = ("d_model",)

    def embed(
        self, x: Float[Array, "B T D"], positions: Int[Array, "#B #T"]
    ) -> Float[Array, "B T D"]:
        return x + encode_sinusoidal(positions, self.config.d_model).astype(x.dtype)


@final
class Learned(Position):
    """A trained vector for each position below max_positions (row E of Table 3)."""

    bounded: ClassVar[bool] = True

    @nn.compact
    def embed(
        self, x: Float[Array, "B T D"], positions: Int[Array, "#B #T"]
    ) -> Float[Array, "B T D"]:
        table = embedding.make(self, self.config, self.config.max_positions, "table", None)
        # A position beyond the table is the caller's mistake: NaN shows it, clamping would hide it.
        vectors = jnp.take(table, positions, axis=0, mode="fill", fill_value=jnp.nan)
        return x + vectors.astype(x.dtype)


@final
class Rotary(Position):
    """Rotary positions, RoPE (Su et al. 2021, equation 34).

    Pair i of the features of queries and keys is rotated by pos / 10000^(2i / d_k).
    """

    even: ClassVar[tuple[str, ...]] = ("d_k",)

    def rotate(
        self, x: Float[Array, "B _ T C"], positions: Int[Array, "#B T"]
    ) -> Float[Array, "B _ T C"]:
        angles = _angles(positions, x.shape[-1])[:, None]
        sin, cos = jnp.sin(angles).astype(x.dtype), jnp.cos(angles).astype(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return _interleave(even * cos - odd * sin, even * sin + odd * cos)


@final
class T5Bias(Position):
    """A trained bias for each head and bucket of distances (Raffel et al. 2020).

    Half of the buckets hold one distance each. The other buckets hold ranges that grow
    geometrically up to the distance `FARTHEST`; the last bucket also holds all greater distances.
    In the encoder, keys before the query and keys after it have half of the buckets each. Initial
    values are those of Hugging Face's T5.
    """

    BUCKETS: ClassVar[int] = 32
    FARTHEST: ClassVar[int] = 128

    @nn.compact
    def bias(
        self, queries: Float[Array, "B H T d_k"], offset: Int[Array, "#B T S"]
    ) -> Float[Array, "#B H T S"]:
        initialiser = initializers.normal(1 / math.sqrt(self.config.d_model))
        initialiser = nn.with_logical_partitioning(initialiser, (None, "heads"))
        table = self.param("table", initialiser, (self.BUCKETS, self.config.num_heads))
        # A product with one-hot vectors, because its gradient is a product too, not a scatter.
        chosen = jax.nn.one_hot(self._bucket(offset), self.BUCKETS)
        return jnp.einsum("BTSU,UH->BHTS", chosen, jnp.asarray(table))

    def _bucket(self, offset: Int[Array, "#B T S"]) -> Int[Array, "#B T S"]:
        """Returns the bucket of a key's position minus its query's."""
        if self.causal:
            buckets, first, distance = self.BUCKETS, 0, jnp.maximum(-offset, 0)
        else:
            buckets = self.BUCKETS // 2
            first, distance = jnp.where(offset > 0, buckets, 0), jnp.abs(offset)
        exact = buckets // 2
        share = jnp.log(jnp.maximum(distance, 1) / exact) / math.log(self.FARTHEST / exact)
        far = jnp.minimum(exact + (share * (buckets - exact)).astype(jnp.int32), buckets - 1)
        return first + jnp.where(distance < exact, distance, far)


@final
class Alibi(Position):
    """The bias -slope · |distance|, with a constant slope for each head (Press et al. 2022).

    In the encoder, keys before and after the query have the same bias.
    """

    def bias(
        self, queries: Float[Array, "B H T d_k"], offset: Int[Array, "#B T S"]
    ) -> Float[Array, "#B H T S"]:
        slopes = jnp.array(alibi_slopes(self.config.num_heads))
        return -slopes[:, None, None] * jnp.abs(offset)[:, None]


@final
class Relative(Position):
    """A trained vector for each relative position, added to keys and to values (Shaw et al. 2018).

    e_ij = x_i W_Q (x_j W_K + a^K_ij)ᵀ / sqrt(d_k) and z_i = Σ α_ij (x_j W_V + a^V_ij), with
    a_ij = w_clip(j - i, -k, k). As in the base model of Shaw et al., k = 16, and the vectors are
    separate for each layer and head. Products are with the 2k + 1 vectors and not with a_ij for
    each pair of positions: the logits of a query are picked from its products with all vectors, and
    weights are summed by relative position before they are multiplied by vectors (compare section
    3.3 of Shaw et al.). Initial values are tensor2tensor's.
    """

    in_each_layer: ClassVar[bool] = True
    FARTHEST: ClassVar[int] = 16  # k

    def bias(
        self, queries: Float[Array, "B H T d_k"], offset: Int[Array, "#B T S"]
    ) -> Float[Array, "B H T S"]:
        vectors = self._vectors("keys", self.config.d_k)
        queries = queries / math.sqrt(self.config.d_k)
        logits = products.einsum("BHTC,UHC->BHTU", queries, vectors)
        return products.pick(logits, self._bucket(offset))

    def relate_values(
        self, weights: Float[Array, "B H T S"], offset: Int[Array, "#B T S"]
    ) -> Float[Array, "B H T d_v"]:
        vectors = self._vectors("values", self.config.d_v)
        weights = weights.astype(vectors.dtype)
        sums = products.collect(weights, self._bucket(offset), len(vectors))
        return products.einsum("BHTU,UHC->BHTC", sums, vectors)

    def _bucket(self, offset: Int[Array, "#B T S"]) -> Int[Array, "#B T S"]:
        return jnp.clip(offset, -self.FARTHEST, self.FARTHEST) + self.FARTHEST

    @nn.compact
    def _vectors(self, name: str, width: int) -> Float[Array, "U H C"]:
        heads = self.config.num_heads
        initialiser = initializers.glorot_uniform
        initialiser = nn.with_logical_partitioning(initialiser, (None, "heads"))
        table = self.param(name, initialiser, (2 * self.FARTHEST + 1, heads * width))
        return jnp.asarray(table, self.config.dtype).reshape(-1, heads, width)


def alibi_slopes(heads: int) -> list[float]:
    """Returns ALiBi's slope for each head.

    If the number h of heads is a power of two, the slopes are 2^(-8/h), 2^(-16/h), …, 2^-8. For
    another h, they are the slopes of the next smaller power of two, followed by every other slope
    of twice that power, as in the authors' code.
    """
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return slopes + between[: heads - power]


def encode_sinusoidal(positions: Int[Array, "#B #T"], d_model: int) -> Float[Array, "#B #T D"]:
    """Returns the paper's sinusoidal position encodings (section 3.5) of any positions."""
    angles = _angles(positions, d_model)
    return _interleave(jnp.sin(angles), jnp.cos(angles))


def _angles(positions: Int[Array, "#B #T"], width: int) -> Float[Array, "#B #T half"]:
    frequencies = 10000.0 ** (-jnp.arange(0, width, 2) / width)
    return positions[..., None] * frequencies


def _interleave(
    even: Float[Array, "*B half"], odd: Float[Array, "*B half"]
) -> Float[Array, "*B 2*half"]:
    return jnp.stack([even, odd], axis=-1).reshape(*even.shape[:-1], -1)


KINDS: dict[str, type[Position]] = {
    "none": NoPosition,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "t5": T5Bias,
    "alibi": Alibi,
    "rotary": Rotary,
    "relative": Relative,
}
