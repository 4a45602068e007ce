"""The embedding, one matrix for source, target and output (section 3.4 of the paper)."""

import math
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from flax.linen import spmd
from jaxtyping import Array, Float, Int

from transformer_jax import config as config_lib
from transformer_jax.models import initializers, products


def make(
    module: nn.Module,
    config: config_lib.ModelConfig,
    number: int,
    name: str = "embedding",
    axis: str | None = "vocab",
) -> Float[Array, "V D"]:
    """Declares a parameter of vectors drawn from N(0, 1 / d_model), as in the paper's code.

    Args:
      module: the module that the parameter belongs to.
      config: has the width of the vectors, d_model.
      number: the number of vectors.
      name: the parameter's name.
      axis: logical name of the axis of size `number`.
    """
    initialiser = initializers.normal(1 / math.sqrt(config.d_model))
    initialiser = nn.with_logical_partitioning(initialiser, (axis, "embed"))
    return jnp.asarray(module.param(name, initialiser, (number, config.d_model)))


def of(params: Any) -> Float[Array, "V D"]:
    """Returns the embedding among a model's parameters."""
    return params["params"]["embedding"]


def embed(
    embedding: Float[Array, "V D"], tokens: Int[Array, "B T"], dtype: jnp.dtype
) -> Float[Array, "B T D"]:
    """Returns sqrt(d_model) times the tokens' embeddings."""
    table = spmd.with_logical_constraint(embedding, ("vocab", None))
    # Looked up in float32, so that a frequent token's gradient is summed in float32.
    return table[tokens].astype(dtype) * math.sqrt(embedding.shape[-1])


def logits(embedding: Float[Array, "V D"], x: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
    """Returns the logits of outputs x, in float32 because a softmax follows."""
    return products.einsum("BTD,VD->BTV", x, jnp.asarray(embedding, x.dtype), jnp.float32)
