"""The cost of a run before it runs: parameters, operations, and the devices that take them."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.benchmarks import measuring
from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.data import vocabulary
from transformer_jax.models import embedding

# A model is traced with more rows than any other axis has entries: divided by their number, the
# products that have no rows among their axes count nothing.
_ROWS = 1_000_003
# Models are traced for several devices: then no product has a form for CPUs besides, which would
# be traced too.
_SEVERAL = jax.sharding.AbstractMesh((2,), ("data",))


def parameters(config: config_lib.Config) -> int:
    """Number of the model's parameters."""
    return _counted(config).parameters


def training_flops(config: config_lib.Config) -> float:
    """Matrix-product operations of a whole training, padding included.

    A product of (m × k) with (k × n) counts 2 m k n; the backward pass counts twice the forward
    pass. Attention counts whole packed rows, as it is computed; logits count at every position,
    also where an objective asks for few of them (`losses.sparse_cross_entropy`). A teacher has its
    forward pass.
    """
    rows = config.train.batch_tokens // config.data.target_length * config.train.num_steps
    flops = 3.0 * _counted(config).flops
    if teacher := _teacher(config):
        flops += teacher.flops
    return rows * flops


def read_devices() -> Mapping[str, Any]:
    """Returns devices.json: peak rates and prices by kind of device, and where they are from."""
    return json.loads(pathlib.Path(__file__).with_name("devices.json").read_text(encoding="utf-8"))


class _Counted(NamedTuple):
    """The sizes of a model and of its forward pass."""

    parameters: int
    flops: int  # of a row's forward pass


def _counted(config: config_lib.Config) -> _Counted:
    """Counts a model, tracing at most two of layers that are alike."""
    model = config.model
    alike = model.attention_pattern != "interleaved"
    one, *more = (
        _traced(
            # One rate and one type for all: neither changes a shape, so that rows share a trace.
            dataclasses.replace(
                model, num_layers=layers, dropout_rate=0.0, compute_dtype="bfloat16"
            ),
            vocabulary.size(config),
            (config.data.source_length, config.data.target_length),
        )
        for layers in (range(1, min(model.num_layers, 2) + 1) if alike else [model.num_layers])
    )
    if not more:
        return one
    others, two = model.num_layers - 1, more[0]
    return _Counted(
        one.parameters + others * (two.parameters - one.parameters),
        one.flops + others * (two.flops - one.flops),
    )


def _teacher(config: config_lib.Config) -> _Counted | None:
    layers = config.train.teacher_layers
    return _counted(config_lib.replace(config, {"model.num_layers": layers})) if layers else None


@functools.cache  # tracing takes half a second, and a sweep's rows have few sizes
def _traced(sizes: config_lib.ModelConfig, vocab_size: int, lengths: tuple[int, int]) -> _Counted:
    model = models.build(sizes, vocab_size)
    key: Any = jax.eval_shape(lambda: jax.random.key(0))
    source, target = (
        sequences.Sequences(*[jax.ShapeDtypeStruct((_ROWS, length), jnp.int32)] * 3)
        for length in lengths
    )
    batch = sequences.Batch(source, target, target.tokens)

    def logits(params: Any, batch: sequences.Batch, key: Any) -> jax.Array:
        # The forward pass of a gradient, as training computes it.
        outputs, _ = jax.vjp(lambda p: models.predictions(model, p, batch, key=key).outputs, params)
        return embedding.logits(embedding.of(params), outputs)

    with jax.sharding.use_abstract_mesh(_SEVERAL):
        params = nn.unbox(jax.eval_shape(model.init, key, source, target))
        forward = jax.make_jaxpr(logits)(params, batch, key)
    return _Counted(
        sum(leaf.size for leaf in jax.tree.leaves(params)),
        measuring.matrix_flops(forward.jaxpr) // _ROWS,
    )
