"""Checkpoints: state and input position together, written in the background by Orbax."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from transformer_jax import config as config_lib
from transformer_jax.training import step as step_lib


class Restored(NamedTuple):
    """What a checkpoint holds; see `Checkpoints.save`."""

    state: step_lib.TrainState
    wall_seconds: float
    window_starts: Sequence[int]


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

    def save(
        self, state: step_lib.TrainState, wall_seconds: float, window_starts: Sequence[int] = (0,)
    ) -> None:
        """Starts writing a checkpoint; training may go on at once.

        Args:
          state: copied before this returns.
          wall_seconds: spent on the run so far, over all its starts.
          window_starts: what the plan of the input knows, which saves the next start its packing.
        """
        record = {
            "tokenizer_sha256": self._tokenizer_digest,
            "wall_seconds": wall_seconds,
            "window_starts": list(window_starts),
        }
        self._manager.save(
            int(state.step),
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record)
            ),
        )

    def restore(
        self,
        shapes: step_lib.TrainState,
        shardings: step_lib.TrainState,
        step: int | None = None,
    ) -> Restored:
        """Reads a checkpoint onto the devices of `shardings`.

        Args:
          shapes: of the state.
          shardings: where its parts shall live.
          step: the checkpoint's; None for the newest.

        Raises:
          UserError: there is no checkpoint, or it was written with another tokenizer.
        """
        self._manager.wait_until_finished()
        step = self.latest_step() if step is None else step
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
        return Restored(
            step_lib.TrainState(*restored["state"]),
            float(record["wall_seconds"]),
            record["window_starts"],
        )

    def averaged(
        self, shapes: step_lib.TrainState, shardings: step_lib.TrainState, last: int
    ) -> Any:
        """The mean of the parameters of the last checkpoints, as in section 6.1 of the paper.

        Args:
          shapes: of the state.
          shardings: where its parts shall live.
          last: how many checkpoints, the newest included.

        Raises:
          UserError: there are not so many, or one was written with another tokenizer.
        """
        self._manager.wait_until_finished()
        steps = sorted(self._manager.all_steps())[-last:]
        if len(steps) < last:
            raise config_lib.UserError(
                f"evaluation.average_checkpoints={last}, but {self._manager.directory} has "
                f"{len(steps)}"
            )
        total = self.restore(shapes, shardings, steps[0]).state.params
        for step in steps[1:]:
            more = self.restore(shapes, shardings, step).state.params
            total = jax.tree.map(jnp.add, total, more)
        return jax.tree.map(lambda leaf: leaf / last, total)

    def close(self) -> None:
        """Waits for what is being written."""
        self._manager.wait_until_finished()
        self._manager.close()
