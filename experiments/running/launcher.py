"""What --launcher names, which runs the cells of a sweep or is handed them, and its flags."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, final

from absl import flags

from experiments.running import handing_over, here
from experiments.sweep import cells as cells_lib
from experiments.sweep import seconds
from launch import engine, local
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.distributed import sharding

LAUNCHER = flags.DEFINE_string(
    "launcher",
    local.Local.name,
    "Where to run: local, on this machine; slurm, as an array of jobs; skypilot, as managed jobs; "
    "xpk, as workloads on GKE; tpu-vm prints the lines for one Cloud TPU slice.",
)
# What follows is in engine.Settings, under the flags' names.
flags.DEFINE_integer(
    "parallel",
    engine.Settings.parallel,
    "Runs at a time, which share this machine's devices; 0: one for each CPU core, or one if JAX "
    "has an accelerator. With slurm: at most so many; 0: as many as it has room for.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "nodes",
    engine.Settings.nodes,
    "With an engine: machines that train each run together.",
    lower_bound=1,
)
flags.DEFINE_string(
    "launcher_options",
    engine.Settings.launcher_options,
    "More options of the engine's own command: '--partition=gpu --gpus-per-node=1 --time=8:00:00'.",
)
flags.DEFINE_string(
    "slurm_script",
    engine.Settings.slurm_script,
    "A changed copy of launch/slurm.sh, which runs a cell.",
)
flags.DEFINE_string(
    "bucket",
    engine.Settings.bucket,
    "Where machines that share no disk with this one leave runs: gs://BUCKET/FOLDER.",
)
flags.DEFINE_string(
    "accelerator",
    engine.Settings.accelerator,
    "What those machines have, as the engine names it: tpu-v5litepod-8, H100:8.",
)
flags.DEFINE_boolean("spot", engine.Settings.spot, "Whether those machines may be taken away.")


@final
class Launcher:
    """Runs cells here, or hands them to who does."""

    def __init__(self) -> None:
        """Raises UserError if --launcher names none."""
        values: dict[str, Any] = flags.FLAGS.flag_values_dict()
        fields = dataclasses.fields(engine.Settings)
        self._settings = engine.Settings(**{field.name: values[field.name] for field in fields})
        known = {local.Local.name: local.Local, **handing_over.QUEUES}
        config_lib.require_known("--launcher", LAUNCHER.value, known)
        self._engine = known[LAUNCHER.value](self._settings)

    def check(self, base: config_lib.Config) -> None:
        """Raises UserError or EngineError if no cell could run, before anything is written."""
        if isinstance(self._engine, engine.Queue) and not self._engine.shares_disk:
            handing_over.check(self._settings, base)
        self._engine.check()
        if isinstance(self._engine, local.Local):
            self._devices = self.devices_here(base)

    def devices_here(self, base: config_lib.Config) -> local.Devices:
        """How this machine's devices are shared out among cells.

        Raises:
          EngineError: there are too few for so many.
          UserError: cells do not run on this machine, or there are too few for the mesh.
        """
        if not isinstance(self._engine, local.Local):
            raise errors.UserError(
                f"--match=seconds measures where it is started, not where --launcher="
                f"{self._engine.name} runs: start it with --dry_run and --launcher=local, and the "
                "same --workdir, on such a machine first"
            )
        devices = self._engine.devices()
        sharding.mesh_sizes(base.mesh, devices.for_each)
        return devices

    def require_measured_here(self, base: config_lib.Config, workdir: pathlib.Path) -> None:
        """Raises UserError if seconds a step were measured on other devices than cells will have.

        Cells that run elsewhere are their own starter's care.
        """
        if isinstance(self._engine, local.Local):
            seconds.require_measured_on(self._devices.described, workdir, base)

    def require_no_other(self, cells: Sequence[cells_lib.Cell], workdir: pathlib.Path) -> None:
        """Raises UserError if the engine has a cell with another configuration than this."""
        if isinstance(self._engine, engine.Queue):
            handing_over.require_no_other(cells, workdir, self._engine)

    def fetch(self, cells: Sequence[cells_lib.Cell], workdir: pathlib.Path) -> None:
        """Brings what cells have left elsewhere, now or earlier, into the sweep's folder."""
        handing_over.fetch(cells, workdir, self._settings.bucket)

    def start(self, work: cells_lib.Work, more: Sequence[str]) -> list[str] | None:
        """Runs cells to their end, or hands them over.

        Args:
          work: the cells.
          more: flags for each.

        Returns:
          A line for each that failed; None if they have only been handed over.
        """
        if isinstance(self._engine, engine.Queue):
            return handing_over.start(work, self._engine, more)
        handing_over.forget(work.workdir, work.cells)
        return here.run(work, self._devices, more)


@contextlib.contextmanager
def as_user_errors() -> Iterator[None]:
    """What an engine refuses is the user's to mend."""
    try:
        yield
    except engine.EngineError as error:
        raise errors.UserError(str(error)) from error
