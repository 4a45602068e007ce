"""Models, which compute logits from source and target tokens."""

from collections.abc import Collection, Iterable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from transformer_jax import config as config_lib
from transformer_jax import errors, fields, sequences
from transformer_jax.models import (
    convolutional,
    decoder,
    dropout,
    elmo,
    embedding,
    encoder,
    interface,
    kernels,
    layers,
    masks,
    positions,
    recurrent,
    recurrent_attention,
    recurrent_cells,
    transformer,
)

ARCHITECTURES: dict[str, type[interface.Architecture]] = {
    "transformer": transformer.Transformer,
    "decoder": decoder.DecoderOnly,
    **dict.fromkeys(recurrent_cells.CELLS, recurrent.Recurrent),
    "conv": convolutional.Convolutional,
    "encoder": encoder.EncoderOnly,
    "elmo": elmo.Elmo,
}
# The fields of `ModelConfig` that name a kind, with the kinds there are.
KINDS: dict[str, Collection[str]] = {
    "architecture": ARCHITECTURES,
    "position": positions.KINDS,
    "norm": layers.NORMS,
    "norm_placement": layers.NORM_PLACEMENTS,
    "feed_forward": layers.FEED_FORWARDS,
    "attention_pattern": masks.PATTERNS,
    "attention_kernel": kernels.KINDS,
    "recurrent_attention": recurrent_attention.ATTENTIONS,
    "source_attention": decoder.SOURCE_ATTENTIONS,
}
# The values that fields must have if the architecture does not use them. Sizes are not included:
# they may have any value, so that a row of a table can change the architecture alone.
UNUSED: dict[str, Any] = {
    name: getattr(config_lib.DEFAULTS.model, name)
    for name, kind in fields.declared(config_lib.ModelConfig).items()
    if kind != config_lib.Positive
} | {"position": "none"}


def build(
    config: config_lib.ModelConfig, vocab_size: int, platform: str | None = None
) -> interface.Architecture:
    """Returns the model that a configuration describes.

    Args:
      config: kinds and sizes of the model.
      vocab_size: V, the number of rows of the embedding.
      platform: "cpu", "gpu" or "tpu"; None: the one that JAX finds here.

    Raises:
      errors.UserError: a kind is unknown, a size does not suit a kind, or a field is set that the
        architecture does not use.
    """
    for name, kinds in KINDS.items():
        fields.require_known(f"model.{name}", getattr(config, name), kinds)
    architecture, position = ARCHITECTURES[config.architecture], positions.KINDS[config.position]
    for name, value in UNUSED.items():
        if name not in architecture.uses and getattr(config, name) != value:
            raise _useless(config, name, f"set model.{name}={value}")
    # An architecture without heads has no self-attention.
    if "num_heads" not in architecture.uses and position.acts_on_attention():
        kinds = [name for name, kind in positions.KINDS.items() if not kind.acts_on_attention()]
        raise errors.UserError(
            f"model.architecture={config.architecture} has no self-attention for "
            f"model.position={config.position} to act on: choose one of {', '.join(kinds)}"
        )
    architecture.check(config)
    for name in position.even:
        if getattr(config, name) % 2:
            raise errors.UserError(
                f"model.position={config.position} needs an even {name}, "
                f"but model.{name}={getattr(config, name)}"
            )
    if config.attention_kernel == kernels.FUSED and position.reads_weights():
        raise errors.UserError(
            f"model.position={config.position} needs attention weights, which "
            f"model.attention_kernel={kernels.FUSED} does not store: set it to {kernels.PLAIN}"
        )
    return architecture(kernels.on(config, platform or jax.default_backend()), vocab_size)


def require_used(config: config_lib.ModelConfig, names: Iterable[str]) -> None:
    """Raises UserError if the architecture does not use one of the fields that a user has set.

    `build` refuses unused fields other than sizes by their values. It cannot refuse sizes, because
    a configuration has a value for every size.

    Args:
      config: the configuration after the fields were set.
      names: dotted names, such as "model.d_ff"; those of other sections are ignored.
    """
    uses = fields.lookup("model.architecture", config.architecture, ARCHITECTURES).uses
    pattern = fields.lookup("model.attention_pattern", config.attention_pattern, masks.PATTERNS)
    for name in names:
        section, _, field = name.partition(".")
        if section == "model" and field not in uses and field not in UNUSED:
            raise _useless(config, field, f"leave out {name}")
        if name == "model.global_every" and pattern is not masks.interleaved:
            raise _useless(config, field, f"leave out {name}", "attention_pattern")


def _useless(
    config: config_lib.ModelConfig, name: str, remedy: str, user: str = "architecture"
) -> errors.UserError:
    return errors.UserError(
        f"model.{user}={getattr(config, user)} has no use for "
        f"model.{name}={getattr(config, name)}: {remedy}"
    )


def init(model: interface.Architecture, key: PRNGKeyArray) -> Any:
    """Returns a model's initial parameters, boxed with their logical axes."""
    example = sequences.Sequences(*[jnp.zeros((1, 1), jnp.int32)] * 3)
    return model.init(key, example, example)


def draw(model: interface.Architecture, key: PRNGKeyArray) -> Any:
    """Returns the parameters of `init` as arrays on the default device.

    A program is compiled for each initialiser and shape. A single program for all parameters takes
    several times as long to compile, and longer with each layer.
    """
    params: list[Any] = []

    def trace(example: sequences.Sequences) -> None:
        with jax.ensure_compile_time_eval():  # evaluates all that does not depend on the example
            params.append(model.init(key, example, example))

    jax.eval_shape(trace, sequences.Sequences(*[jax.ShapeDtypeStruct((1, 1), jnp.int32)] * 3))
    return nn.unbox(params[0])


def outputs(
    model: interface.Architecture,
    params: Any,
    batch: sequences.Batch,
    rates: dropout.Rates = dropout.NONE,
    key: PRNGKeyArray | None = None,
) -> Any:
    """Returns a model's output at every target position, of shape B T D.

    Args:
      model: the model.
      params: its parameters.
      batch: the rows that the model reads.
      rates: dropout rates.
      key: key of dropout; None: no dropout.
    """
    rngs = None if key is None else {"dropout": key}
    return model.apply(params, batch.source, batch.target, rates, rngs=rngs)


def predictions(
    model: interface.Architecture,
    params: Any,
    batch: sequences.Batch,
    rates: dropout.Rates = dropout.NONE,
    key: PRNGKeyArray | None = None,
) -> interface.Predictions:
    """Returns a model's outputs and the labels of its loss; arguments are those of `outputs`."""
    rngs = None if key is None else {"dropout": key}
    predicted: Any = model.apply(params, batch, rates, rngs=rngs, method="predict")
    return predicted


def logits(
    model: interface.Architecture, params: Any, batch: sequences.Batch, *rest: Any, **options: Any
) -> Float[Array, "B T V"]:
    """Returns the logits at every target position; arguments are those of `outputs`."""
    return embedding.logits(embedding.of(params), outputs(model, params, batch, *rest, **options))
