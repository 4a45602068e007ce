"""Models: what turns source and target tokens into logits."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Float, PRNGKeyArray

from transformer_jax import config as config_lib
from transformer_jax import sequences
from transformer_jax.models import layers, positions, transformer


def build(config: config_lib.ModelConfig, vocab_size: int) -> nn.Module:
    """The model that a configuration describes.

    Raises:
      config_lib.UserError: a kind is unknown, or a size does not suit a kind.
    """
    config_lib.require_known("model.norm", config.norm, layers.NORMS)
    config_lib.require_known("model.norm_placement", config.norm_placement, layers.NORM_PLACEMENTS)
    config_lib.require_known("model.feed_forward", config.feed_forward, layers.FEED_FORWARDS)
    position = config_lib.lookup("model.position", config.position, positions.KINDS)
    for field in position.even:
        if getattr(config, field) % 2:
            raise config_lib.UserError(
                f"model.position={config.position} needs an even {field}, "
                f"but model.{field}={getattr(config, field)}"
            )
    architecture = config_lib.lookup(
        "model.architecture", config.architecture, transformer.ARCHITECTURES
    )
    return architecture(config, vocab_size)


def logits(
    model: nn.Module,
    params: Any,
    batch: sequences.Batch,
    rate: layers.Rate = None,
    key: PRNGKeyArray | None = None,
) -> Float[jax.Array, "B T V"]:
    """Scores of every piece at every target position, under teacher forcing.

    Args:
      model: an architecture.
      params: its parameters.
      batch: sentence pairs.
      rate: dropout's rate; None: no dropout, as in evaluation.
      key: dropout's key, needed unless the rate is None.
    """
    rngs = None if key is None else {"dropout": key}
    return jnp.asarray(model.apply(params, batch.source, batch.target, rate, rngs=rngs))
