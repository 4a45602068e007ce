"""The training loop: from the last checkpoint, or from the start, to the last step."""

import contextlib
import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import flax.linen as nn
import jax
import numpy as np

from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.distributed import hosts, memory, preemption, sharding
from transformer_jax.training import checkpoint, metrics, optimizer, together, tracking
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)

SKIPPED_STEPS, TRACED_STEPS = 2, 6  # --profile traces so many, once all is compiled


Measured = Mapping[str, np.ndarray]  # the fields of a run's `step.Metrics`, one number a step


class DivergedError(errors.RunError):
    """A loss, gradient or perplexity that is infinite, or no number.

    Attributes:
      seed: of the run that met it.
    """

    def __init__(self, message: str, seed: int) -> None:
        super().__init__(message)
        self.seed = seed


@final
class _Run:
    """One of the runs that are trained together, and its folder.

    Attributes:
      seed: the run's.
      step: where it stands.
      batches: its input.
      checkpoints: its checkpoints.
      earlier_seconds: spent on it by earlier starts.
    """

    def __init__(
        self,
        seed: int,
        workdir: files.Path,
        dataset: dataset_lib.Dataset,
        config: config_lib.Config,
        mesh: jax.sharding.Mesh,
        tracker: tracking.Tracker | None,
    ) -> None:
        """Opens the folder's checkpoints."""
        self.seed = seed
        self.workdir = workdir
        self._tracker = tracker
        self._config = config_lib.replace(config, {"train.seed": seed})
        self._mesh = mesh
        self.batches = make_batches(dataset, self._config, mesh)
        self.checkpoints = checkpoint.Checkpoints(
            workdir / "checkpoints", self._config, dataset.tokenizer.digest
        )
        self.checkpoints.recover()
        self.step = self.checkpoints.latest_step() or 0
        self.earlier_seconds: float | None = None

    def start_or_resume(self, model: nn.Module) -> step_lib.TrainState:
        """The state to go on from."""
        spent = 0.0
        if self.checkpoints.latest_step() is None:
            state = step_lib.init_state(model, self._config, self._mesh)
        else:
            step = f"{self.step:,}"
            _log.info("seed %d: going on from the checkpoint of step %s", self.seed, step)
            shapes = step_lib.state_shapes_and_shardings(model, self._config, self._mesh)
            state, spent, window_starts = self.checkpoints.restore(*shapes)
            self.batches.plan.remember(window_starts)
        if self.earlier_seconds is None:  # else it has caught up with others in this very start
            self.earlier_seconds = spent
        return state

    def open_log(self, step: int) -> metrics.MetricsLog:
        """What takes its metrics from a step on."""
        return metrics.MetricsLog(self.workdir, step, self._config, self._tracker)

    def wall_seconds(self, started: float) -> float:
        """Spent on the run, over all its starts; `started` is when this one was."""
        return (self.earlier_seconds or 0.0) + time.monotonic() - started

    def raise_if_not_finite(self, steps: Sequence[int], measured: Measured) -> None:
        """Raises DivergedError if one of some steps' metrics is infinite or not a number."""
        columns = (measured[name].tolist() for name in ("smoothed_loss", "gradient_norm"))
        for step, loss, norm in zip(steps, *columns, strict=True):
            if not np.isfinite(loss + norm):
                saved = (
                    f"the last good checkpoint is that of step {self.step}"
                    if self.step
                    else "there is no checkpoint yet"
                )
                raise DivergedError(
                    f"step {step}: loss {loss}, gradient norm {norm}; {saved}", self.seed
                )


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


@final
class _Group:
    """Runs that stand at one step and are trained together from there."""

    def __init__(
        self,
        runs: Sequence[_Run],
        model: nn.Module,
        config: config_lib.Config,
        mesh: jax.sharding.Mesh,
        dev_perplexity: Callable[[Any], float],
        started: float,
    ) -> None:
        """Starts or resumes the runs."""
        self._started = started
        self._runs, self._config, self._mesh = runs, config, mesh
        self._dev_perplexity = dev_perplexity
        self._first = runs[0].step
        self._rows = runs[0].batches.batch_rows
        with memory.refusals_explained(config, mesh, len(runs)):
            self._step = step_lib.compile_step(model, config, mesh, len(runs))
        memory.check(self._step, config, mesh, len(runs))
        self._state = together.stack([run.start_or_resume(model) for run in runs])
        if len(runs) > 1:
            _, shardings = step_lib.state_shapes_and_shardings(model, config, mesh)
            self._state = jax.device_put(self._state, together.shardings(shardings, len(runs)))

    def train(self, until: int, profile: bool) -> list[step_lib.TrainState]:
        """Takes all steps to `until`, where it writes checkpoints; returns the runs' states."""
        config, runs = self._config, self._runs
        traced = _steps_to_trace(self._first, until) if profile and hosts.is_first() else range(0)
        tracing = False
        logs = [run.open_log(self._first) for run in runs if hosts.is_first()]
        hyper = step_lib.hyperparameters(config)
        key = together.stack([jax.random.key(run.seed) for run in runs])
        inputs = zip(*[run.batches.from_step(self._first) for run in runs], strict=True)
        inputs = itertools.islice(inputs, until - self._first)
        self._interval = _Interval(time.monotonic())
        try:
            for step, batches in enumerate(inputs, start=self._first + 1):
                if traced and step == traced[0]:
                    jax.profiler.start_trace(str(runs[0].workdir / "profile"))
                    tracing = True
                batch = sharding.put(together.stack(batches), self._mesh, len(runs), self._rows)
                self._state, measured = self._step(self._state, batch, hyper, key)
                self._interval.steps.append((step, measured))
                if traced and step == traced[-1]:
                    jax.block_until_ready(self._state)
                    jax.profiler.stop_trace()
                    tracing = False
                    _log.info("the trace lies in %s", runs[0].workdir / "profile")
                values: list[dict[str, float]] = [{} for _ in runs]
                if step % config.log.every == 0 or step == config.train.num_steps:
                    values = self._summaries(step)
                if config.log.dev_every and step % config.log.dev_every == 0:
                    self._measure_dev(step, values)
                for log, found in zip(logs, values, strict=False):  # none but in the first process
                    if found:
                        log.write(step, found)
                stop = preemption.reached()
                if step % config.checkpoint.every == 0 or step == until or stop:
                    self._save(step)
                if stop:
                    raise self._stopped(step)
        finally:
            for log in logs:
                log.close()
            if tracing:
                jax.profiler.stop_trace()
        return [together.part(self._state, k, len(runs)) for k in range(len(runs))]

    def _summaries(self, step: int) -> list[dict[str, float]]:
        """For each run the means since the last summary, over its tokens, and its speed."""
        interval, fetched = self._interval, self._finite()
        seconds = time.monotonic() - interval.started - interval.paused  # after the last step's end
        found: list[dict[str, float]] = []
        for run, measured in zip(self._runs, fetched, strict=True):
            values = _summary(step, measured, seconds, self._config)
            metrics.log_progress(self._name(run), step, self._config.train.num_steps, values)
            found.append(values)
        for run, values in zip(self._runs, found, strict=True):
            values["wall_seconds"] = run.wall_seconds(self._started)
        self._interval = _Interval(time.monotonic())
        return found

    def _measure_dev(self, step: int, values: list[dict[str, float]]) -> None:
        if self._interval.steps:
            self._finite()
        with self._interval.pause():
            for k, (run, found) in enumerate(zip(self._runs, values, strict=True)):
                try:
                    params = together.part(self._state.params, k, len(self._runs))
                    found["dev_ppl"] = self._dev_perplexity(params)
                except errors.RunError as error:
                    raise DivergedError(f"step {step}: {error}", run.seed) from error
                name = self._name(run)
                _log.info("%sstep %s: development ppl %.3f", name, f"{step:,}", found["dev_ppl"])

    def _save(self, step: int) -> None:
        if self._interval.steps:
            self._finite()
        with self._interval.pause():
            for k, run in enumerate(self._runs):
                state = together.part(self._state, k, len(self._runs))
                seconds = run.wall_seconds(self._started)
                run.checkpoints.save(state, seconds, run.batches.plan.starts)
                run.step = step

    def _stopped(self, step: int) -> preemption.PreemptedError:
        for run in self._runs:
            run.checkpoints.wait()
        return preemption.PreemptedError(
            f"stopped by SIGTERM; the checkpoint of step {step} is written, and the same command "
            "goes on from there"
        )

    def _name(self, run: _Run) -> str:
        """What a run's log lines begin with, where there are several."""
        return f"seed {run.seed}: " if len(self._runs) > 1 else ""

    def _finite(self) -> list[Measured]:
        """For each run its metrics since the last summary.

        Raises:
          DivergedError: one is infinite or not a number.
        """
        fetched = jax.device_get([measured for _, measured in self._interval.steps])
        found: list[Measured] = []
        for k, run in enumerate(self._runs):
            measured = [together.part(each, k, len(self._runs)) for each in fetched]
            columns = map(np.array, zip(*measured, strict=True))
            found.append(dict(zip(step_lib.Metrics._fields, columns, strict=True)))
            run.raise_if_not_finite([step for step, _ in self._interval.steps], found[-1])
        return found


def train(
    model: nn.Module,
    dataset: dataset_lib.Dataset,
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    workdirs: Mapping[int, files.Path],
    dev_perplexity: Callable[[Any], float],
    trackers: Mapping[int, tracking.Tracker],
    profile: bool = False,
) -> dict[int, tuple[step_lib.TrainState, float]]:
    """Trains to config.train.num_steps, going on from the newest checkpoints if there are any.

    Args:
      model: an architecture.
      dataset: what to train on.
      config: the run; its seed does not count.
      mesh: the devices.
      workdirs: a run's folder for each seed; several runs are trained in one program.
      dev_perplexity: measured every config.log.dev_every steps.
      trackers: each is told the metrics of a seed, in the first process.
      profile: whether to write a JAX trace of a few steps to the first folder's profile.

    Returns:
      For each seed the last state, and wall seconds over all starts, those spent on seeds trained
      together counting for each of them.

    Raises:
      DivergedError: a step's loss or gradient was not finite.
      PreemptedError: SIGTERM came; what was trained is saved.
      UserError: the batch does not suit the mesh, or the checkpoint the tokenizer.
    """
    started = time.monotonic()
    runs = [
        _Run(seed, workdir, dataset, config, mesh, trackers.get(seed))
        for seed, workdir in workdirs.items()
    ]
    _log.info(
        "packing fills %.1f%% of source and %.1f%% of target positions",
        *(100 * rate for rate in runs[0].batches.fill_rates()),
    )
    states: dict[int, step_lib.TrainState] = {}
    try:
        # A kill may have come when some had written a checkpoint and others not: they catch up.
        while (behind := min(run.step for run in runs)) < config.train.num_steps:
            group = [run for run in runs if run.step == behind]
            until = min(
                (run.step for run in runs if run.step > behind), default=config.train.num_steps
            )
            trainer = _Group(group, model, config, mesh, dev_perplexity, started)
            with preemption.heeded():
                trained = trainer.train(until, profile)
                for run in group:
                    run.checkpoints.wait()
            if until == config.train.num_steps:
                states.update(zip([run.seed for run in group], trained, strict=True))
            del trained
        for run in runs:
            if run.seed not in states:
                states[run.seed] = run.start_or_resume(model)
    finally:
        for run in runs:
            run.checkpoints.close()
    return {run.seed: (states[run.seed], run.wall_seconds(started)) for run in runs}


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
    rows = sharding.rows_for_budget(
        config.train.batch_tokens, config.data.target_length, config.train.accumulation_steps, mesh
    )
    return batching.TrainingBatches(
        dataset,
        batch_rows=rows,
        source_length=config.data.source_length,
        target_length=config.data.target_length,
        window=config.data.packing_window,
        seed=config.train.seed,
        num_steps=config.train.num_steps,
        rows_here=sharding.rows_here(rows, mesh),
    )


def _summary(
    step: int, measured: Measured, seconds: float, config: config_lib.Config
) -> dict[str, float]:
    """Means over the tokens of some steps, and their speed."""
    tokens = measured["tokens"].astype(np.float64)
    nats = min(measured["true_loss"] @ tokens / tokens.sum(), 700.0)  # its exponential is a number
    return {
        "loss": float(measured["smoothed_loss"] @ tokens / tokens.sum()),
        "ppl": float(np.exp(nats)),
        "learning_rate": float(optimizer.learning_rate(step, config.train, config.model.d_model)),
        "gradient_norm": float(measured["gradient_norm"][-1]),
        "tokens": float(tokens.sum()),
        "tokens_per_second": float(tokens.sum()) / seconds,
        "seconds_per_step": seconds / len(tokens),
    }
