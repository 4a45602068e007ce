"""Attention masks: true where a query may look at a key. Shapes broadcast to B 1 T S.

To add a pattern of self-attention, write its function and its line in `PATTERNS`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int

from transformer_jax import config as config_lib
from transformer_jax import errors


def same_segment(
    query_segments: Int[jax.Array, "B T"], key_segments: Int[jax.Array, "B S"]
) -> Bool[jax.Array, "B 1 T S"]:
    """Each sentence of a packed row sees only itself; padding (segment 0) sees only padding."""
    return query_segments[:, None, :, None] == key_segments[:, None, None, :]


def causal(
    query_positions: Int[jax.Array, "#B T"], key_positions: Int[jax.Array, "#B S"]
) -> Bool[jax.Array, "#B 1 T S"]:
    """A query sees its own and earlier positions: section 3.2.3 of the paper."""
    return query_positions[:, None, :, None] >= key_positions[:, None, None, :]


def within_window(
    query_positions: Int[jax.Array, "#B T"], key_positions: Int[jax.Array, "#B S"], window: int
) -> Bool[jax.Array, "#B 1 T S"]:
    """A query sees at most `window` positions to each side; 0 means no limit."""
    distance = query_positions[:, None, :, None] - key_positions[:, None, None, :]
    return abs(distance) <= window if window else jnp.ones_like(distance, bool)


def interleaved(
    config: config_lib.ModelConfig,
    layer: int,
    query_positions: Int[jax.Array, "#B T"],
    key_positions: Int[jax.Array, "#B S"],
) -> Bool[jax.Array, "#B 1 T S"]:
    """Windows, but for every global_every-th layer, which has none.

    Raises:
      UserError: no layer would have a window, or all would.
    """
    if not config.window or not 2 <= config.global_every <= config.num_layers:
        raise errors.UserError(
            "model.attention_pattern=interleaved needs a model.window of at least 1 and a "
            f"model.global_every from 2 to num_layers={config.num_layers}, but they are "
            f"{config.window} and {config.global_every}"
        )
    window = 0 if layer % config.global_every == 0 else config.window
    return within_window(query_positions, key_positions, window)


def windows(
    config: config_lib.ModelConfig,
    layer: int,
    query_positions: Int[jax.Array, "#B T"],
    key_positions: Int[jax.Array, "#B S"],
) -> Bool[jax.Array, "#B 1 T S"]:
    """The same window in every layer: none, as in the paper, where it is 0."""
    del layer
    return within_window(query_positions, key_positions, config.window)


# What layer 1, 2, … of either stack may see, besides the decoder's causal mask.
PATTERNS: dict[str, Callable[..., Bool[jax.Array, "#B 1 T S"]]] = {
    "window": windows,
    "interleaved": interleaved,
}
