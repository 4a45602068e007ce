"""A small model that learns from a large one what it says (Hinton et al. 2015; Sanh et al. 2019).

DistilBERT's loss: 5 times the soft targets', 2 times that of hidden words, and the cosine's.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer_jax.models import embedding

TEMPERATURE = 2.0  # by which logits are divided, so that what is unlikely counts too
SOFT, HARD, COSINE = 5.0, 2.0, 1.0  # weights in DistilBERT's code


def total(
    hard: Float[Array, ""],
    counted: Float[Array, ""],
    outputs: Float[Array, "B T D"],
    matrix: Float[Array, "V D"],
    taught: Float[Array, "B T D"],
    taught_matrix: Float[Array, "V D"],
    segments: Int[Array, "B T"],
) -> Float[Array, ""]:
    """SOFT T² KL(teacher ‖ student, both at temperature T) + HARD loss + COSINE (1 - cos of both).

    Soft targets and cosine, of the vectors that logits are made of, are means over all real
    positions; the sum is as if each counted as often as hidden words do.

    Args:
      hard: the summed loss of hidden words.
      counted: how many they are.
      outputs: the student's.
      matrix: that makes them logits.
      taught: the teacher's outputs, for the same texts without dropout.
      taught_matrix: the teacher's.
      segments: 0 marks padding.
    """
    real = segments > 0
    ours, theirs = (
        jax.nn.log_softmax(embedding.logits(each, x) / TEMPERATURE)
        for each, x in ((matrix, outputs), (taught_matrix, taught))
    )
    soft = TEMPERATURE**2 * jnp.sum(jnp.exp(theirs) * (theirs - ours), axis=-1)
    one, other = (x.astype(jnp.float32) for x in (outputs, taught))
    lengths = jnp.linalg.norm(one, axis=-1) * jnp.linalg.norm(other, axis=-1)
    apart = 1 - jnp.sum(one * other, axis=-1) / jnp.maximum(lengths, 1e-8)
    each = jnp.sum(SOFT * soft + COSINE * apart, where=real) / jnp.maximum(real.sum(), 1)
    return HARD * hard + counted * each
