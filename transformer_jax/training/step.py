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

# Options of the compiler by kind of device. On a v5e, operations may use 32 of its 128 MiB of
# on-chip memory, not 16: with larger tiles, the base model's step takes 6% fewer cycles by the
# compiler's estimate.
COMPILER_OPTIONS = {"TPU v5 lite": {"xla_tpu_scoped_vmem_limit_kib": "32768"}}


class TrainState(NamedTuple):
    """The state that training carries from step to step and that a checkpoint holds."""

    step: Int[Array, ""]  # optimiser steps taken; also the position in the input
    params: Any  # the model's parameters, in float32
    opt_state: optax.OptState  # Adam's moments


class Hyperparameters(NamedTuple):
    """Hyperparameters that the compiled step takes as arguments.

    Rows of Table 3 that differ in these alone share one program.
    """

    rates: dropout.Rates
    label_smoothing: Float[Array, ""]
    teacher_params: Any = None  # parameters of `teacher_model`; None without a teacher


class Metrics(NamedTuple):
    """Measurements of one step."""

    smoothed_loss: Float[Array, ""]  # the loss that is minimised, in nats per label
    true_loss: Float[Array, ""]  # the cross-entropy without smoothing, in nats per label
    tokens: Float[Array, ""]  # number of labels; in translation, of the target's tokens with EOS
    gradient_norm: Float[Array, ""]


def learning_rate(
    step: jax.typing.ArrayLike, config: config_lib.TrainConfig, d_model: int
) -> Float[Array, ""]:
    """Returns the learning rate of step 1, 2, …: equation 3 of the paper times a factor.

    scale · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)
    """
    step = jnp.asarray(step, jnp.float32)
    shape = jnp.minimum(step**-0.5, step * config.warmup_steps**-1.5)
    return config.learning_rate_scale * d_model**-0.5 * shape


def optimizer(config: config_lib.TrainConfig, d_model: int) -> optax.GradientTransformation:
    """Returns Adam as in section 5.3 of the paper, without clipping and weight decay."""
    # optax counts updates from 0, the paper from 1.
    return optax.adam(
        lambda count: learning_rate(jnp.asarray(count) + 1, config, d_model),
        b1=0.9,
        b2=config.adam_beta2,
        eps=1e-9,
    )


def teacher_model(config: config_lib.Config) -> interface.Architecture | None:
    """Returns the model that a run is distilled from, or None without train.teacher_layers.

    It differs from the run's model in its number of layers alone.
    """
    layers = config.train.teacher_layers
    if not layers:
        return None
    return models.build(
        dataclasses.replace(config.model, num_layers=layers), vocabulary.size(config)
    )


def hyperparameters(config: config_lib.Config, teacher_params: Any = None) -> Hyperparameters:
    """Returns the hyperparameters of a config, with the parameters of its teacher, if any."""
    model, train = config.model, config.train

    def optional(rate: float) -> Float[Array, ""] | None:
        return jnp.float32(rate) if rate else None  # a rate of None draws no random numbers

    rates = dropout.Rates(
        jnp.float32(model.dropout_rate),
        optional(model.attention_dropout_rate),
        optional(model.feed_forward_dropout_rate),
    )
    return Hyperparameters(rates, jnp.float32(train.label_smoothing), teacher_params)


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
    """Returns the shapes, types and shardings of a state's arrays, without computing them."""
    boxed = jax.eval_shape(lambda: _boxed_state(model, config, jax.random.key(0)))
    shardings = sharding.parameter_shardings(boxed, mesh)
    return jax.tree.map(lambda leaf, where: leaf.update(sharding=where), nn.unbox(boxed), shardings)


def init_state(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> TrainState:
    """Returns the state before the first step, drawn from train.seed."""
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state_shapes(model, config, mesh))
    params = models.draw(model, jax.random.key(config.train.seed))
    params = jax.device_put(params, shardings.params)
    init_moments = optimizer(config.train, config.model.d_model).init
    moments = jax.jit(init_moments, out_shardings=shardings.opt_state)(params)
    return TrainState(jax.device_put(jnp.zeros((), jnp.int32), shardings.step), params, moments)


def _cross_entropy(
    config: config_lib.Config, mesh: jax.sharding.Mesh
) -> Callable[[interface.Predictions, Any, Float[Array, ""]], losses.Losses]:
    """Returns a function from predictions, the embedding and the smoothing to the cross-entropy."""
    rows = sharding.rows_of(config, mesh) // sharding.batch_shards(mesh)
    rows //= config.train.accumulation_steps
    vocab_size, platform = vocabulary.size(config), mesh.devices.flat[0].platform
    objective = objectives.of(config)
    is_sparse = objective is not None and objective.masked

    def cross_entropy(
        predictions: interface.Predictions, matrix: Any, smoothing: Float[Array, ""]
    ) -> losses.Losses:
        outputs, labels, segments = predictions
        length = outputs.shape[1]
        if is_sparse:
            columns = losses.columns(rows, length, vocab_size, platform)
            return losses.sparse_cross_entropy(
                outputs, matrix, labels, segments, smoothing, columns
            )
        chunks = losses.chunks(rows, length, vocab_size, platform)
        return losses.cross_entropy(outputs, matrix, labels, segments, smoothing, chunks)

    return cross_entropy


def _loss(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> Callable[..., losses.Losses]:
    """Returns the loss function of a config: cross-entropy or, with a teacher, distillation.

    Returns:
      A function of the parameters, a batch or a part of it, the hyperparameters, the counts of the
      whole batch and the key of dropout. It returns sums over the part's labels.
    """
    cross_entropy = _cross_entropy(config, mesh)

    def plain(
        params: Any,
        batch: sequences.Batch,
        hyper: Hyperparameters,
        counts: losses.Counts,
        key: PRNGKeyArray,
    ) -> losses.Losses:
        predictions = models.predictions(model, params, batch, hyper.rates, key)
        return cross_entropy(predictions, embedding.of(params), hyper.label_smoothing)

    teacher = teacher_model(config)
    if teacher is None:
        return plain

    def distillation(
        params: Any,
        batch: sequences.Batch,
        hyper: Hyperparameters,
        counts: losses.Counts,
        key: PRNGKeyArray,
    ) -> losses.Losses:
        student = models.predictions(model, params, batch, hyper.rates, key)
        matrix = embedding.of(params)
        return losses.distillation(
            cross_entropy(student, matrix, hyper.label_smoothing),
            student.outputs,
            matrix,
            models.predictions(teacher, hyper.teacher_params, batch).outputs,
            embedding.of(hyper.teacher_params),
            student.segments,
            counts,
        )

    return distillation


def _gradient(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> Callable[..., tuple[Any, losses.Losses]]:
    """Returns a function that computes the gradient of the loss function of `_loss`, and the loss.

    The function has the same arguments as the loss function.
    """
    loss, parts = _loss(model, config, mesh), config.train.accumulation_steps

    def summed_loss(params: Any, *rest: Any) -> tuple[Float[Array, ""], losses.Losses]:
        with sharding.activation_rules(mesh):
            sums = loss(params, *rest)
        return sums.smoothed, sums

    gradient = jax.grad(summed_loss, has_aux=True)

    def accumulated(
        params: Any,
        batch: sequences.Batch,
        hyper: Hyperparameters,
        counts: losses.Counts,
        key: PRNGKeyArray,
    ) -> tuple[Any, losses.Losses]:
        # Row r belongs to part r % parts, so that each part has rows on every device.
        split = jax.tree.map(lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), batch)

        def add(total: Any, part: Any) -> tuple[Any, None]:
            rows, index = part
            more = gradient(params, rows, hyper, counts, jax.random.fold_in(key, index))
            return jax.tree.map(jnp.add, total, more), None

        part = jax.tree.map(lambda x: x[0], split)
        shapes = jax.eval_shape(gradient, params, part, hyper, counts, key)
        zero = jax.tree.map(jnp.zeros_like, shapes)
        return jax.lax.scan(add, zero, (split, jnp.arange(parts)))[0]

    return gradient if parts == 1 else accumulated


def make_step(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> jax.stages.Wrapped:
    """Returns the function of one optimiser step, which donates its state.

    It is compiled at its first call and returns the next state and the metrics of the step.

    The loss is the mean over all labels of the global batch, whatever the number of devices and of
    accumulation steps.
    """
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state_shapes(model, config, mesh))
    transformation = optimizer(config.train, config.model.d_model)
    gradient = _gradient(model, config, mesh)

    def step(
        state: TrainState, batch: sequences.Batch, hyper: Hyperparameters, key: PRNGKeyArray
    ) -> tuple[TrainState, Metrics]:
        counts = losses.count(batch.labels, batch.target.segments)
        step_key = jax.random.fold_in(key, state.step)
        gradients, sums = gradient(state.params, batch, hyper, counts, step_key)
        gradients = jax.tree.map(lambda g: g / sums.tokens, gradients)
        updates, opt_state = transformation.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = Metrics(
            smoothed_loss=sums.smoothed / sums.tokens,
            true_loss=sums.true / sums.tokens,
            tokens=sums.tokens,
            gradient_norm=optax.tree.norm(gradients),
        )
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
    """Returns `make_step`'s step compiled ahead of time for the shapes of the run's batches."""
    rows, where = sharding.rows_of(config, mesh), sharding.batch_sharding(mesh)
    source, target = (
        jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=where)
        for length in (config.data.source_length, config.data.target_length)
    )
    batch = sequences.Batch(
        sequences.Sequences(*[source] * 3), sequences.Sequences(*[target] * 3), target
    )
    # Shapes, not arrays, so that compiling for other devices needs none of this process's.
    hyper, key = jax.eval_shape(lambda: (hyperparameters(config), jax.random.key(0)))
    if teacher := teacher_model(config):
        shapes = jax.eval_shape(functools.partial(models.init, teacher), jax.random.key(0))
        hyper = hyper._replace(teacher_params=nn.unbox(shapes))
    step: Any = make_step(model, config, mesh)
    kind, state = mesh.devices.flat[0].device_kind, state_shapes(model, config, mesh)
    return step.lower(state, batch, hyper, key).compile(compiler_options=COMPILER_OPTIONS.get(kind))
