"""Models: what turns source and target tokens into logits."""

from collections.abc import Iterable, Mapping
from typing import Any

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
# The values that mean "without this part"; a size has no such value.
ABSENT: Mapping[str, Any] = {
    "num_kv_heads": 0,
    "attention_dropout_rate": 0,
    "feed_forward_dropout_rate": 0,
    "position": "none",
    "norm": "layer_norm",
    "norm_placement": "post",
    "embedding_norm": False,
    "feed_forward": "relu",
    "attention_pattern": "window",
    "window": 0,
    "recurrent_attention": "none",
    "attention_kernel": "plain",
    "rematerialise": False,
    "share_stacks": False,
    "source_attention": "causal",
}


def build(
    config: config_lib.ModelConfig, vocab_size: int, platform: str | None = None
) -> interface.Architecture:
    """The model that a configuration describes.

    It is built for a platform ("cpu", "gpu" or "tpu"), by default the one that JAX finds here.

    Raises:
      errors.UserError: a kind is unknown, or a size does not suit a kind.
    """
    fields.require_known("model.norm", config.norm, layers.NORMS)
    fields.require_known("model.norm_placement", config.norm_placement, layers.NORM_PLACEMENTS)
    fields.require_known("model.feed_forward", config.feed_forward, layers.FEED_FORWARDS)
    fields.require_known("model.attention_pattern", config.attention_pattern, masks.PATTERNS)
    fields.require_known("model.attention_kernel", config.attention_kernel, kernels.KINDS)
    position = fields.lookup("model.position", config.position, positions.KINDS)
    architecture = fields.lookup("model.architecture", config.architecture, ARCHITECTURES)
    fields.require_known(
        "model.recurrent_attention", config.recurrent_attention, recurrent_attention.ATTENTIONS
    )
    for field, value in ABSENT.items():
        if field not in architecture.reads and getattr(config, field) != value:
            raise _useless(config, field, f"set model.{field}={value}")
    architecture.check(config)
    for field in position.even:
        if getattr(config, field) % 2:
            raise errors.UserError(
                f"model.position={config.position} needs an even {field}, "
                f"but model.{field}={getattr(config, field)}"
            )
    if config.attention_kernel == kernels.FUSED and position.reads_weights():
        raise errors.UserError(
            f"model.position={config.position} needs attention's weights, which "
            f"model.attention_kernel={kernels.FUSED} does not write down: set it to {kernels.PLAIN}"
        )
    return architecture(kernels.on(config, platform or jax.default_backend()), vocab_size)


def require_read(config: config_lib.ModelConfig, names: Iterable[str]) -> None:
    """Raises UserError if a field that someone has set, by its dotted name, has no effect.

    `build` refuses parts that an architecture lacks. Sizes it cannot: a configuration has them all,
    whatever its architecture, so that a table's rows can change that alone. Only who sets one for
    an architecture that does not read it is mistaken.
    """
    reads = fields.lookup("model.architecture", config.architecture, ARCHITECTURES).reads
    pattern = fields.lookup("model.attention_pattern", config.attention_pattern, masks.PATTERNS)
    for name in names:
        section, _, field = name.partition(".")
        if section == "model" and field not in reads and field not in ABSENT:
            raise _useless(config, field, f"leave out {name}")
        if name == "model.global_every" and pattern is not masks.interleaved:
            raise _useless(config, field, f"leave out {name}", "attention_pattern")


def _useless(
    config: config_lib.ModelConfig, field: str, remedy: str, of: str = "architecture"
) -> errors.UserError:
    found = getattr(config, field)
    return errors.UserError(
        f"model.{of}={getattr(config, of)} has no use for model.{field}={found}: {remedy}"
    )


def init(model: interface.Architecture, key: PRNGKeyArray) -> Any:
    """A model's first parameters, boxed with their logical axes."""
    example = sequences.Sequences(*[jnp.zeros((1, 1), jnp.int32)] * 3)
    return model.init(key, example, example)


def outputs(
    model: interface.Architecture,
    params: Any,
    batch: sequences.Batch,
    rates: dropout.Rates = dropout.NONE,
    key: PRNGKeyArray | None = None,
) -> Any:
    """Returns a model's output at every target position, B T D; dropout needs a key."""
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
    """Scores of every token at every target position; arguments as those of `outputs`."""
    return embedding.logits(embedding.of(params), outputs(model, params, batch, *rest, **options))
