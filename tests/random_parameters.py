"""Parameters drawn by NumPy, because compiling a model's initialisation is slow."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax import models


def of(model: Any, seed: int = 0) -> Any:
    """A model's parameters, of the sizes that they begin with; norms are no identity."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        spread = min(leaf.shape) ** -0.5 if len(leaf.shape) > 1 else 0.1
        middle = float(path[-1].key == "scale")
        return jnp.asarray(middle + spread * rng.normal(size=leaf.shape), leaf.dtype)

    return jax.tree.map_with_path(draw, _shapes(model))


@functools.cache
def _shapes(model):
    return nn.unbox(jax.eval_shape(lambda: models.init(model, jax.random.key(0))))
