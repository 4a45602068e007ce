"""TensorBoard events of a run: metrics by step, hyperparameters and results."""

import pathlib
import tempfile
import time
from collections.abc import Mapping
from typing import Any, final

from transformer_jax import config as config_lib
from transformer_jax import files

FOLDER = "tensorboard"  # below a run's folder


@final
class Events:
    """A file of TensorBoard events, which begins with the run's hyperparameters.

    Each process that starts or resumes a run writes a separate file. TensorBoard reads the
    hyperparameters from one of these files.
    """

    def __init__(self, folder: pathlib.Path, name: str, config: config_lib.Config) -> None:
        """Creates the file.

        Args:
          folder: the folder of the file.
          name: the end of the file's name; files that are created in the same second need different
            names.
          config: the run's config.
        """
        folder.mkdir(parents=True, exist_ok=True)
        # Not tensorboardX's SummaryWriter: its thread dies when the disk is full, and closing it
        # then waits forever.
        self._file = _library().event_file_writer.EventsWriter(str(folder / "events"), f".{name}")
        # The experiment's summary is left out: it would list the fields of all runs, and
        # TensorBoard would not look for those in which runs differ.
        _, start, self._end = _library().summary.hparams(hyperparameters(config), {})
        self._add(0, start)
        self._file.flush()

    def forget_after(self, step: int) -> None:
        """Makes TensorBoard discard earlier events whose step is greater than `step`."""
        proto = _library().proto.event_pb2
        start = proto.SessionLog(status=proto.SessionLog.START)
        self._file.write_event(proto.Event(step=step + 1, session_log=start))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds the values of a step; keys are TensorBoard's tags, such as "loss"."""
        for name, value in values.items():
            self._add(step, _library().summary.scalar(name, value))
        self._file.flush()

    def close(self, is_done: bool = False) -> None:
        """Flushes and closes the file, and marks the run as finished if it is done."""
        if is_done:
            self._add(0, self._end)
        self._file.close()

    def _add(self, step: int, content: Any) -> None:
        event = _library().proto.event_pb2.Event(wall_time=time.time(), step=step, summary=content)
        self._file.write_event(event)


def _library() -> Any:
    """Returns the module tensorboardX, which is imported late because it may import PyTorch."""
    import tensorboardX.event_file_writer
    import tensorboardX.proto.event_pb2

    return tensorboardX


def hyperparameters(config: config_lib.Config) -> dict[str, bool | float | str]:
    """Returns the fields of a config that TensorBoard shows, by dotted name."""
    values = config_lib.to_dict(config)
    shown = {
        f"{section}.{field}": value
        for section in ("model", "train", "decode")
        for field, value in values[section].items()
    }
    return {**shown, "data.vocab_size": config.data.vocab_size}


def write_result(
    workdir: files.Path, config: config_lib.Config, ppl: float, bleu: float | None
) -> None:
    """Writes perplexity and BLEU on the development set into a separate file of events."""
    with tempfile.TemporaryDirectory(prefix="events-") as name:
        here = pathlib.Path(name)
        events = Events(here, "result", config)
        score = {} if bleu is None else {"result/bleu": bleu}
        events.write(config.train.num_steps, {"result/ppl": ppl, **score})
        events.close(is_done=True)
        for file in files.below(here):
            files.write(workdir / FOLDER / file, (here / file).read_bytes())
