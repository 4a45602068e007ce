"""What a run will cost: parameters, floating-point operations and memory, without running it."""

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.benchmarks import measuring
from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.data import objectives, vocabulary
from transformer_jax.distributed import sharding
from transformer_jax.models import dropout, embedding
from transformer_jax.training import losses

# A model is traced for so many rows, more than any axis has: an array whose size this prime divides
# has the rows among its axes.
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
    also where an objective asks for few of them (`losses.cross_entropy_of_few`). A teacher has its
    forward pass.
    """
    rows = config.train.batch_tokens // config.data.target_length * config.train.num_steps
    flops = 3.0 * _counted(config).flops
    if teacher := _teacher(config):
        flops += teacher.flops
    return rows * flops


def memory_bytes(config: config_lib.Config, devices: int) -> float:
    """What training holds on each device at its peak, as far as is known before compiling.

    That is the state, a teacher's parameters, and what is kept for the backward pass when it
    begins: activations and cast parameters in the type that the model computes in, masks of
    dropout, logits and their gradient, and the embedding's gradient. What the forward pass
    made in float32 between those, a compiler computes again. On an fsdp mesh gathered parameters
    come on top; a tensor mesh's activations are counted whole.
    """
    counted, size = _counted(config), config.model.dtype.itemsize
    data, fsdp, tensor = sharding.mesh_sizes(config.mesh, devices)
    parts = config.train.accumulation_steps
    length = config.data.target_length
    rows = -(-config.train.batch_tokens // length // (parts * data * fsdp))
    arrays = 3 if parts == 1 else 4  # parameters, Adam's two moments; the parts' summed gradient
    state = arrays * 4 * counted.parameters / (fsdp * tensor)
    if teacher := _teacher(config):
        state += 4 * teacher.parameters
    vocab_size = vocabulary.size(config)
    if objectives.asks_few(config):
        positions = rows * losses.columns(rows, length, vocab_size, "tpu")
    else:
        positions = rows // losses.chunks(rows, length, vocab_size, "tpu") * length
    logits = 2 * size * positions * vocab_size
    once = counted.kept_once + (counted.parameters if fsdp > 1 else 0)
    kept = size * (once + rows * counted.kept) + rows * counted.kept_masks
    return state + kept + logits + 4 * vocab_size * config.model.d_model / tensor


class _Counted(NamedTuple):
    """What a model is made of, and what its forward pass leaves for the backward pass."""

    parameters: int
    flops: int  # of a row's forward pass
    kept: int  # a row's values in the model's type
    kept_masks: int  # a row's that are true or false
    kept_once: int  # values in the model's type, however many rows there are


def _counted(config: config_lib.Config) -> _Counted:
    """Of layers that are alike, those after the second are not traced: each is as the second."""
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
            config.train.scheduled_sampling > 0,
            config.train.source_loss > 0,
        )
        for layers in (range(1, min(model.num_layers, 2) + 1) if alike else [model.num_layers])
    )
    if not more:
        return one
    others = model.num_layers - 1
    return _Counted(*(a + others * (b - a) for a, b in zip(one, more[0], strict=True)))


def _teacher(config: config_lib.Config) -> _Counted | None:
    layers = config.train.teacher_layers
    return _counted(config_lib.replace(config, {"model.num_layers": layers})) if layers else None


@functools.cache  # tracing takes half a second, and a sweep's rows have few sizes
def _traced(
    sizes: config_lib.ModelConfig,
    vocab_size: int,
    lengths: tuple[int, int],
    samples: bool,
    source_counts: bool,
) -> _Counted:
    model = models.build(sizes, vocab_size)
    key: Any = jax.eval_shape(lambda: jax.random.key(0))
    scalar: Any = jax.ShapeDtypeStruct((), jnp.float32)
    optional = (sizes.attention_dropout_rate, sizes.feed_forward_dropout_rate)
    rates = dropout.Rates(scalar, *(scalar if rate else None for rate in optional))
    source, target = (
        sequences.Sequences(*[jax.ShapeDtypeStruct((_ROWS, length), jnp.int32)] * 3)
        for length in lengths
    )
    batch = sequences.Batch(source, target, target.tokens)

    def backward(params: Any, batch: sequences.Batch, rates: Any, key: Any, sampling: Any) -> Any:
        def outputs_of(params: Any) -> Any:
            if not source_counts:
                return models.outputs(model, params, batch, rates, key, sampling)
            both = models.outputs(model, params, batch, rates, key, method="both")
            return jnp.concatenate(both, axis=1)

        outputs, kept = jax.vjp(outputs_of, params)
        return embedding.logits(embedding.of(params), outputs), outputs, kept

    with jax.sharding.use_abstract_mesh(_SEVERAL):
        params = nn.unbox(jax.eval_shape(model.init, key, source, target))
        arguments = (params, batch, rates, key, scalar if samples else None)
        forward, (_, *kept) = jax.make_jaxpr(backward, return_shape=True)(*arguments)
    leaves = jax.tree.leaves(kept)
    ours = [leaf.size for leaf in leaves if leaf.dtype == jnp.bfloat16]
    masks = [leaf.size for leaf in leaves if leaf.dtype == jnp.bool_]
    return _Counted(
        sum(leaf.size for leaf in jax.tree.leaves(params)),
        measuring.matrix_flops(forward.jaxpr) // _ROWS,
        sum(size for size in ours if size % _ROWS == 0) // _ROWS,
        sum(size for size in masks if size % _ROWS == 0) // _ROWS,
        sum(size for size in ours if size % _ROWS),
    )
