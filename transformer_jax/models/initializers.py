"""Initialisers of parameters: Flax's, each compiled to one program for each shape."""

import functools
from typing import Any

import flax.linen as nn
import jax


def _compiled(initialiser: Any) -> nn.initializers.Initializer:
    return jax.jit(initialiser, static_argnums=(1, 2))  # shape and type


glorot_uniform = _compiled(nn.initializers.glorot_uniform())
orthogonal = _compiled(nn.initializers.orthogonal())


@functools.cache
def normal(stddev: float) -> nn.initializers.Initializer:
    """Returns an initialiser that draws from N(0, stddev²)."""
    return _compiled(nn.initializers.normal(stddev))
