"""What a run tells TensorBoard: metrics by step, and its hyperparameters beside its results."""

import pathlib
import tempfile
import time
from collections.abc import Mapping
from typing import Any, final

from transformer_jax import config as config_lib
from transformer_jax import files

FOLDER = "tensorboard"  # in a run's


@final
class Events:
    """A file of events, which tells the run's hyperparameters first.

    Of several files of a run, as kills leave them, TensorBoard takes the hyperparameters once.
    """

    def __init__(self, folder: pathlib.Path, name: str, config: config_lib.Config) -> None:
        """Makes the file; the end of its name tells it from another's of the same second."""
        folder.mkdir(parents=True, exist_ok=True)
        # tensorboardX's SummaryWriter writes in a thread of its own, and waits for it for ever once
        # that has died of a full disk.
        self._file = _library().event_file_writer.EventsWriter(str(folder / "events"), f".{name}")
        # The experiment's summary is left out: it would say for all runs which fields there are,
        # and TensorBoard would not look for those in which they differ.
        _, start, self._end = _library().summary.hparams(hyperparameters(config), {})
        self._add(0, start)
        self._file.flush()

    def forget_after(self, step: int) -> None:
        """Makes TensorBoard forget what it had seen of later steps."""
        proto = _library().proto.event_pb2
        start = proto.SessionLog(status=proto.SessionLog.START)
        self._file.write_event(proto.Event(step=step + 1, session_log=start))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds values, by tag."""
        for name, value in values.items():
            self._add(step, _library().summary.scalar(name, value))
        self._file.flush()

    def close(self, is_done: bool = False) -> None:
        """Writes everything out, at the end also that the run is done."""
        if is_done:
            self._add(0, self._end)
        self._file.close()

    def _add(self, step: int, content: Any) -> None:
        event = _library().proto.event_pb2.Event(wall_time=time.time(), step=step, summary=content)
        self._file.write_event(event)


def _library() -> Any:
    """tensorboardX, imported when it is needed: it takes PyTorch along, if there, and seconds."""
    import tensorboardX.event_file_writer
    import tensorboardX.proto.event_pb2

    return tensorboardX


def hyperparameters(config: config_lib.Config) -> dict[str, bool | float | str]:
    """What TensorBoard shows of a configuration, by dotted name."""
    values = config_lib.to_dict(config)
    found = {
        f"{section}.{field}": value
        for section in ("model", "train", "decode")
        for field, value in values[section].items()
    }
    return {**found, "data.vocab_size": config.data.vocab_size}


def write_result(
    workdir: files.Path, config: config_lib.Config, ppl: float, bleu: float | None
) -> None:
    """Tells what a run has come to on the development set, in a file of events of its own."""
    with tempfile.TemporaryDirectory(prefix="events-") as name:
        here = pathlib.Path(name)
        events = Events(here, "result", config)
        score = {} if bleu is None else {"result/bleu": bleu}
        events.write(config.train.num_steps, {"result/ppl": ppl, **score})
        events.close(is_done=True)
        for file in files.below(here):
            files.write(workdir / FOLDER / file, (here / file).read_bytes())
