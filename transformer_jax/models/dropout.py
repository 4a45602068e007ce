"""Dropout whose rate is an array, so that one compiled program serves every rate."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Rate = Float[Array, ""] | None  # None: no dropout, as in evaluation


class Rates(NamedTuple):
    """The dropout rates of a model.

    The paper has only the residual rate. tensor2tensor's settings v2 and v3 have all three.
    """

    residual: Rate = None  # P_drop, on sub-layers' outputs and on embeddings + positions
    attention: Rate = None  # on attention weights
    feed_forward: Rate = None  # inside the feed-forward, after its activation


NONE = Rates()  # as in evaluation


def drop(x: Float[Array, "*B"], rate: Rate, module: nn.Module) -> Float[Array, "*B"]:
    """Zeroes elements with probability `rate` and scales the others by 1 / (1 - rate).

    Each element uses 16 random bits, half of a threefry word: the rate is rounded down to a
    multiple of 2⁻¹⁶, and the scale is that of the rounded rate. With rate None the result is x, and
    nothing is drawn from the module's "dropout" key.
    """
    if rate is None:
        return x
    threshold = jnp.floor(rate * 2**16)
    words = jax.random.bits(module.make_rng("dropout"), (*x.shape[:-1], -(-x.shape[-1] // 2)))
    # Concatenated, not interleaved: a TPU would pad an axis of size 2 to 128.
    halves = jnp.concatenate([words & 0xFFFF, words >> 16], axis=-1)
    kept = halves[..., : x.shape[-1]] >= threshold.astype(jnp.uint32)
    scale = 2**16 / (2**16 - threshold)
    return jnp.where(kept, x * scale, 0).astype(x.dtype)
