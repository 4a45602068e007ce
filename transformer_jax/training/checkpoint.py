"""Checkpoints: state and input position together, written in the background by Orbax."""

import pathlib
from typing import Any, final

import jax
import orbax.checkpoint as ocp

from transformer_jax import config as config_lib
from transformer_jax.training import step as step_lib


@final
class Checkpoints:
    """The checkpoints of one run.

    The state's `step` is also the position in the input, so nothing else is needed to go on.
    """

    def __init__(self, folder: pathlib.Path, keep: int, tokenizer_digest: str) -> None:
        """Opens or creates a folder of checkpoints.

        Args:
          folder: where they are.
          keep: how many of the newest to keep.
          tokenizer_digest: SHA-256 of the tokenizer whose ids the model reads; stored in each
            checkpoint, and demanded of each that is read.
        """
        self._tokenizer_digest = tokenizer_digest
        # Orbax would find out that it cannot make its folder only after minutes of waiting.
        folder.mkdir(parents=True, exist_ok=True)
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, enable_async_checkpointing=True, create=True
            ),
        )

    def latest_step(self) -> int | None:
        """The step of the newest checkpoint, or None if there is none."""
        return self._manager.latest_step()

    def save(self, state: step_lib.TrainState, wall_seconds: float) -> None:
        """Starts writing a checkpoint; training may go on at once.

        Args:
          state: copied before this returns.
          wall_seconds: spent on the run so far, over all its starts.
        """
        record = {"tokenizer_sha256": self._tokenizer_digest, "wall_seconds": wall_seconds}
        self._manager.save(
            int(state.step),
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record)
            ),
        )

    def restore(
        self, shapes: step_lib.TrainState, shardings: step_lib.TrainState
    ) -> tuple[step_lib.TrainState, float]:
        """Reads the newest checkpoint onto the devices of `shardings`.

        Returns:
          The state, and the wall seconds spent on the run until then.

        Raises:
          UserError: there is no checkpoint, or it was written with another tokenizer.
        """
        self._manager.wait_until_finished()
        step = self.latest_step()
        if step is None:
            raise config_lib.UserError(f"there is no checkpoint in {self._manager.directory}")
        record = self._manager.restore(
            step, args=ocp.args.Composite(record=ocp.args.JsonRestore())
        )["record"]
        if record["tokenizer_sha256"] != self._tokenizer_digest:
            raise config_lib.UserError(
                f"the checkpoint {self._manager.directory}/{step} was written with the tokenizer "
                f"{record['tokenizer_sha256'][:16]}…, not with {self._tokenizer_digest[:16]}…"
            )
        abstract = jax.tree.map(
            lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
            shapes,
            shardings,
        )
        restored: Any = self._manager.restore(
            step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
        )
        return step_lib.TrainState(*restored["state"]), float(record["wall_seconds"])

    def close(self) -> None:
        """Waits for what is being written."""
        self._manager.wait_until_finished()
        self._manager.close()
