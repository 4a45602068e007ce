"""Where a sweep's cells run: --launcher, and what those who were given them say."""

import contextlib
import dataclasses
import functools
import logging
import pathlib
from collections.abc import Iterator, Sequence
from typing import final

from experiments.running import clouds, elsewhere, here, launcher, slurm_cells
from experiments.sweep import cells as cells_lib
from experiments.sweep import progress, results, seconds
from launch import jobs as jobs_lib
from launch import local
from transformer_jax import config as config_lib
from transformer_jax import errors, fields

_log = logging.getLogger("transformer_jax.sweep")


@final
class Here(launcher.Launcher):
    """On this machine."""

    def check(self, base: config_lib.Config) -> None:
        launcher.refuse(
            nodes=launcher.NODES.value > 1,
            launcher_options=launcher.OPTIONS.value,
            slurm_script=launcher.SLURM_SCRIPT.value,
            **launcher.of_clouds(),
        )
        self._devices = self.devices_here(base)

    def devices_here(self, base: config_lib.Config) -> local.Devices:
        return here.devices_for_each(launcher.PARALLEL.value, base.mesh)

    def require_measured_here(self, base: config_lib.Config, workdir: pathlib.Path) -> None:
        seconds.require_measured_on(self._devices.described, workdir, base)

    def start(self, work: cells_lib.Work, more: Sequence[str]) -> list[str]:
        elsewhere.forget(work.workdir, work.cells)
        return here.run(work, self._devices, more)


@final
class Slurm(launcher.Launcher):
    """Through sbatch."""

    def check(self, base: config_lib.Config) -> None:
        launcher.refuse(**launcher.of_clouds())
        options = launcher.options()
        self._options = slurm_cells.Options(
            launcher.NODES.value, launcher.PARALLEL.value, options, launcher.SLURM_SCRIPT.value
        )
        slurm_cells.check(self._options)

    def require_no_other(self, cells: Sequence[cells_lib.Cell], workdir: pathlib.Path) -> None:
        slurm_cells.require_no_other(cells, workdir)

    def start(self, work: cells_lib.Work, more: Sequence[str]) -> None:
        slurm_cells.start(work, self._options, more)


LAUNCHERS: dict[str, type[launcher.Launcher]] = {"local": Here, "slurm": Slurm, **clouds.CLOUDS}


def chosen() -> launcher.Launcher:
    """The one that --launcher names.

    Raises:
      UserError: there is none of this name.
    """
    fields.require_known("--launcher", launcher.LAUNCHER.value, LAUNCHERS)
    return LAUNCHERS[launcher.LAUNCHER.value]()


@contextlib.contextmanager
def as_user_errors() -> Iterator[None]:
    """What an engine refuses is the user's to mend."""
    try:
        yield
    except jobs_lib.EngineError as error:
        raise errors.UserError(str(error)) from error


def states(workdir: pathlib.Path) -> dict[tuple[str, int], str]:
    """What engines say of the cells that they were given, by row and seed, as far as they answer.

    A cell that one of them has is not lost because another has it no more.
    """
    asked = [functools.partial(slurm_cells.states, workdir)]
    digests = results.digests(workdir)
    for each in elsewhere.remembered(workdir):
        cells = [place for place in each.cells if place.digest in digests]
        if cells:
            given = dataclasses.replace(each, cells=cells)
            asked.append(functools.partial(clouds.states, given))
    found: dict[tuple[str, int], str] = {}
    for ask in asked:
        try:
            said = ask()
        except (jobs_lib.EngineError, OSError) as error:
            _log.warning("what follows is what the files say: %s", error)
            continue
        for place, state in said.items():
            if found.get(place, progress.LOST).startswith(progress.LOST):
                found[place] = state
    return found
