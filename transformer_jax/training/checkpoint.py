"""Checkpoints of the training state, written in the background by Orbax."""

import functools
import itertools
import logging
import pathlib
from collections.abc import Sequence
from concurrent import futures
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from etils import epath

from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.distributed import hosts
from transformer_jax.training import manifest
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)


class Restored(NamedTuple):
    """The content of a checkpoint, as `Checkpoints.save` has written it."""

    state: step_lib.TrainState
    wall_seconds: float
    window_starts: Sequence[int]


@final
class Checkpoints:
    """The checkpoints of one run, each in a folder named after its step.

    The step number also gives the position in the training data, so that a run can resume from a
    checkpoint alone. The manifest of a checkpoint is written last. Before a checkpoint is read, its
    files are compared with its manifest.

    Regular checkpoints are written every config.checkpoint.every steps and after the last step. A
    run that is stopped between these steps writes one more checkpoint. This checkpoint is removed
    once the next checkpoint is complete.
    """

    def __init__(
        self, folder: files.Path, config: config_lib.Config, tokenizer_digest: str
    ) -> None:
        """Opens a folder of checkpoints, which need not exist.

        Args:
          folder: the folder.
          config: the run's config.
          tokenizer_digest: SHA-256 of the run's tokenizer. It is stored in each checkpoint and
            compared when the checkpoint is read.
        """
        self._folder = folder.absolute() if isinstance(folder, pathlib.Path) else folder
        self._config = config
        self._tokenizer_digest = tokenizer_digest
        self._orbax = ocp.AsyncCheckpointer(
            ocp.CompositeCheckpointHandler(
                state=ocp.StandardCheckpointHandler(), record=ocp.JsonCheckpointHandler()
            )
        )
        self._pool = futures.ThreadPoolExecutor(max_workers=1)
        self._finalizing: futures.Future[None] | None = None
        self._verified: set[int] = set()  # steps of checkpoints that match their manifests

    def recover(self) -> None:
        """Renames damaged checkpoints, so that the run resumes from an earlier checkpoint.

        The newest checkpoint, and the checkpoints that are to be averaged, are compared with their
        manifests. If a checkpoint is damaged, it and all newer checkpoints are renamed. The resumed
        run writes these checkpoints again.
        """
        hosts.from_first(self._recover)

    def _recover(self) -> None:
        superseded = [str(step) for step in self._superseded()]
        for folder in list(self._folder.glob("[0-9]*")):
            half_written = ocp.utils.is_tmp_checkpoint(folder)
            half_removed = folder.name in superseded
            if (half_written or half_removed) and not manifest.exists(folder):
                epath.Path(folder).rmtree()
        while True:
            step, fault = self._first_fault()
            if step is None:
                return
            _log.warning("the checkpoint of step %d cannot be read: %s", step, fault)
            # The damaged checkpoint is renamed after the newer ones. If the process is killed in
            # between, the next start finds the damaged checkpoint again.
            for newer in reversed(self._steps()):
                if newer >= step:
                    renamed = _free(self._folder / f"unreadable-{newer}")
                    (self._folder / str(newer)).rename(renamed)
                    _log.warning("the checkpoint of step %d is renamed to %s", newer, renamed)

    def latest_step(self) -> int | None:
        """Returns the step of the newest checkpoint, or None if there is none."""
        self.wait()
        return hosts.from_first(lambda: max(self._steps(), default=None))

    def save(
        self, state: step_lib.TrainState, wall_seconds: float, window_starts: Sequence[int] = (0,)
    ) -> None:
        """Copies the state and starts writing a checkpoint of the copy in the background.

        Args:
          state: the state.
          wall_seconds: seconds of wall time spent on the run so far.
          window_starts: `packing.Plan.starts`. It is stored because computing it again would take
            a resumed run minutes.

        Raises:
          RunError: the previous checkpoint could not be written.
        """
        self.wait()
        record = {
            "tokenizer_sha256": self._tokenizer_digest,
            "wall_seconds": wall_seconds,
            "window_starts": list(window_starts),
        }
        step = int(state.step)
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._orbax.save(
                self._folder / str(step),
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record)
                ),
            )
        except Exception as error:
            if not isinstance(error, OSError) and not files.met_in_a_bucket(error):
                raise
            hosts.await_peer_failure(error)
            raise _unwritten(step, error) from error
        self._finalizing = self._pool.submit(self._finalize, step)

    def _finalize(self, step: int) -> None:
        """Waits until a checkpoint is written, adds its manifest, and removes older checkpoints."""
        try:
            self._orbax.wait_until_finished()
            if hosts.is_first():
                # Orbax only warns if it leaves out arrays; this opens each of them.
                ocp.StandardCheckpointHandler().metadata(
                    epath.Path(self._folder / str(step) / "state")
                )
                manifest.write(self._folder / str(step))
                self._remove_superseded()
        except Exception as error:  # `wait` raises it
            hosts.await_peer_failure(error)
            raise _unwritten(step, error) from error

    def _remove_superseded(self) -> None:
        for old in self._superseded():
            folder = self._folder / str(old)
            try:
                manifest.remove(folder)  # first, because checkpoints without it are never read
                epath.Path(folder).rmtree()
            except Exception as error:  # the new checkpoint is safe; removal is tried again later
                _log.warning("%s could not be removed: %s", folder, error)

    def wait(self) -> None:
        """Waits until the current checkpoint is written; raises RunError if writing it failed."""
        if self._finalizing:
            futures.wait([self._finalizing])
            finished, self._finalizing = self._finalizing, None
            hosts.from_first(finished.result)  # no process reads before the first has finalized
            finished.result()

    def restore(self, shapes: step_lib.TrainState, step: int | None = None) -> Restored:
        """Reads a checkpoint.

        Args:
          shapes: shapes and shardings of the state, from `step.state_shapes`.
          step: the step of the checkpoint; None: the newest.

        Raises:
          UserError: there is no checkpoint, it is damaged, or it was written with another
            tokenizer.
        """
        step = self.latest_step() if step is None else step
        if step is None:
            raise errors.UserError(f"there is no checkpoint in {self._folder}")
        hosts.from_first(lambda: self._demand_verified(step))
        folder = self._folder / str(step)
        only = ocp.args.Composite(record=ocp.args.JsonRestore())
        record = self._orbax.restore(folder, args=only)["record"]
        if record["tokenizer_sha256"] != self._tokenizer_digest:
            raise errors.UserError(
                f"the checkpoint {folder} was written with the tokenizer "
                f"{record['tokenizer_sha256'][:16]}…, not with {self._tokenizer_digest[:16]}…: "
                "restore the run's own tokenizer.model, or train in another --workdir"
            )
        restored: Any = self._orbax.restore(
            folder, args=ocp.args.Composite(state=ocp.args.StandardRestore(shapes))
        )
        return Restored(
            step_lib.TrainState(*restored["state"]),
            float(record["wall_seconds"]),
            record["window_starts"],
        )

    def averaged(self, shapes: step_lib.TrainState) -> Any:
        """Returns the mean parameters of several checkpoints (section 6.1 of the paper).

        The mean is over the last config.evaluation.average_checkpoints regular checkpoints. If that
        number is 1, the parameters of the newest checkpoint are returned, even if it is not
        regular.

        Args:
          shapes: shapes and shardings of the state, from `step.state_shapes`.

        Raises:
          UserError: a checkpoint is missing or damaged, or was written with another tokenizer.
        """
        last = self._config.evaluation.average_checkpoints
        if last == 1:
            return self.restore(shapes).state.params
        self.wait()
        steps = hosts.from_first(self._regular)[-last:]
        if len(steps) < last:
            raise errors.UserError(
                f"evaluation.average_checkpoints={last}, but {self._folder} has {len(steps)}: "
                "restore the missing ones, or train in another --workdir"
            )
        parts = (self.restore(shapes, step).state.params for step in steps)
        total = functools.reduce(functools.partial(jax.tree.map, jnp.add), parts)
        return jax.tree.map(lambda leaf: leaf / last, total)

    def close(self) -> None:
        """Waits until this process's writing threads have finished, and ends them.

        `close` does not wait for other processes, which may have failed; `wait` does.
        """
        self._pool.shutdown()
        self._orbax.close()

    def _steps(self) -> list[int]:
        """Returns the steps of all checkpoints, ascending."""
        if not self._folder.exists():
            return []
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdecimal())

    def _regular(self) -> list[int]:
        every, last = self._config.checkpoint.every, self._config.train.num_steps
        return [step for step in self._steps() if step % every == 0 or step == last]

    def _in_use(self) -> list[int]:
        """Returns the steps of the checkpoints that resuming or evaluation would read, ascending.

        These are the newest checkpoint and those that are averaged.
        """
        averaged = self._config.evaluation.average_checkpoints
        regular = self._regular()[-averaged:] if averaged > 1 else []
        return sorted({*regular, *self._steps()[-1:]})

    def _superseded(self) -> list[int]:
        kept = {*self._regular()[-self._config.checkpoint.keep :], *self._steps()[-1:]}
        return [step for step in self._steps() if step not in kept]

    def _fault(self, step: int) -> str:
        if step in self._verified:
            return ""
        fault = manifest.fault(self._folder / str(step))
        if not fault:
            self._verified.add(step)
        return fault

    def _first_fault(self) -> tuple[int | None, str]:
        """Returns the step and the fault of the oldest damaged checkpoint of `_in_use`.

        Returns None and "" if no checkpoint is damaged.
        """
        for step in self._in_use():
            if fault := self._fault(step):
                return step, fault
        return None, ""

    def _demand_verified(self, step: int) -> None:
        if fault := self._fault(step):
            raise errors.UserError(
                f"the checkpoint {self._folder / str(step)} cannot be read: {fault}; delete the "
                "run's result.json and train it again: it resumes from the checkpoint before"
            )


def _free(path: files.Path) -> files.Path:
    """Returns `path` if it does not exist, otherwise `path` with the first free number appended."""
    paths = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    return next(each for each in itertools.chain([path], paths) if not each.exists())


def _unwritten(step: int, error: Exception) -> errors.RunError:
    return errors.RunError(f"the checkpoint of step {step} could not be written: {error}")
