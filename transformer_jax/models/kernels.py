"""Which program computes attention: plain products, or a fused kernel that writes no weights down.

The choice is made once, from what is known before anything runs: device, types and shapes.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from transformer_jax import config as config_lib
from transformer_jax.models import interface

PLAIN, FUSED = "plain", "fused"
KINDS = (PLAIN, FUSED)
WIDEST = 128  # features of a head that cuDNN's kernel takes on every GPU
MULTIPLE = 8  # it takes widths that are one of these


def on(config: config_lib.ModelConfig, platform: str) -> config_lib.ModelConfig:
    """The config, which asks for no kernel that a platform ("cpu", "gpu", "tpu") does not have."""
    return config if platform == "gpu" else dataclasses.replace(config, attention_kernel=PLAIN)


def takes(config: config_lib.ModelConfig, queries: int, keys: int) -> bool:
    """Whether the config asks for the fused kernel and cuDNN's takes these numbers of positions."""
    return (
        config.attention_kernel == FUSED
        and config.compute_dtype == "bfloat16"
        and not config.attention_dropout_rate  # the kernel drops no weights
        and _width(config.d_k, config.d_v) <= WIDEST
        and queries % 2 == keys % 2 == 0
    )


def describe(config: config_lib.Config, model: type[interface.Architecture]) -> str:
    """The choice for each of a run's attentions, for its log.

    There are three, or one of both sentences, or, in a model that writes none, one of whole texts.
    """
    source, target = config.data.source_length, config.data.target_length
    sizes = on(config.model, jax.default_backend())
    shapes = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    if not issubclass(model, interface.Decoder):
        shapes = {"encoder": (target, target)}
    elif model.one_sequence:
        shapes = {"joint": (source + target, source + target)}
    return ", ".join(
        f"{name} {FUSED if takes(sizes, *lengths) else PLAIN}" for name, lengths in shapes.items()
    )


def fused(
    queries: Float[Array, "B H T d_k"],
    keys: Float[Array, "B K S d_k"],
    values: Float[Array, "B K S d_v"],
    mask: Bool[Array, "#B #1 #T S"],
    bias: Float[Array, "#B H T S"] | None,
    implementation: Any = "cudnn",
) -> Float[Array, "B H T d_v"]:
    """As `attention.attend`, in one kernel of `jax.nn.dot_product_attention`.

    It wants d_k = d_v: the narrower gets columns of zeros, which change neither a product of
    queries and keys nor the values' own columns.
    """
    d_k, d_v = queries.shape[-1], values.shape[-1]
    width = _width(d_k, d_v)
    queries, keys, values = (
        jnp.pad(x, [(0, 0)] * 3 + [(0, width - x.shape[-1])]).swapaxes(1, 2)  # B T H C
        for x in (queries, keys, values)
    )
    mixed = jax.nn.dot_product_attention(
        queries,
        keys,
        values,
        None if bias is None else bias.astype(queries.dtype),
        jnp.broadcast_to(mask, (mask.shape[0], 1, queries.shape[1], keys.shape[1])),
        scale=d_k**-0.5,
        implementation=implementation,
    )
    return mixed[..., :d_v].swapaxes(1, 2)


def _width(d_k: int, d_v: int) -> int:
    return -(-max(d_k, d_v) // MULTIPLE) * MULTIPLE
