"""Models: what turns source and target tokens into logits."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Float, PRNGKeyArray

from transformer_jax import config as config_lib
from transformer_jax import errors, fields, sequences
from transformer_jax.models import (
    convolutional,
    dropout,
    embedding,
    kernels,
    layers,
    masks,
    positions,
    recurrent,
    recurrent_cells,
    transformer,
)

ARCHITECTURES: dict[str, Any] = {
    "transformer": transformer.Transformer,
    **dict.fromkeys(recurrent_cells.CELLS, recurrent.Recurrent),
    "conv": convolutional.Convolutional,
}


def build(
    config: config_lib.ModelConfig, vocab_size: int, platform: str | None = None
) -> nn.Module:
    """The model that a configuration describes.

    Args:
      config: its sizes and kinds.
      vocab_size: V.
      platform: what it will be compiled for: "cpu", "gpu" or "tpu"; None: what JAX finds here.

    Raises:
      errors.UserError: a kind is unknown, or a size does not suit a kind.
    """
    fields.require_known("model.norm", config.norm, layers.NORMS)
    fields.require_known("model.norm_placement", config.norm_placement, layers.NORM_PLACEMENTS)
    fields.require_known("model.feed_forward", config.feed_forward, layers.FEED_FORWARDS)
    fields.require_known("model.attention_pattern", config.attention_pattern, masks.PATTERNS)
    fields.require_known("model.attention_kernel", config.attention_kernel, kernels.KINDS)
    position = fields.lookup("model.position", config.position, positions.KINDS)
    for field in position.even:
        if getattr(config, field) % 2:
            raise errors.UserError(
                f"model.position={config.position} needs an even {field}, "
                f"but model.{field}={getattr(config, field)}"
            )
    architecture = fields.lookup("model.architecture", config.architecture, ARCHITECTURES)
    fields.require_known(
        "model.recurrent_attention", config.recurrent_attention, recurrent.ATTENTIONS
    )
    _check_parts(config, position)
    return architecture(kernels.on(config, platform or jax.default_backend()), vocab_size)


def _check_parts(config: config_lib.ModelConfig, position: type[positions.Position]) -> None:
    """Raises UserError where the config asks for a part that its architecture does not have."""
    kind = config.architecture
    for field, value in ARCHITECTURES[kind].unused.items():
        found = getattr(config, field)
        if found != value:
            raise errors.UserError(
                f"model.architecture={kind} has no use for model.{field}={found}: "
                f"set model.{field}={value}"
            )
    if kind in recurrent_cells.CELLS and config.d_model % 2:
        raise errors.UserError(
            f"model.architecture={kind} needs an even d_model, one half for each direction, but "
            f"model.d_model={config.d_model}"
        )
    if kind == "conv" and _acts_on_attention(position):
        others = [name for name, each in positions.KINDS.items() if not _acts_on_attention(each)]
        raise errors.UserError(
            f"model.architecture=conv has no self-attention for model.position={config.position} "
            f"to act on: choose one of {', '.join(others)}"
        )


def _acts_on_attention(position: type[positions.Position]) -> bool:
    plain = positions.Position
    return position.rotate is not plain.rotate or position.bias is not plain.bias


def outputs(
    model: nn.Module,
    params: Any,
    batch: sequences.Batch,
    rates: dropout.Rates = dropout.NONE,
    key: PRNGKeyArray | None = None,
    sampling: Float[jax.Array, ""] | None = None,
) -> Float[jax.Array, "B T D"]:
    """The decoder's output at every target position, under teacher forcing.

    Args:
      model: an architecture.
      params: its parameters.
      batch: sentence pairs.
      rates: dropout's.
      key: needed if there is dropout or sampling.
      sampling: of a recurrent model, the chance of reading an own word; None: teacher forcing.
    """
    rngs = None if key is None else {"dropout": key, "sampling": jax.random.fold_in(key, 1)}
    options: dict[str, Any] = {} if sampling is None else {"sampling": sampling}
    return jnp.asarray(model.apply(params, batch.source, batch.target, rates, rngs=rngs, **options))


def logits(
    model: nn.Module, params: Any, batch: sequences.Batch, *rest: Any, **options: Any
) -> Float[jax.Array, "B T V"]:
    """Scores of every piece at every target position; arguments as those of `outputs`."""
    return embedding.logits(embedding.of(params), outputs(model, params, batch, *rest, **options))
