"""SkyPilot, xpk and single Cloud TPU slices: cells handed over, and asked after."""

import logging
import shlex
from collections.abc import Sequence
from typing import final

from experiments.running import elsewhere, launcher
from experiments.sweep import cells as cells_lib
from experiments.sweep import progress
from launch import jobs as jobs_lib
from launch import skypilot, tpu_vm, xpk
from transformer_jax import config as config_lib
from transformer_jax import errors, files

_log = logging.getLogger("transformer_jax.sweep")


class Cloud(launcher.Launcher):
    """On machines that share no disk with this one.

    Attributes:
      answers: whether the engine can be asked which cells it has.
    """

    answers = True

    def check(self, base: config_lib.Config) -> None:
        launcher.refuse(parallel=launcher.PARALLEL.value, slurm_script=launcher.SLURM_SCRIPT.value)
        self.require()
        elsewhere.check(launcher.BUCKET.value, launcher.ACCELERATOR.value, base)
        self._options = _joined(launcher.options())

    def places(self, cells: Sequence[cells_lib.Cell]) -> list[elsewhere.Place]:
        return [elsewhere.place(cell, launcher.BUCKET.value) for cell in cells]

    def start(self, work: cells_lib.Work, more: Sequence[str]) -> None:
        if more:
            raise errors.UserError("--wandb is for --launcher=local and slurm")
        earlier = elsewhere.remembered(work.workdir)
        ours, others = self._queued(work, earlier)
        if queued := ours | others:
            _log.info("%d cells are in the engine's queue already", len(queued))
        waiting = [cell for cell in work.cells if elsewhere.label(cell) not in queued]
        # One may be in the queue without being written down, once the record was deleted.
        known = {place.label for each in earlier for place in each.cells}
        unknown = [cell for cell in work.cells if elsewhere.label(cell) in ours - known]
        if unknown or waiting:
            places = self.places([*unknown, *waiting])
            given = elsewhere.Submission(launcher.LAUNCHER.value, self._options, places)
            elsewhere.remember(work.workdir, [*earlier, given])
        if waiting:  # written down before: what cannot be taken back if it fails is asked after
            self._hand_over(waiting, work)

    def _queued(
        self, work: cells_lib.Work, earlier: Sequence[elsewhere.Submission]
    ) -> tuple[set[str], set[str]]:
        """The labels of cells that this engine has, and that another or another of its places has.

        A bucket locks nothing: two machines would write one run.
        """
        labels = [elsewhere.label(cell) for cell in work.cells]
        ours = set(self.queue(labels, self._options))
        others: set[str] = set()
        for given in earlier:
            asked = [place.label for place in given.cells if place.label in labels]
            where = [given.launcher, *given.options]
            if not asked or where == [launcher.LAUNCHER.value, *self._options]:
                continue
            try:
                found = set(engine_of(given).queue(asked, given.options)) - ours
            except jobs_lib.EngineError as error:
                raise jobs_lib.EngineError(
                    f"whether {shlex.join(where)} still has cells of this sweep cannot be known "
                    f"({error}): if it is gone, delete {work.workdir / elsewhere.NAME}"
                ) from error
            if found:
                _log.warning(
                    "%s has %s: they run here once they are cancelled there",
                    shlex.join(where),
                    ", ".join(sorted(found)),
                )
            others |= found
        return ours, others

    def _hand_over(self, cells: Sequence[cells_lib.Cell], work: cells_lib.Work) -> None:
        failures = [
            folder / "failure.json" for place in self.places(cells) for folder in place.folders()
        ]
        with cells_lib.without_failures(failures):
            self.submit(elsewhere.remote(cells, launcher.BUCKET.value), work)

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
        extra = "tpu" if launcher.ACCELERATOR.value.startswith("tpu") else "cuda"
        skypilot.render(
            jobs,
            path,
            name=_name(work),
            setup=elsewhere.setup(extra),
            accelerator=launcher.ACCELERATOR.value,
            spot=launcher.SPOT.value,
            nodes=launcher.NODES.value,
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
            setup=elsewhere.setup("tpu"),
            accelerator=launcher.ACCELERATOR.value,
            spot=launcher.SPOT.value,
            nodes=launcher.NODES.value,
            options=self._options,
        )
        lines = [shlex.join(creation) for creation in creations]
        files.write_lines(work.workdir / "xpk.sh", ["#!/bin/bash", *lines])
        xpk.submit(creations, self._options)
        _log.info("created %d workloads, as in %s", len(jobs), work.workdir / "xpk.sh")


@final
class TpuVm(Cloud):
    """As lines of gcloud, for who uses no engine."""

    answers = False

    @staticmethod
    def queue(labels: Sequence[str], options: Sequence[str]) -> dict[str, str]:
        return {}

    def check(self, base: config_lib.Config) -> None:
        launcher.refuse(nodes=launcher.NODES.value > 1)
        super().check(base)

    def submit(self, jobs: Sequence[jobs_lib.Remote], work: cells_lib.Work) -> None:
        script = tpu_vm.render(
            jobs,
            name=_name(work),
            setup=elsewhere.setup("tpu"),
            accelerator=launcher.ACCELERATOR.value,
            spot=launcher.SPOT.value,
            options=self._options,
        )
        path = work.workdir / "tpu_vm.sh"
        files.write(path, script.encode())
        print(script)
        _log.info("nothing was run; these lines are %s too", path)


CLOUDS: dict[str, type[Cloud]] = {"skypilot": SkyPilot, "xpk": Xpk, "tpu-vm": TpuVm}


def engine_of(given: elsewhere.Submission) -> type[Cloud]:
    """What took a submission.

    Raises:
      UserError: there is no such launcher.
    """
    if given.launcher not in CLOUDS:
        raise errors.UserError(
            f"{elsewhere.NAME} is damaged (there is no launcher {given.launcher!r}): "
            f"{elsewhere.REMEDY}"
        )
    return CLOUDS[given.launcher]


def states(given: elsewhere.Submission) -> dict[tuple[str, int], str]:
    """What an engine says of the cells that it was given, and what comes out of the bucket."""
    refused: dict[tuple[str, int], str] = {}
    engine = engine_of(given)
    try:
        queue = engine.queue([place.label for place in given.cells], given.options)
    finally:  # a cell that ends meanwhile is either in the queue or has its result
        for place in given.cells:
            try:
                elsewhere.fetch([place])
            except errors.UserError as error:
                refused[place.row, place.seed] = f"{progress.FAILED}: {error}"
    if not engine.answers:
        return refused
    lost = f"{progress.LOST}: {given.launcher} has no {{}}"
    return {
        (place.row, place.seed): queue.get(place.label, lost.format(place.label))
        for place in given.cells
    } | refused


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
    return elsewhere.name_for_engines(work.table, "sweep")
