"""Cross-entropy, smoothed for training and true for perplexity."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int


class Losses(NamedTuple):
    """Sums over the real target tokens of a batch, end tokens included.

    Attributes:
      smoothed: cross-entropy, in nats, with the smoothed distribution: what training minimises.
      true: cross-entropy, in nats, with the labels themselves: what perplexity counts.
      tokens: how many there are.
    """

    smoothed: Float[jax.Array, ""]
    true: Float[jax.Array, ""]
    tokens: Float[jax.Array, ""]


def cross_entropy(
    logits: Float[jax.Array, "B T V"],
    labels: Int[jax.Array, "B T"],
    segments: Int[jax.Array, "B T"],
    smoothing: Float[jax.Array, ""] | float,
) -> Losses:
    """Section 5.4: the label gets 1 - eps, and eps is spread evenly over all V classes.

    With z the logits and y the label, that is
      logsumexp(z) - (1 - eps) z_y - eps mean(z),
    which needs no distribution over the vocabulary to be written down.

    Args:
      logits: unnormalised scores.
      labels: the tokens that should be said.
      segments: 0 marks padding, which does not count.
      smoothing: eps.
    """
    logits = logits.astype(jnp.float32)
    real = segments > 0
    normaliser = jax.nn.logsumexp(logits, axis=-1)
    label = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    true = normaliser - label
    smoothed = true + smoothing * (label - logits.mean(axis=-1))
    return Losses(
        jnp.sum(smoothed, where=real), jnp.sum(true, where=real), jnp.sum(real, dtype=jnp.float32)
    )
