"""The training loop: from the last checkpoint, or from the start, to the last step."""

import contextlib
import dataclasses
import logging
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from transformer_jax import config as config_lib
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.training import checkpoint, metrics, optimizer, sharding
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)

SKIPPED_STEPS, TRACED_STEPS = 2, 6  # --profile traces so many, once all is compiled


class NonFiniteError(config_lib.RunError):
    """A loss or gradient that is infinite or not a number."""


@dataclasses.dataclass
class _Interval:
    """Steps since the last line of metrics, and the seconds spent on them."""

    started: float
    steps: list[tuple[int, step_lib.Metrics]] = dataclasses.field(default_factory=list)
    paused: float = 0.0

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Time that is not training's."""
        start = time.monotonic()
        yield
        self.paused += time.monotonic() - start


def train(
    model: nn.Module,
    dataset: dataset_lib.Dataset,
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    workdir: pathlib.Path,
    dev_perplexity: Callable[[Any], float],
    profile: bool = False,
) -> tuple[step_lib.TrainState, float]:
    """Trains to config.train.num_steps, going on from the newest checkpoint if there is one.

    Args:
      model: an architecture.
      dataset: what to train on.
      config: the run.
      mesh: the devices.
      workdir: the run's folder.
      dev_perplexity: measured every config.log.dev_every steps.
      profile: whether to write a JAX trace of a few steps to workdir/profile.

    Returns:
      The last state, and wall seconds over all starts.

    Raises:
      NonFiniteError: a step's loss or gradient was not finite.
      UserError: the batch does not suit the mesh, or the checkpoint the tokenizer.
    """
    started = time.monotonic()
    batches = make_batches(dataset, config, mesh)
    _log.info(
        "packing fills %.1f%% of source and %.1f%% of target positions, over an epoch",
        *(100 * rate for rate in batches.fill_rates()),
    )
    checkpoints = checkpoint.Checkpoints(
        workdir / "checkpoints", config.checkpoint.keep, dataset.tokenizer.digest
    )
    last_saved = checkpoints.latest_step()
    state, earlier_seconds = _start_or_resume(model, config, mesh, checkpoints)

    def wall_seconds() -> float:
        return earlier_seconds + time.monotonic() - started

    first, num_steps = last_saved or 0, config.train.num_steps
    traced = _steps_to_trace(first, num_steps) if profile else range(0)
    log = metrics.MetricsLog(workdir, first)
    train_step = step_lib.make_step(model, config, mesh)
    hyper = step_lib.hyperparameters(config)
    key = jax.random.key(config.train.seed)
    interval = _Interval(time.monotonic())
    try:
        for step, batch in enumerate(batches.from_step(first), start=first + 1):
            if traced and step == traced[0]:
                jax.profiler.start_trace(str(workdir / "profile"))
            state, measured = train_step(state, sharding.put(batch, mesh), hyper, key)
            interval.steps.append((step, measured))
            if traced and step == traced[-1]:
                jax.block_until_ready(state)
                jax.profiler.stop_trace()
                _log.info("the trace lies in %s", workdir / "profile")
            at_end = step == num_steps
            values: dict[str, float] = {}
            if step % config.log.every == 0 or at_end:
                values = _summary(interval, last_saved, config)
                metrics.log_progress(step, num_steps, values)
                values["wall_seconds"] = wall_seconds()
                interval = _Interval(time.monotonic())
            if config.log.dev_every and step % config.log.dev_every == 0:
                with interval.pause():
                    values["dev_ppl"] = dev_perplexity(state.params)
                _log.info("step %s: development ppl %.3f", f"{step:,}", values["dev_ppl"])
            if values:
                log.write(step, values)
            if step % config.checkpoint.every == 0 or at_end:
                _check_finite(interval, last_saved)
                with interval.pause():
                    checkpoints.save(state, wall_seconds())
                last_saved = step
    finally:
        log.close()
        checkpoints.close()
    return state, wall_seconds()


def _start_or_resume(
    model: nn.Module,
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    checkpoints: checkpoint.Checkpoints,
) -> tuple[step_lib.TrainState, float]:
    """The state to go on from, and the wall seconds spent on it so far."""
    step = checkpoints.latest_step()
    if step is None:
        return step_lib.init_state(model, config, mesh), 0.0
    _log.info("going on from the checkpoint of step %s", f"{step:,}")
    return checkpoints.restore(*step_lib.state_shapes_and_shardings(model, config, mesh))


def _steps_to_trace(first: int, num_steps: int) -> range:
    begin = first + 1 + SKIPPED_STEPS
    steps = range(begin, min(begin + TRACED_STEPS, num_steps + 1))
    if not steps:
        _log.warning("no trace: at most %d steps are left", SKIPPED_STEPS)
    return steps


def make_batches(
    dataset: dataset_lib.Dataset, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> batching.TrainingBatches:
    """The run's input.

    Raises:
      UserError: the batch cannot be shared out over the mesh.
    """
    return batching.TrainingBatches(
        dataset,
        batch_rows=sharding.rows_for_budget(
            config.train.batch_tokens,
            config.data.target_length,
            config.train.accumulation_steps,
            mesh,
        ),
        source_length=config.data.source_length,
        target_length=config.data.target_length,
        window=config.data.packing_window,
        seed=config.train.seed,
        num_steps=config.train.num_steps,
        host=jax.process_index(),
        num_hosts=jax.process_count(),
    )


def _summary(
    interval: _Interval, last_saved: int | None, config: config_lib.Config
) -> dict[str, float]:
    """The interval's means over its tokens, and its speed."""
    _check_finite(interval, last_saved)
    seconds = time.monotonic() - interval.started - interval.paused
    step = interval.steps[-1][0]
    measured = [metric for _, metric in interval.steps]
    tokens = np.array([float(metric.tokens) for metric in measured])
    smoothed = np.array([float(metric.smoothed_loss) for metric in measured])
    true = np.array([float(metric.true_loss) for metric in measured])
    nats = min(true @ tokens / tokens.sum(), 700.0)  # beyond that a perplexity is no number
    return {
        "loss": float(smoothed @ tokens / tokens.sum()),
        "ppl": float(np.exp(nats)),
        "learning_rate": float(optimizer.learning_rate(step, config.train, config.model.d_model)),
        "gradient_norm": float(measured[-1].gradient_norm),
        "tokens": float(tokens.sum()),
        "tokens_per_second": float(tokens.sum()) / seconds,
        "seconds_per_step": seconds / len(measured),
    }


def _check_finite(interval: _Interval, last_saved: int | None) -> None:
    for step, metric in interval.steps:
        if not np.isfinite(float(metric.smoothed_loss) + float(metric.gradient_norm)):
            saved = (
                "there is no checkpoint yet"
                if last_saved is None
                else (f"the last good checkpoint is that of step {last_saved}")
            )
            raise NonFiniteError(
                f"step {step}: loss {float(metric.smoothed_loss)}, gradient norm "
                f"{float(metric.gradient_norm)}; {saved}"
            )
