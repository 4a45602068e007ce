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
    """Returns a mask by which each sentence of a packed row attends to itself only.

    Padding (segment 0) attends to padding only.
    """
    return query_segments[:, None, :, None] == key_segments[:, None, None, :]


def causal(
    query_positions: Int[Array, "#B T"], key_positions: Int[Array, "#B S"]
) -> Bool[Array, "#B 1 T S"]:
    """Returns a mask by which a query attends to its own and earlier positions (section 3.2.3)."""
    return query_positions[:, None, :, None] >= key_positions[:, None, None, :]


def within_window(
    query_positions: Int[Array, "#B T"], key_positions: Int[Array, "#B S"], window: int
) -> Bool[Array, "#B 1 T S"]:
    """Returns a mask by which a query attends to at most `window` positions to each side.

    A window of 0 means no limit.
    """
    distance = query_positions[:, None, :, None] - key_positions[:, None, None, :]
    return abs(distance) <= window if window else jnp.ones_like(distance, bool)


def ends(same: Bool[Array, "B T S"]) -> tuple[Int[Array, "B T"], Int[Array, "B T"]]:
    """Returns the first and the last source position of each target position's sentence.

    Args:
      same: true where the target position and the source position are of the same sentence.
    """
    index = jnp.arange(same.shape[-1])
    first = jnp.where(same, index, same.shape[-1]).min(axis=-1)
    last = jnp.where(same, index, -1).max(axis=-1)
    # Target padding has no source positions if the source row is full. It may then read any valid
    # position, because its output does not count.
    return jnp.minimum(first, same.shape[-1] - 1), jnp.maximum(last, 0)


def interleaved(config: config_lib.ModelConfig, layer: int) -> int:
    """Returns the window of a layer in the pattern "interleaved".

    Every global_every-th layer has the window 0, which means no limit. All other layers have
    `config.window`.

    Args:
      config: the model's config.
      layer: the layer's number in its stack, from 1.

    Raises:
      UserError: with this config all layers would have a window, or none.
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
    """Returns a mask for each layer, by which queries attend within the layer's window.

    The layers' windows are those of `config.attention_pattern`.
    """
    window = PATTERNS[config.attention_pattern]
    windows = [window(config, layer + 1) for layer in range(config.num_layers)]
    return [within_window(query_positions, key_positions, size) for size in windows]


# Functions that return a layer's window, given the config and the layer's number in its stack, from
# 1. A window of 0 means no limit, as in the paper.
PATTERNS: dict[str, Callable[[config_lib.ModelConfig, int], int]] = {
    "window": lambda config, _: config.window,
    "interleaved": interleaved,
}
