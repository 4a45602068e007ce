"""One matrix for source, target and output (section 3.4 of the paper), which every model shares."""

import math
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from flax.linen import spmd
from jaxtyping import Array, Float, Int

from transformer_jax import config as config_lib
from transformer_jax.models import products


def make(
    module: nn.Module,
    config: config_lib.ModelConfig,
    number: int,
    name: str = "embedding",
    axis: str | None = "vocab",
) -> Float[Array, "V D"]:
    """Declares so many vectors, a module's parameter, from N(0, 1 / d_model) as the paper's code.

    The axis that counts them has a logical name.
    """
    initialiser = nn.initializers.normal(1 / math.sqrt(config.d_model))
    initialiser = nn.with_logical_partitioning(initialiser, (axis, "embed"))
    return jnp.asarray(module.param(name, initialiser, (number, config.d_model)))


def of(params: Any) -> Float[Array, "V D"]:
    """The matrix among a model's parameters."""
    return params["params"]["embedding"]


def embed(
    embedding: Float[Array, "V D"], tokens: Int[Array, "B T"], dtype: jnp.dtype
) -> Float[Array, "B T D"]:
    """sqrt(d_model) times the tokens' embeddings."""
    table = spmd.with_logical_constraint(embedding, ("vocab", None))
    # Chosen from float32, so that a frequent word's gradient is summed in float32 too.
    return table[tokens].astype(dtype) * math.sqrt(embedding.shape[-1])


def logits(embedding: Float[Array, "V D"], x: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
    """Float32, whatever x is computed in: they are about to be exponentiated."""
    return products.einsum("BTD,VD->BTV", x, jnp.asarray(embedding, x.dtype), jnp.float32)
