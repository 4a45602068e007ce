"""The choice between two programs for attention: plain products, or cuDNN's fused kernel.

The fused kernel does not store attention weights. The choice depends on the device, the types and
the shapes, which are known when a model is traced.
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
WIDEST = 128  # the largest width of a head for cuDNN's kernel on every GPU
MULTIPLE = 8  # widths must be multiples of it


def on(config: config_lib.ModelConfig, platform: str) -> config_lib.ModelConfig:
    """Returns the config, with attention_kernel="plain" unless the platform is "gpu"."""
    return config if platform == "gpu" else dataclasses.replace(config, attention_kernel=PLAIN)


def takes(config: config_lib.ModelConfig, queries: int, keys: int) -> bool:
    """Returns whether attention with this config uses the fused kernel.

    Args:
      config: the model's config.
      queries: the number of queries in a row.
      keys: the number of keys in a row.
    """
    return (
        config.attention_kernel == FUSED
        and config.compute_dtype == "bfloat16"
        and not config.attention_dropout_rate  # which the kernel lacks
        and _width(config.d_k, config.d_v) <= WIDEST
        and queries % 2 == keys % 2 == 0
    )


def describe(config: config_lib.Config, model: type[interface.Architecture]) -> str:
    """Returns the program of each kind of attention, such as "encoder fused, decoder plain".

    An encoder–decoder has three kinds of attention: encoder, decoder and cross. A decoder-only or
    encoder-only model has one kind.
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
    """Computes `attention.attend` in one kernel of `jax.nn.dot_product_attention`.

    The kernel needs d_k = d_v, both a multiple of MULTIPLE. Queries, keys and values are therefore
    padded with columns of zeros. The zeros change neither the products of queries and keys nor the
    other columns of the result.
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
