"""What runs the cells of a sweep or hands them over, and the flags that say how."""

import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments.running import elsewhere
from experiments.sweep import cells as cells_lib
from launch import local
from transformer_jax import config as config_lib
from transformer_jax import errors

LAUNCHER = flags.DEFINE_string(
    "launcher",
    "local",
    "Where to run: local, on this machine; slurm, as an array of jobs; skypilot, as managed jobs; "
    "xpk, as workloads on GKE; tpu-vm prints the lines for one Cloud TPU slice.",
)
PARALLEL = flags.DEFINE_integer(
    "parallel",
    0,
    "Runs at a time, which share this machine's devices; 0: one for each CPU core, or one if JAX "
    "has an accelerator. With slurm: at most so many; 0: as many as it has room for.",
    lower_bound=0,
)
NODES = flags.DEFINE_integer(
    "nodes", 1, "With an engine: machines that train each run together.", lower_bound=1
)
OPTIONS = flags.DEFINE_string(
    "launcher_options",
    "",
    "More options of the engine's own command: '--partition=gpu --gpus-per-node=1 --time=8:00:00'.",
)
SLURM_SCRIPT = flags.DEFINE_string(
    "slurm_script", "", "A changed copy of launch/slurm.sh, which runs a cell."
)
BUCKET = flags.DEFINE_string(
    "bucket", "", "Where machines that share no disk with this one leave runs: gs://BUCKET/FOLDER."
)
ACCELERATOR = flags.DEFINE_string(
    "accelerator", "", "What those machines have, as the engine names it: tpu-v5litepod-8, H100:8."
)
SPOT = flags.DEFINE_boolean("spot", False, "Whether those machines may be taken away.")


class Launcher:
    """Runs cells, or hands them to who does."""

    def check(self, base: config_lib.Config) -> None:
        """Raises UserError if no cell could run, before anything is written."""
        raise NotImplementedError

    def devices_here(self, base: config_lib.Config) -> local.Devices:
        """How this machine's devices are shared out among cells.

        Raises:
          UserError: cells do not run on this machine, or there are too few devices.
        """
        raise errors.UserError(
            f"--match=seconds measures where it is started, not where --launcher="
            f"{LAUNCHER.value} runs: start it with --dry_run and --launcher=local, and the same "
            "--workdir, on such a machine first"
        )

    def require_measured_here(self, base: config_lib.Config, workdir: pathlib.Path) -> None:
        """Raises UserError if seconds a step were measured on other devices than cells will have.

        Cells that run elsewhere are their own starter's care.
        """

    def require_no_other(self, cells: Sequence[cells_lib.Cell], workdir: pathlib.Path) -> None:
        """Raises UserError if the engine has a cell with another configuration than this."""

    def places(self, cells: Sequence[cells_lib.Cell]) -> list[elsewhere.Place]:
        """Where cells that this hands over leave their runs."""
        return []

    def fetch(self, cells: Sequence[cells_lib.Cell], workdir: pathlib.Path) -> None:
        """Brings what cells have left elsewhere, now or earlier, into the sweep's folder."""
        digests = {cell.digest for cell in cells}
        earlier = [
            place
            for given in elsewhere.remembered(workdir)
            for place in given.cells
            if place.digest in digests
        ]
        elsewhere.fetch(list(dict.fromkeys([*self.places(cells), *earlier])))

    def start(self, work: cells_lib.Work, more: Sequence[str]) -> list[str] | None:
        """Runs cells to their end, or hands them over.

        Args:
          work: the cells.
          more: flags for each.

        Returns:
          A line for each that failed; None if they have only been handed over.
        """
        raise NotImplementedError


def of_clouds() -> dict[str, Any]:
    """Flags that only clouds take."""
    return {"bucket": BUCKET.value, "accelerator": ACCELERATOR.value, "spot": SPOT.value}


def refuse(**given: Any) -> None:
    """Raises UserError if a flag is given that --launcher does not take."""
    for name, value in given.items():
        if value:
            raise errors.UserError(f"--{name} is not for --launcher={LAUNCHER.value}")


def options() -> list[str]:
    """What --launcher_options says, as arguments.

    Raises:
      UserError: a quotation does not end.
    """
    try:
        return shlex.split(OPTIONS.value)
    except ValueError as error:
        raise errors.UserError(f"--launcher_options={OPTIONS.value}: {error}") from error
