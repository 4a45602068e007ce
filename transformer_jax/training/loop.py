"""The training loop, which starts a run or resumes it from its newest checkpoint."""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import numpy as np

from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import examples as examples_lib
from transformer_jax.distributed import hosts, memory, preemption, sharding
from transformer_jax.models import interface
from transformer_jax.training import checkpoint, metrics, tracking
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)

SKIPPED_STEPS = 2  # steps before a trace, during which programs are compiled
TRACED_STEPS = 6
_STOPPED = (
    "stopped by SIGTERM; the checkpoint of step {} is written, and the same command resumes from it"
)
_REMEDY = (
    "give a smaller --config.train.batch_tokens, or compute the batch in parts "
    "(--config.train.accumulation_steps), or shard the model over more devices "
    "(--config.mesh.fsdp); on accelerators --config.model.rematerialise=True saves memory too"
)


class DivergedError(errors.RunError):
    """The error that ends a run whose loss, gradient or perplexity is not finite."""


def train(
    model: interface.Architecture,
    dataset: dataset_lib.Dataset,
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    workdir: files.Path,
    dev_perplexity: Callable[[Any], float],
    tracker: tracking.Tracker | None = None,
    profile: bool = False,
    start: Callable[[step_lib.TrainState], step_lib.TrainState] = lambda state: state,
    teacher: Any = None,
) -> tuple[step_lib.TrainState, float]:
    """Trains a model to the last step, from the newest checkpoint if there is one.

    Args:
      model: the model.
      dataset: the run's dataset.
      config: the run's config.
      mesh: devices that compute.
      workdir: the run's folder.
      dev_perplexity: returns the perplexity on the development set, given the parameters.
      tracker: receives the metrics, in the first process.
      profile: whether the first process traces a few steps.
      start: returns the initial state of a new run, given a state with random parameters.
      teacher: the parameters of `step.teacher_model`; None without a teacher.

    Returns:
      The state after config.train.num_steps, and the seconds of wall time that the run has taken,
      including the time before it was resumed.

    Raises:
      DivergedError: the loss, the gradient or the development perplexity is not finite.
      PreemptedError: SIGTERM was received; a checkpoint is written.
      UserError: the batch does not suit the mesh, or the checkpoint does not suit the tokenizer.
    """
    started = time.monotonic()
    num_steps = config.train.num_steps
    batches = make_batches(dataset, config, mesh)
    folder = workdir / "checkpoints"
    tokenizer = dataset.tokenizer.digest
    with contextlib.closing(checkpoint.Checkpoints(folder, config, tokenizer)) as checkpoints:
        checkpoints.recover()
        first = checkpoints.latest_step() or 0
        # Compiled before the state exists, so that a step that does not fit into memory is refused.
        advance = compile_step(model, config, mesh) if first < num_steps else None
        state, spent = _start_or_resume(model, config, mesh, checkpoints, batches, start)
        started -= spent
        if advance is None:
            return state, time.monotonic() - started
        tally = _Tally(config, first)
        with (
            preemption.handled(),
            _opened_log(workdir, first, config, tracker) as log,
            _traced(workdir, first, num_steps, profile) as trace,
        ):
            hyper = step_lib.hyperparameters(config, teacher)
            key = jax.random.key(config.train.seed)
            for step, local in enumerate(batches.from_step(first), start=first + 1):
                batch = sharding.put(local, mesh, batches.batch_rows)
                state, measured = advance(state, batch, hyper, key)
                trace(step, state)
                tally.add(step, measured)
                values = _due(step, config, tally, state, dev_perplexity, started)
                if log and values:
                    log.write(step, values)
                stop = preemption.reached()
                if step % config.checkpoint.every == 0 or step == num_steps or stop:
                    starts = batches.part(step).plan.starts
                    with tally.paused(saving=step):
                        checkpoints.save(state, time.monotonic() - started, starts)
                if stop:
                    checkpoints.wait()
                    raise preemption.PreemptedError(_STOPPED.format(step))
            checkpoints.wait()
        return state, time.monotonic() - started


def compile_step(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> jax.stages.Compiled:
    """Compiles the training step, and logs the memory that it needs.

    Raises:
      UserError: the step needs more memory than the devices have.
    """
    try:
        program = step_lib.compile_step(model, config, mesh)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        # The first line of the error of a TPU's compiler contains both sizes.
        message = f"a step does not fit into memory ({str(error).splitlines()[0]}): {_REMEDY}"
        raise errors.UserError(message) from error
    needed, available = memory.of_program(program), memory.of_device(mesh)
    if needed is None or available is None:
        _log.info("this device does not report its memory or that of a step")
        return program
    needs, has = f"{needed / 2**30:.2f} GiB of memory", f"{available / 2**30:.2f} GiB"
    _log.info("a step needs %s, of %s on each device", needs, has)
    if needed > available:
        raise errors.UserError(f"a step needs {needs}, but the device has {has}: {_REMEDY}")
    return program


def _start_or_resume(
    model: interface.Architecture,
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    checkpoints: checkpoint.Checkpoints,
    batches: batching.TrainingBatches,
    start: Callable[[step_lib.TrainState], step_lib.TrainState],
) -> tuple[step_lib.TrainState, float]:
    """Returns the state to continue from, and the seconds of wall time spent on the run so far.

    The state is read from the newest checkpoint. If there is no checkpoint, it is a new state.
    """
    step = checkpoints.latest_step()
    source, target = batches.part(step or 0).fill_rates()
    _log.info(f"packing fills {source:.1%} of source and {target:.1%} of target positions")
    if step is None:
        return start(step_lib.init_state(model, config, mesh)), 0.0
    _log.info(f"resuming from the checkpoint of step {step:,}")
    shapes = step_lib.state_shapes(model, config, mesh)
    state, spent, window_starts = checkpoints.restore(shapes)
    batches.part(step).plan.remember(window_starts)
    return state, spent


def _due(
    step: int,
    config: config_lib.Config,
    tally: "_Tally",
    state: step_lib.TrainState,
    dev_perplexity: Callable[[Any], float],
    started: float,
) -> dict[str, float]:
    """Returns the metrics to log after a step, or {} if no metrics are due.

    Means over the steps since the last log are due every log.every steps, and the development
    perplexity every log.dev_every steps.
    """
    values: dict[str, float] = {}
    if step % config.log.every == 0 or step == config.train.num_steps:
        values = tally.means()
        part = config.train.objective if values.get("objective") else ""
        metrics.log_progress(step, config.train.num_steps, values, part)
        values["wall_seconds"] = time.monotonic() - started
    if config.log.dev_every and step % config.log.dev_every == 0:
        with tally.paused():
            try:
                values["dev_ppl"] = dev_perplexity(state.params)
            except errors.RunError as error:
                raise DivergedError(f"step {step}: {error}") from error
        _log.info(f"step {step:,}: development ppl {values['dev_ppl']:.3f}")
    return values


def _opened_log(
    workdir: files.Path, step: int, config: config_lib.Config, tracker: tracking.Tracker | None
) -> contextlib.AbstractContextManager[metrics.MetricsLog | None]:
    """Returns a context manager that opens and closes the metrics log of a run.

    It yields the log in the first process, and None in all other processes.

    Args:
      workdir: the run's folder.
      step: the step from which the run resumes, or 0.
      config: the run's config.
      tracker: receives the metrics too, if given.
    """
    if not hosts.is_first():
        return contextlib.nullcontext()
    return contextlib.closing(metrics.MetricsLog(workdir, step, config, tracker))


@final
class _Tally:
    """Metrics of the steps since the last logged line, and the time that these steps took."""

    def __init__(self, config: config_lib.Config, step: int) -> None:
        self._config, self._saved = config, step
        self._begin()

    def _begin(self) -> None:
        self._started, self._paused = time.monotonic(), 0.0
        self._steps: list[tuple[int, step_lib.Metrics]] = []

    def add(self, step: int, measured: step_lib.Metrics) -> None:
        """Adds a step's metrics, which devices may still be computing."""
        self._steps.append((step, measured))

    @contextlib.contextmanager
    def paused(self, saving: int | None = None) -> Iterator[None]:
        """Waits for all steps to end, runs the body, and excludes the body's time from the speed.

        Args:
          saving: the step of the checkpoint that the body writes, if any.

        Raises:
          DivergedError: a step's loss or gradient was not finite; the body is not run.
        """
        self._fetch()
        start = time.monotonic()
        yield
        self._paused += time.monotonic() - start
        self._saved = saving or self._saved

    def means(self) -> dict[str, float]:
        """Returns the metrics to log, such as the loss and the speed since the last call.

        The loss is a mean over all tokens since the last call.

        Raises:
          DivergedError: a step's loss or gradient was not finite.
        """
        measured = self._fetch()  # waits for the last step
        seconds = time.monotonic() - self._started - self._paused
        tokens = measured.tokens.astype(np.float64)
        nats = min(measured.true_loss @ tokens / tokens.sum(), 700.0)  # exp of more overflows
        last, _ = self._steps[-1]
        train, d_model = self._config.train, self._config.model.d_model
        share = sum(step <= train.objective_steps for step, _ in self._steps) / len(self._steps)
        self._begin()
        return {
            **({"objective": share} if train.objective_steps else {}),
            "loss": float(measured.smoothed_loss @ tokens / tokens.sum()),
            "ppl": float(np.exp(nats)),
            "learning_rate": float(step_lib.learning_rate(last, train, d_model)),
            "gradient_norm": float(measured.gradient_norm[-1]),
            "tokens": float(tokens.sum()),
            "tokens_per_second": float(tokens.sum()) / seconds,
            "seconds_per_step": seconds / len(tokens),
        }

    def _fetch(self) -> Any:
        """Waits for all steps, and returns one `step.Metrics` whose arrays have a value per step.

        Returns None if there are no steps.

        Raises:
          DivergedError: a step's loss or gradient was not finite.
        """
        fetched = jax.device_get([measured for _, measured in self._steps])
        for (step, _), one in zip(self._steps, fetched, strict=True):
            if not np.isfinite(one.smoothed_loss + one.gradient_norm):
                newest = f"the newest checkpoint is that of step {self._saved}"
                raise DivergedError(
                    f"step {step}: loss {one.smoothed_loss}, gradient norm {one.gradient_norm}; "
                    f"{newest if self._saved else 'there is no checkpoint yet'}; lower "
                    "train.learning_rate_scale or raise train.warmup_steps, in another --workdir"
                )
        if not fetched:
            return None
        columns: Any = map(np.array, zip(*fetched, strict=True))
        return step_lib.Metrics(*columns)


@contextlib.contextmanager
def _traced(
    workdir: files.Path, first: int, num_steps: int, wanted: bool
) -> Iterator[Callable[[int, step_lib.TrainState], None]]:
    """Traces a few steps with JAX's profiler, in the first process and if `wanted`.

    Yields:
      A function that starts or stops the trace; the caller calls it after each step.
    """
    folder = workdir / "profile"
    wanted = wanted and hosts.is_first()
    begin = first + SKIPPED_STEPS
    end = min(begin + TRACED_STEPS, num_steps)
    if wanted and end <= begin:
        _log.warning("no trace is written: at most %d steps are left", SKIPPED_STEPS)
    with contextlib.ExitStack() as trace:  # also ends the trace after an error

        def after(step: int, state: step_lib.TrainState) -> None:
            if wanted and step == begin < end:
                trace.enter_context(jax.profiler.trace(str(folder)))
            elif wanted and begin < step == end:
                jax.block_until_ready(state)
                trace.close()
                _log.info("the trace is in %s", folder)

        yield after


def make_batches(
    dataset: dataset_lib.Dataset, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> batching.TrainingBatches:
    """Returns a run's batches: first the batches of its objective, then of translation.

    Raises:
      UserError: the batch cannot be sharded over the mesh, or the objective has no examples.
    """
    rows = sharding.rows_of(config, mesh)
    train = config.train
    packed = functools.partial(
        batching.PackedBatches,
        config=config,
        batch_rows=rows,
        rows_here=sharding.rows_here(rows, mesh),
    )
    parts = []
    if train.objective_steps:
        texts = examples_lib.training(dataset, config)
        parts.append(packed(texts, num_steps=train.objective_steps))
    translations = examples_lib.TranslationExamples(dataset)
    rest = train.num_steps - train.objective_steps
    return batching.TrainingBatches([*parts, packed(translations, num_steps=rest)])
