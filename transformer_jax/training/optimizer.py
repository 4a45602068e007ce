"""The paper's optimiser and learning-rate schedule (section 5.3)."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float

from transformer_jax import config as config_lib


def learning_rate(
    step: jax.typing.ArrayLike, config: config_lib.TrainConfig, d_model: int
) -> Float[jax.Array, ""]:
    """Equation 3 of the paper, for step = 1, 2, …, times a factor.

    scale · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)
    """
    step = jnp.asarray(step, jnp.float32)
    shape = jnp.minimum(step**-0.5, step * config.warmup_steps**-1.5)
    return config.learning_rate_scale * d_model**-0.5 * shape


def build(config: config_lib.TrainConfig, d_model: int) -> optax.GradientTransformation:
    """Adam with the paper's constants, but for beta2; no clipping, no weight decay."""
    # optax counts updates from 0, the paper from 1.
    return optax.adam(
        lambda count: learning_rate(jnp.asarray(count) + 1, config, d_model),
        b1=0.9,
        b2=config.adam_beta2,
        eps=1e-9,
    )
