"""The training state and the one compiled step that advances it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.data import objectives, vocabulary
from transformer_jax.distributed import sharding
from transformer_jax.models import dropout, embedding, interface
from transformer_jax.training import losses

# By kind of device. A v5e's operations may use 32 of its 128 MiB of on-chip memory, not 16: with
# larger tiles, base's step takes 6% fewer cycles by the compiler's estimate.
COMPILER_OPTIONS = {"TPU v5 lite": {"xla_tpu_scoped_vmem_limit_kib": "32768"}}


class TrainState(NamedTuple):
    """All that training carries from step to step, and all that a checkpoint holds."""

    step: Int[Array, ""]  # optimiser steps taken; also the position in the input
    params: Any  # the model's parameters, in float32
    opt_state: optax.OptState  # Adam's moments


class Hyperparameters(NamedTuple):
    """Numbers that are arguments of the compiled step, so that rows of Table 3 share it.

    The teacher is the parameters of `teacher`'s model; None: there is none. With it come the counts
    of the whole batch, which the step takes itself.
    """

    rates: dropout.Rates
    label_smoothing: Float[Array, ""]
    teacher: Any = None
    counted: losses.Counts | None = None


class Metrics(NamedTuple):
    """Of one step: losses are nats per label; tokens is the number of labels.

    In translation these are the target's tokens.
    """

    smoothed_loss: Float[Array, ""]
    true_loss: Float[Array, ""]
    tokens: Float[Array, ""]
    gradient_norm: Float[Array, ""]


def learning_rate(
    step: jax.typing.ArrayLike, config: config_lib.TrainConfig, d_model: int
) -> Float[Array, ""]:
    """Equation 3 of the paper, for step = 1, 2, …, times a factor.

    scale · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)
    """
    step = jnp.asarray(step, jnp.float32)
    shape = jnp.minimum(step**-0.5, step * config.warmup_steps**-1.5)
    return config.learning_rate_scale * d_model**-0.5 * shape


def optimizer(config: config_lib.TrainConfig, d_model: int) -> optax.GradientTransformation:
    """Adam as in section 5.3, with beta2 as configured; no clipping, no weight decay."""
    # optax counts updates from 0, the paper from 1.
    return optax.adam(
        lambda count: learning_rate(jnp.asarray(count) + 1, config, d_model),
        b1=0.9,
        b2=config.adam_beta2,
        eps=1e-9,
    )


def teacher(config: config_lib.Config) -> interface.Architecture | None:
    """The model that a run learns from: its own, with more layers."""
    layers = config.train.teacher_layers
    if not layers:
        return None
    return models.build(
        dataclasses.replace(config.model, num_layers=layers), vocabulary.size(config)
    )


def hyperparameters(config: config_lib.Config, taught_by: Any = None) -> Hyperparameters:
    """Those of a configuration, with the parameters of its teacher, if it has one."""
    model, train = config.model, config.train
    # The paper has neither rate: absent, they draw no random numbers.
    rare = model.attention_dropout_rate, model.feed_forward_dropout_rate
    others = (jnp.float32(rate) if rate else None for rate in rare)
    rates = dropout.Rates(jnp.float32(model.dropout_rate), *others)
    return Hyperparameters(rates, jnp.float32(train.label_smoothing), taught_by)


def _boxed_state(
    model: interface.Architecture, config: config_lib.Config, key: PRNGKeyArray
) -> TrainState:
    params = models.init(model, key)
    moments = optimizer(config.train, config.model.d_model).init(params)
    return TrainState(jnp.zeros((), jnp.int32), params, moments)


@functools.lru_cache(maxsize=8)
def state_shapes(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> TrainState:
    """What a state looks like and where it lives (each leaf's sharding), without making one."""
    boxed = jax.eval_shape(lambda: _boxed_state(model, config, jax.random.key(0)))
    shardings = sharding.parameter_shardings(boxed, mesh)
    return jax.tree.map(lambda leaf, where: leaf.update(sharding=where), nn.unbox(boxed), shardings)


def init_state(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> TrainState:
    """The state before the first step, drawn from train.seed."""
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state_shapes(model, config, mesh))
    init = jax.jit(lambda key: nn.unbox(_boxed_state(model, config, key)), out_shardings=shardings)
    return init(jax.random.key(config.train.seed))


def _gradient(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> Callable[..., tuple[Any, losses.Losses]]:
    """The gradient of a batch's summed loss, and the sums, as a function of the parameters."""
    shard_rows = sharding.rows_of(config, mesh) // sharding.batch_shards(mesh)
    shard_rows //= config.train.accumulation_steps
    platform = mesh.devices.flat[0].platform
    taught_by = teacher(config)
    objective = objectives.of(config)

    def total_loss(
        params: Any, batch: sequences.Batch, hyper: Hyperparameters, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], losses.Losses]:
        with sharding.activation_rules(mesh):
            outputs, labels, segments = models.predictions(model, params, batch, hyper.rates, key)
            matrix = embedding.of(params)
            size = shard_rows, outputs.shape[1], vocabulary.size(config), platform
            smoothing = hyper.label_smoothing
            if objective is not None and objective.masked:
                columns = losses.columns(*size)
                total = losses.cross_entropy_of_few(
                    outputs, matrix, labels, segments, smoothing, columns
                )
            else:
                chunks = losses.chunks(*size)
                total = losses.cross_entropy(outputs, matrix, labels, segments, smoothing, chunks)
            if taught_by is not None:
                assert hyper.counted
                teacher_outputs = models.predictions(taught_by, hyper.teacher, batch).outputs
                teacher_matrix = embedding.of(hyper.teacher)
                total = losses.distilled(
                    total,
                    outputs,
                    matrix,
                    teacher_outputs,
                    teacher_matrix,
                    segments,
                    hyper.counted,
                )
        return total.smoothed, total

    return jax.grad(total_loss, has_aux=True)


def _accumulated(
    gradient: Callable[..., tuple[Any, losses.Losses]], parts: int
) -> Callable[..., tuple[Any, losses.Losses]]:
    """The same, a batch's parts being computed one after another."""
    if parts == 1:
        return gradient

    def summed(
        params: Any, batch: sequences.Batch, hyper: Hyperparameters, key: PRNGKeyArray
    ) -> tuple[Any, losses.Losses]:
        # Row r belongs to part r % parts: each part then has rows on every device.
        split = jax.tree.map(lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), batch)

        def add(total: Any, part: Any) -> tuple[Any, None]:
            rows, index = part
            more = gradient(params, rows, hyper, jax.random.fold_in(key, index))
            return jax.tree.map(jnp.add, total, more), None

        part = jax.tree.map(lambda x: x[0], split)
        zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(gradient, params, part, hyper, key))
        return jax.lax.scan(add, zero, (split, jnp.arange(parts)))[0]

    return summed


def make_step(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> jax.stages.Wrapped:
    """Compiles, at its first call, one optimiser step; it consumes the state it is given.

    The loss is the mean over all real target tokens of the global batch, however many devices and
    accumulation steps compute it.
    """
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state_shapes(model, config, mesh))
    transformation = optimizer(config.train, config.model.d_model)
    gradient = _accumulated(_gradient(model, config, mesh), config.train.accumulation_steps)

    def step(
        state: TrainState, batch: sequences.Batch, hyper: Hyperparameters, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        if hyper.teacher is not None:
            hyper = hyper._replace(counted=losses.count(batch.labels, batch.target.segments))
        gradients, total = gradient(state.params, batch, hyper, jax.random.fold_in(key, state.step))
        gradients = jax.tree.map(lambda g: g / total.tokens, gradients)
        updates, opt_state = transformation.update(gradients, state.opt_state, state.params)
        means = total.smoothed / total.tokens, total.true / total.tokens
        metrics = Metrics(*means, total.tokens, optax.tree.norm(gradients))
        params = optax.apply_updates(state.params, updates)
        return TrainState(state.step + 1, params, opt_state), metrics

    everywhere = sharding.replicated(mesh)
    return jax.jit(
        step,
        in_shardings=(shardings, sharding.batch_sharding(mesh), everywhere, everywhere),
        out_shardings=(shardings, everywhere),
        donate_argnums=0,
    )


def compile_step(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> jax.stages.Compiled:
    """`make_step`'s step, compiled for the run's batches before there are any; see there."""
    rows, where = sharding.rows_of(config, mesh), sharding.batch_sharding(mesh)
    source, target = (
        jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=where)
        for length in (config.data.source_length, config.data.target_length)
    )
    batch = sequences.Batch(
        sequences.Sequences(*[source] * 3), sequences.Sequences(*[target] * 3), target
    )
    # Shapes, not arrays: what will run elsewhere takes none of this process's devices.
    hyper, key = jax.eval_shape(lambda: (hyperparameters(config), jax.random.key(0)))
    if taught_by := teacher(config):
        shapes = jax.eval_shape(functools.partial(models.init, taught_by), jax.random.key(0))
        hyper = hyper._replace(teacher=nn.unbox(shapes))
    step: Any = make_step(model, config, mesh)
    kind, state = mesh.devices.flat[0].device_kind, state_shapes(model, config, mesh)
    return step.lower(state, batch, hyper, key).compile(compiler_options=COMPILER_OPTIONS.get(kind))
