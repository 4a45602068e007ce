"""Metrics of a run: metrics.jsonl, TensorBoard, Weights & Biases and lines of progress."""

import json
import logging
import math
import pathlib
import statistics
import tempfile
from typing import Any, final

from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.training import tensorboard, tracking

_log = logging.getLogger(__name__)

RECORD = {"step": int}  # required keys of a line of metrics.jsonl


@final
class MetricsLog:
    """A writer of metrics by step to metrics.jsonl, TensorBoard and, optionally, a tracker."""

    def __init__(
        self,
        workdir: files.Path,
        step: int,
        config: config_lib.Config,
        tracker: tracking.Tracker | None = None,
    ) -> None:
        """Opens the log of a run, and removes records of steps after `step`.

        Args:
          workdir: the run's folder.
          step: the step from which the run resumes, or 0.
          config: the run's config.
          tracker: receives all metrics too, if given. `close` leaves the tracker open.
        """
        self._tracker = tracker
        self._workdir = workdir
        kept = [record for record in read(workdir) if record["step"] <= step]
        # Files in a bucket cannot be appended to.
        if isinstance(workdir, pathlib.Path):
            self._here, self._temporary = workdir, None
        else:
            self._temporary = tempfile.TemporaryDirectory(prefix="metrics-")
            self._here = pathlib.Path(self._temporary.name)
        if tracker:
            # A process of this run that was killed or offline may not have sent these records.
            for record in kept:
                values = {name: value for name, value in record.items() if name != "step"}
                tracker.log(record["step"], values)
        files.write_lines(self._here / "metrics.jsonl", [json.dumps(record) for record in kept])
        self._file = (self._here / "metrics.jsonl").open("a", encoding="utf-8")
        self._events = tensorboard.Events(self._here / tensorboard.FOLDER, str(step), config)
        if step:
            self._events.forget_after(step)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Writes the metrics of a step."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        self._events.write(step, values)
        if self._tracker:
            self._tracker.log(step, values)
        if self._temporary:
            for name in files.below(self._here):
                files.write(self._workdir / name, (self._here / name).read_bytes())

    def close(self) -> None:
        """Closes the files of the log."""
        self._file.close()
        self._events.close()
        if self._temporary:
            self._temporary.cleanup()


def read(workdir: files.Path) -> list[dict[str, Any]]:
    """Returns the records of `metrics.jsonl`, in the order of their steps.

    An incomplete last line, which a killed process may leave, is ignored.

    Raises:
      UserError: a complete line is damaged.
    """
    path = workdir / "metrics.jsonl"
    if not path.exists():
        return []
    before = 0
    records = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            record = files.parse_json(line, RECORD)
            if record["step"] <= before:
                raise ValueError(f"step {record['step']:,} comes after step {before:,}")
        except ValueError as error:
            raise errors.UserError(
                f"{path}: line {number:,} is damaged ({error}): delete that line"
            ) from error
        records.append(record)
        before = record["step"]
    return records


def tokens_per_second(workdir: files.Path) -> float | None:
    """Returns the median training speed of a run's log, in target tokens per second.

    Returns None if no speed is logged. Compilation time is not included.
    """
    rates = [r["tokens_per_second"] for r in read(workdir) if "tokens_per_second" in r]
    return statistics.median(rates) if rates else None


def log_progress(step: int, num_steps: int, values: dict[str, float], objective: str = "") -> None:
    """Logs a line with the step, the objective, the loss, the speed and the time left."""
    left = (num_steps - step) * values["seconds_per_step"]
    part = f" ({objective})" if objective else ""
    _log.info(
        f"step {step:,} of {num_steps:,}{part}   loss {values['loss']:.3f}   "
        f"ppl {values['ppl']:.2f}   {values['tokens_per_second']:,.0f} target tokens/s   "
        f"{duration(left)} left"
    )


def duration(seconds: float) -> str:
    """Returns a duration as text, such as "1:02:03" for an hour, two minutes and three seconds."""
    minutes, seconds = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
