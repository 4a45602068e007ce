"""Attention masks, true where a query may attend to a key. Shapes broadcast to B 1 T S.

To add a pattern of self-attention, write its function and its line in `PATTERNS`.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from transformer_jax import config as config_lib
from transformer_jax import errors


def same_segment(
    query_segments: Int[Array, "B T"], key_segments: Int[Array, "B S"]
) -> Bool[Array, "B 1 T S"]:
    """Lets each sentence of a packed row, and padding (segment 0), attend to itself only."""
    return query_segments[:, None, :, None] == key_segments[:, None, None, :]


def causal(
    query_positions: Int[Array, "#B T"], key_positions: Int[Array, "#B S"]
) -> Bool[Array, "#B 1 T S"]:
    """Lets a query attend to its own and earlier positions (section 3.2.3 of the paper)."""
    return query_positions[:, None, :, None] >= key_positions[:, None, None, :]


def within_window(
    query_positions: Int[Array, "#B T"], key_positions: Int[Array, "#B S"], window: int
) -> Bool[Array, "#B 1 T S"]:
    """Lets a query attend to at most `window` positions to each side; 0 means no limit."""
    distance = query_positions[:, None, :, None] - key_positions[:, None, None, :]
    return abs(distance) <= window if window else jnp.ones_like(distance, bool)


def ends(same: Bool[Array, "B T S"]) -> tuple[Int[Array, "B T"], Int[Array, "B T"]]:
    """Returns the first and last source position of each target position's sentence."""
    index = jnp.arange(same.shape[-1])
    first = jnp.where(same, index, same.shape[-1]).min(axis=-1)
    last = jnp.where(same, index, -1).max(axis=-1)
    # Padding has no source where the source row is full; what it reads does not count.
    return jnp.minimum(first, same.shape[-1] - 1), jnp.maximum(last, 0)


def interleaved(config: config_lib.ModelConfig, layer: int) -> int:
    """Returns the window of a layer: 0 (none) for every global_every-th layer, else the config's.

    Raises:
      UserError: no layer would have a window, or all would.
    """
    if not config.window or not 2 <= config.global_every <= config.num_layers:
        raise errors.UserError(
            "model.attention_pattern=interleaved needs a model.window of at least 1 and a "
            f"model.global_every from 2 to num_layers={config.num_layers}, but they are "
            f"{config.window} and {config.global_every}"
        )
    return 0 if layer % config.global_every == 0 else config.window


def by_layer(
    config: config_lib.ModelConfig,
    query_positions: Int[Array, "#B T"],
    key_positions: Int[Array, "#B S"],
) -> list[Bool[Array, "#B 1 T S"]]:
    """Returns each layer's mask within a sentence, by the config's attention pattern."""
    window = PATTERNS[config.attention_pattern]
    windows = [window(config, layer + 1) for layer in range(config.num_layers)]
    return [within_window(query_positions, key_positions, size) for size in windows]


# Functions from layer 1, 2, … of either stack to its window; 0: none, as in the paper.
PATTERNS: dict[str, Callable[[config_lib.ModelConfig, int], int]] = {
    "window": lambda config, _: config.window,
    "interleaved": interleaved,
}
