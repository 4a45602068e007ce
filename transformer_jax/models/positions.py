"""Position kinds: one small class each, with three hooks that the model always calls.

A kind says where it acts by overriding a hook: `embed` (on the sum of embeddings), `rotate` (on
queries and keys) or `bias` (on attention logits). The base class acts nowhere. One module serves
all layers of a model, so a kind with parameters has them once.

To add a kind, write its class and its line in `KINDS`.
"""

import math
from typing import ClassVar, final

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int


class Position(nn.Module):
    """What every position kind can do, each hook the identity until overridden.

    Attributes:
      d_model: width of the embeddings.
      max_positions: rows of a learned table.
    """

    d_model: int
    max_positions: int

    even: ClassVar[tuple[str, ...]] = ()  # model fields that this kind needs to be even
    bounded: ClassVar[bool] = False  # whether positions must be below max_positions

    def embed(
        self, x: Float[jax.Array, "B T D"], positions: Int[jax.Array, "#B #T"]
    ) -> Float[jax.Array, "B T D"]:
        """Acts on scaled embeddings, before dropout."""
        del positions
        return x

    def rotate(
        self, x: Float[jax.Array, "B T H C"], positions: Int[jax.Array, "#B T"]
    ) -> Float[jax.Array, "B T H C"]:
        """Acts on the queries or keys of a self-attention, head by head."""
        del positions
        return x

    def bias(
        self,
        query_positions: Int[jax.Array, "#B T"],
        key_positions: Int[jax.Array, "#B S"],
    ) -> Float[jax.Array, "#B H T S"] | None:
        """Added to the logits of a self-attention; None adds nothing."""
        del query_positions, key_positions
        return None


@final
class NoPosition(Position):
    """The model sees a bag of words (but for the decoder's causal mask)."""


@final
class Sinusoidal(Position):
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i+1) = cos(same)."""

    even: ClassVar[tuple[str, ...]] = ("d_model",)

    def embed(
        self, x: Float[jax.Array, "B T D"], positions: Int[jax.Array, "#B #T"]
    ) -> Float[jax.Array, "B T D"]:
        return x + encode_sinusoidal(positions, self.d_model).astype(x.dtype)


@final
class Learned(Position):
    """Table 3, row E: a trained vector for each position up to max_positions."""

    bounded: ClassVar[bool] = True

    @nn.compact
    def embed(
        self, x: Float[jax.Array, "B T D"], positions: Int[jax.Array, "#B #T"]
    ) -> Float[jax.Array, "B T D"]:
        table = self.param(
            "table",
            nn.with_logical_partitioning(
                nn.initializers.normal(1 / math.sqrt(self.d_model)), (None, "embed")
            ),
            (self.max_positions, self.d_model),
        )
        # Beyond the table is a mistake of the caller's: NaN shows it, clamping would hide it.
        rows = jnp.take(jnp.asarray(table), positions, axis=0, mode="fill", fill_value=jnp.nan)
        return x + rows.astype(x.dtype)


@final
class Rotary(Position):
    """RoPE (Su et al. 2021, equation 34): turns each pair of features by pos / 10000^(2i/d_k)."""

    even: ClassVar[tuple[str, ...]] = ("d_k",)

    def rotate(
        self, x: Float[jax.Array, "B T H C"], positions: Int[jax.Array, "#B T"]
    ) -> Float[jax.Array, "B T H C"]:
        angles = _angles(positions, x.shape[-1])[:, :, None, :]
        sin, cos = jnp.sin(angles).astype(x.dtype), jnp.cos(angles).astype(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return _interleave(even * cos - odd * sin, even * sin + odd * cos)


def encode_sinusoidal(
    positions: Int[jax.Array, "#B #T"], d_model: int
) -> Float[jax.Array, "#B #T D"]:
    """The paper's position encodings, computed for any position."""
    angles = _angles(positions, d_model)
    return _interleave(jnp.sin(angles), jnp.cos(angles))


def _angles(positions: Int[jax.Array, "#B #T"], width: int) -> Float[jax.Array, "#B #T half"]:
    frequencies = 10000.0 ** (-jnp.arange(0, width, 2) / width)
    return positions[..., None] * frequencies


def _interleave(
    even: Float[jax.Array, "*N half"], odd: Float[jax.Array, "*N half"]
) -> Float[jax.Array, "*N C"]:
    return jnp.stack([even, odd], axis=-1).reshape(*even.shape[:-1], -1)


KINDS: dict[str, type[Position]] = {
    "none": NoPosition,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
}
