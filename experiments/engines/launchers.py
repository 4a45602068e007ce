"""Where a sweep's cells run: --launcher, and the flags that say how."""

import contextlib
import logging
import pathlib
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, final

from absl import flags

from experiments import progress
from experiments.engines import cells as cells_lib
from experiments.engines import cloud, here, slurm
from launch import jobs as jobs_lib
from launch import local, skypilot, tpu_vm, xpk
from transformer_jax import config as config_lib
from transformer_jax import files

_log = logging.getLogger("transformer_jax.sweep")

_LAUNCHER = flags.DEFINE_string(
    "launcher",
    "local",
    "Where to run: local, on this machine; slurm, as an array of jobs; skypilot, as managed jobs; "
    "xpk, as workloads on GKE; tpu-vm prints the lines for one Cloud TPU slice.",
)
_PARALLEL = flags.DEFINE_integer(
    "parallel",
    0,
    "Runs at a time, which share this machine's devices; 0: one for each CPU core, or one if JAX "
    "has an accelerator. With slurm: at most so many; 0: as many as it has room for.",
    lower_bound=0,
)
_NODES = flags.DEFINE_integer(
    "nodes", 1, "With an engine: machines that train each run together.", lower_bound=1
)
_OPTIONS = flags.DEFINE_string(
    "launcher_options",
    "",
    "More options of the engine's own command: '--partition=gpu --gpus-per-node=1 --time=8:00:00'.",
)
_SLURM_SCRIPT = flags.DEFINE_string(
    "slurm_script", "", "A changed copy of launch/slurm.sh, which runs a cell."
)
_BUCKET = flags.DEFINE_string(
    "bucket", "", "Where machines that share no disk with this one leave runs: gs://BUCKET/FOLDER."
)
_ACCELERATOR = flags.DEFINE_string(
    "accelerator", "", "What those machines have, as the engine names it: tpu-v5litepod-8, H100:8."
)
_SPOT = flags.DEFINE_boolean("spot", False, "Whether those machines may be taken away.")


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
        raise config_lib.UserError(
            f"--match=seconds measures where it is started, not where --launcher="
            f"{_LAUNCHER.value} runs: start it with --dry_run and --launcher=local, and the same "
            "--workdir, on such a machine first"
        )

    def require_no_other(self, cells: Sequence[cells_lib.Cell], workdir: pathlib.Path) -> None:
        """Raises UserError if the engine has a cell with another configuration than this."""

    def fetch(self, cells: Sequence[cells_lib.Cell]) -> None:
        """Brings what cells have left elsewhere into the sweep's folder."""

    def start(self, work: cells_lib.Work, more: Sequence[str]) -> list[str] | None:
        """Runs cells to their end, or hands them over.

        Args:
          work: the cells.
          more: flags for each.

        Returns:
          A line for each that failed; None if they have only been handed over.
        """
        raise NotImplementedError


@final
class Here(Launcher):
    """On this machine."""

    def check(self, base: config_lib.Config) -> None:
        _refuse(
            nodes=_NODES.value > 1,
            launcher_options=_OPTIONS.value,
            slurm_script=_SLURM_SCRIPT.value,
            **_of_clouds(),
        )
        self._devices = self.devices_here(base)

    def devices_here(self, base: config_lib.Config) -> local.Devices:
        return here.devices_for_each(_PARALLEL.value, base.mesh)

    def start(self, work: cells_lib.Work, more: Sequence[str]) -> list[str]:
        return here.run(work, self._devices, more)


@final
class Slurm(Launcher):
    """Through sbatch."""

    def check(self, base: config_lib.Config) -> None:
        _refuse(**_of_clouds())
        options = _options()
        self._options = slurm.Options(_NODES.value, _PARALLEL.value, options, _SLURM_SCRIPT.value)
        slurm.check(self._options)

    def require_no_other(self, cells: Sequence[cells_lib.Cell], workdir: pathlib.Path) -> None:
        slurm.require_no_other(cells, workdir)

    def start(self, work: cells_lib.Work, more: Sequence[str]) -> None:
        slurm.start(work, self._options, more)


class Cloud(Launcher):
    """On machines that share no disk with this one."""

    def check(self, base: config_lib.Config) -> None:
        _refuse(parallel=_PARALLEL.value, slurm_script=_SLURM_SCRIPT.value)
        self.require()
        cloud.check(_BUCKET.value, _ACCELERATOR.value, base)
        self._options = _joined(_options())

    def fetch(self, cells: Sequence[cells_lib.Cell]) -> None:
        cloud.fetch([cloud.place(cell, _BUCKET.value) for cell in cells])

    def start(self, work: cells_lib.Work, more: Sequence[str]) -> None:
        for name, value in (("pack_seeds", work.pack_seeds), ("wandb", more)):
            if value:
                raise config_lib.UserError(f"--{name} is for --launcher=local and slurm")
        known = self.queue([cloud.label(cell) for cell in work.cells], self._options)
        waiting = [cell for cell in work.cells if cloud.label(cell) not in known]
        if known:
            _log.info("%d cells are in the engine's queue already", len(known))
        if not waiting:
            return
        places = [cloud.place(cell, _BUCKET.value) for cell in waiting]
        failures = [folder / "failure.json" for place in places for folder in place.folders()]
        with cells_lib.without_failures(failures):
            self.submit(cloud.remote(waiting, _BUCKET.value), work)
        cloud.remember(work.workdir, _LAUNCHER.value, self._options, places)

    def require(self) -> None:
        """Raises EngineError unless the engine is here."""

    @staticmethod
    def queue(labels: Sequence[str], options: Sequence[str]) -> dict[str, str]:
        """Those of some cells that the engine has, by label, and their states.

        Args:
          labels: of the cells.
          options: of the engine, which say where it is.
        """
        raise NotImplementedError

    def submit(self, jobs: Sequence[jobs_lib.Remote], work: cells_lib.Work) -> None:
        """Hands cells over, all or none."""
        raise NotImplementedError


@final
class SkyPilot(Cloud):
    """As managed jobs."""

    def require(self) -> None:
        skypilot.require()

    @staticmethod
    def queue(labels: Sequence[str], options: Sequence[str]) -> dict[str, str]:
        return {label: state for label, state in skypilot.queue().items() if label in labels}

    def submit(self, jobs: Sequence[jobs_lib.Remote], work: cells_lib.Work) -> None:
        path = work.workdir / "skypilot.yaml"
        skypilot.render(
            jobs,
            path,
            name=_name(work),
            setup=cloud.setup("tpu" if _ACCELERATOR.value.startswith("tpu") else "cuda"),
            accelerator=_ACCELERATOR.value,
            spot=_SPOT.value,
            nodes=_NODES.value,
        )
        skypilot.submit(jobs, path, self._options)
        _log.info("submitted %d managed jobs, which %s describes", len(jobs), path)


@final
class Xpk(Cloud):
    """As workloads of a GKE cluster."""

    def require(self) -> None:
        xpk.require()

    @staticmethod
    def queue(labels: Sequence[str], options: Sequence[str]) -> dict[str, str]:
        return xpk.queue(labels, options)

    def submit(self, jobs: Sequence[jobs_lib.Remote], work: cells_lib.Work) -> None:
        creations = xpk.commands(
            jobs,
            setup=cloud.setup("tpu"),
            accelerator=_ACCELERATOR.value,
            spot=_SPOT.value,
            nodes=_NODES.value,
            options=self._options,
        )
        lines = [shlex.join(creation) for creation in creations]
        files.write_lines(work.workdir / "xpk.sh", ["#!/bin/bash", *lines])
        xpk.submit(creations, self._options)
        _log.info("created %d workloads, as in %s", len(jobs), work.workdir / "xpk.sh")


@final
class TpuVm(Cloud):
    """As lines of gcloud, for who uses no engine."""

    @staticmethod
    def queue(labels: Sequence[str], options: Sequence[str]) -> dict[str, str]:
        return {}

    def check(self, base: config_lib.Config) -> None:
        _refuse(nodes=_NODES.value > 1)
        super().check(base)

    def submit(self, jobs: Sequence[jobs_lib.Remote], work: cells_lib.Work) -> None:
        script = tpu_vm.render(
            jobs,
            name=_name(work),
            setup=cloud.setup("tpu"),
            accelerator=_ACCELERATOR.value,
            spot=_SPOT.value,
            options=self._options,
        )
        path = work.workdir / "tpu_vm.sh"
        files.write(path, script.encode())
        print(script)
        _log.info("nothing was run; these lines are %s too", path)


LAUNCHERS: dict[str, type[Launcher]] = {
    "local": Here,
    "slurm": Slurm,
    "skypilot": SkyPilot,
    "xpk": Xpk,
    "tpu-vm": TpuVm,
}


def _of_clouds() -> dict[str, Any]:
    """Flags that only clouds take."""
    return {"bucket": _BUCKET.value, "accelerator": _ACCELERATOR.value, "spot": _SPOT.value}


def _refuse(**given: Any) -> None:
    """Raises UserError if a flag is given that --launcher does not take."""
    for name, value in given.items():
        if value:
            raise config_lib.UserError(f"--{name} is not for --launcher={_LAUNCHER.value}")


def _options() -> list[str]:
    try:
        return shlex.split(_OPTIONS.value)
    except ValueError as error:
        raise config_lib.UserError(f"--launcher_options={_OPTIONS.value}: {error}") from error


def _joined(options: Sequence[str]) -> list[str]:
    """["--zone", "z"] as ["--zone=z"]: those that say where an engine is are looked for by name."""
    found: list[str] = []
    for option in options:
        if found and found[-1].startswith("--") and "=" not in found[-1] and option[:1] != "-":
            found[-1] += f"={option}"
        else:
            found.append(option)
    return found


def _name(work: cells_lib.Work) -> str:
    """What an engine calls the sweep."""
    return work.table.lower().replace("_", "-")


def chosen() -> Launcher:
    """The one that --launcher names.

    Raises:
      UserError: there is none of this name.
    """
    config_lib.require_known("--launcher", _LAUNCHER.value, LAUNCHERS)
    return LAUNCHERS[_LAUNCHER.value]()


@contextlib.contextmanager
def as_user_errors() -> Iterator[None]:
    """What an engine refuses is the user's to mend."""
    try:
        yield
    except jobs_lib.EngineError as error:
        raise config_lib.UserError(str(error)) from error


def states(workdir: pathlib.Path) -> dict[tuple[str, int], str]:
    """What engines say of the cells that they were given, by row and seed, if they answer."""
    try:
        return {**slurm.states(workdir), **_states_of_clouds(workdir)}
    except (jobs_lib.EngineError, OSError) as error:
        _log.warning("what follows is what the files say: %s", error)
        return {}


def _states_of_clouds(workdir: pathlib.Path) -> dict[tuple[str, int], str]:
    """What a cloud's engine says of the cells that it was given, after a look into the bucket."""
    found: dict[tuple[str, int], str] = {}
    for launcher, options, places in cloud.remembered(workdir):
        cloud.fetch(places)
        engine = LAUNCHERS[launcher]
        if launcher == "tpu-vm" or not issubclass(engine, Cloud):
            continue  # gcloud has no queue of cells
        queue = engine.queue([place.label for place in places], options)
        for place in places:
            lost = f"{progress.LOST}: {launcher} has no {place.label} any more"
            found[place.row, place.seed] = queue.get(place.label, lost)
    return found
