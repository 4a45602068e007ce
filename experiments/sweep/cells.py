"""The cells of a sweep: one run each, and the process that runs one or several of them."""

import contextlib
import dataclasses
import functools
import pathlib
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
from absl import flags
from ml_collections import config_flags

from experiments.benchmarks import cost
from experiments.sweep import results
from launch import engine
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.distributed import sharding
from transformer_jax.runs import run_folder, training_run

USER_MISTAKE = 2  # exit code of a run that was refused


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of the sweep."""

    row: str
    seed: int
    config: config_lib.Config
    overrides: Mapping[str, Any]  # what its command sets
    folder: pathlib.Path
    digest: str  # its config_hash; "" until its text is read
    # What its result will say of data and decoding.
    measured_on: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.row}, seed {self.seed}"

    @functools.cached_property
    def source(self) -> files.Path | None:
        """The folder of the run whose weights it starts from (train.start_from); None: of none."""
        if not self.config.train.start_from:
            return None
        row, seed = self.config.train.start_from, self.seed
        return results.cell_folder(self.folder.parents[1], row, seed).resolve()

    @property
    def key(self) -> tuple[str, int, str]:
        """What tells it from others, also once the sweep was edited."""
        return self.row, self.seed, self.digest

    @property
    def label(self) -> str:
        """For engines, and of no other run: "a-h-1-s0-0f3a9c12"."""
        row = engine.label(self.row, "row")[:20].strip("-")
        return f"{row}-s{self.seed}-{self.digest[:8]}"

    def job(self, python: str, workdir: object, cache_dir: object, *more: str) -> engine.Job:
        """The process that runs it: its Python and its folders, wherever, and more flags."""
        command = [python, "-m", "transformer_jax.train", *config_arguments(self.overrides)]
        command += [f"--row={self.row}", f"--workdir={workdir}", f"--cache_dir={cache_dir}", *more]
        return engine.Job(self.name, self.label, command, self.folder / "log.txt")


@dataclasses.dataclass(frozen=True)
class Work:
    """What of a sweep is to be run: `cells` have no result yet, `total` counts those that have."""

    table: str
    cells: Sequence[Cell]
    total: int
    workdir: pathlib.Path
    cache_dir: pathlib.Path

    def in_order(self) -> list[Cell]:
        """Seed by seed: the first row of what is left, base at first, then by expense.

        Of a seed, one that starts from another's weights comes after all that do not.
        """
        first = self.cells[0].row  # the dearest come next, lest one runs alone in the end
        begun = starts(self.cells)

        def key(cell: Cell) -> tuple[int, bool, int, float]:
            expense = cost.training_flops(cell.config)
            return cell.seed, cell.row != first, begun[cell.folder], -expense

        return sorted(self.cells, key=key)

    def jobs(self, *more: str) -> list[engine.Job]:
        """The processes that run the cells, in order, with more flags of transformer_jax.train."""
        names: dict[files.Path, str] = {cell.folder.resolve(): cell.name for cell in self.cells}
        return [
            dataclasses.replace(
                cell.job(sys.executable, cell.folder, self.cache_dir, *more),
                after=names.get(cell.source, "") if cell.source else "",
            )
            for cell in self.in_order()
        ]


def starts(cells: Sequence[Cell]) -> dict[pathlib.Path, int]:
    """Of how many runs' weights, one after another, those of each cell's folder are made.

    Raises UserError, which names a row, if they are made of one another.
    """
    others = {cell.folder.resolve(): cell.source for cell in cells if cell.source}
    found = {}
    for cell in cells:
        folder, number = cell.folder.resolve(), 0
        while folder in others:
            folder, number = others[folder], number + 1
            if number > len(others):
                raise errors.UserError(
                    f"row {cell.row!r} starts from weights that start from its own, or from others "
                    "that do (train.start_from); let one of them start from nothing"
                )
        found[cell.folder] = number
    return found


def config_arguments(overrides: Mapping[str, Any]) -> list[str]:
    """The config file of this command line, with overrides, for another."""
    return [
        f"--config={config_flags.get_config_filename(flags.FLAGS['config'])}",
        *(f"--config.{field}={value}" for field, value in overrides.items()),
    ]


def planned(
    base: config_lib.Config,
    rows: Mapping[str, Mapping[str, Any]],
    seeds: Mapping[str, int],
    workdir: pathlib.Path,
) -> list[Cell]:
    """All cells of rows, without what their text decides.

    Raises:
      UserError: as `starts` and `results.require_folders`.
    """
    results.require_folders(rows)
    found = [
        _cell(base, row, seed, overrides, workdir)
        for row, overrides in rows.items()
        for seed in range(seeds[row])
    ]
    starts(found)
    return found


def others(
    cells: Sequence[Cell],
    base: config_lib.Config,
    rows: Mapping[str, Mapping[str, Any]],
    workdir: pathlib.Path,
) -> list[Cell]:
    """Of the table's other rows, the cells from whose weights some of these start."""
    made = {cell.folder.resolve() for cell in cells}
    sources = {cell.source for cell in cells if cell.source and cell.source not in made}
    return [
        _cell(base, row, int(seed[1]), overrides, workdir)
        for source in sorted(sources, key=str)
        if (seed := re.fullmatch(r"seed(\d+)", source.name))
        for row, overrides in rows.items()
        if results.cell_folder(workdir, row, int(seed[1])).resolve() == source
    ]


def _cell(
    base: config_lib.Config,
    row: str,
    seed: int,
    overrides: Mapping[str, Any],
    workdir: pathlib.Path,
) -> Cell:
    own = {**overrides, "train.seed": seed}
    given = {**flags_lib.overrides(), **own}
    folder = results.cell_folder(workdir, row, seed)
    return Cell(row, seed, config_lib.replace(base, own), given, folder, "")


def read_texts(cells: Sequence[Cell], cache_dir: pathlib.Path) -> list[Cell]:
    """Cells with what their text decides; raises UserError, naming its row, if one cannot run."""
    files.make_folder(cache_dir, "the sweep's folder")
    one_device = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1), jax.devices()[:1])
    found = []
    for cell in cells:
        try:
            dataset = _dataset(cell.config.data, cache_dir)
            # Seeds of a row are alike: what is found of the first is in a cache for the others.
            alike = config_lib.replace(cell.config, {"train.seed": 0})
            training_run.check(alike, one_device, dataset)
        except errors.UserError as error:
            raise errors.UserError(f"row {cell.row!r}: {error}") from error
        digest = config_lib.fingerprint(cell.config, dataset.digests)
        measured_on = training_run.measured_on(cell.config, dataset)
        found.append(dataclasses.replace(cell, digest=digest, measured_on=measured_on))
    return found


# Whose tokenizers and tokens are then in the cache for all cells.
_dataset = functools.cache(dataset_lib.load)


def without_failed(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """Cells whose runs have not failed at an earlier start, and a line for each of the others.

    One that starts from the weights of another is left as that is.
    """
    begun = starts(cells)
    errors_of: dict[files.Path, str] = {}
    for cell in sorted(cells, key=lambda cell: begun[cell.folder]):
        folder = cell.folder
        if all((folder / name).exists() for name in ("run.json", "failure.json")):
            errors_of[folder.resolve()] = run_folder.read_error(folder)
        elif cell.source in errors_of:
            errors_of[folder.resolve()] = f"it starts from {cell.source}, where a run failed"
    found = [(cell, errors_of.get(cell.folder.resolve())) for cell in cells]
    left = "(left as it is; --retry_failed runs it again)"
    return [cell for cell, error in found if not error], [
        f"{cell.name}: {error} {left}" for cell, error in found if error
    ]


@contextlib.contextmanager
def without_failures(
    paths: Iterable[files.Path], begun: Collection[files.Path] = ()
) -> Iterator[None]:
    """Removes failure.json of what is about to run again, and puts it back if that cannot run.

    What has run by the end, in one of the folders `begun`, says itself how it ended.
    """
    before = {path: path.read_bytes() for path in paths if path.exists()}
    for path in before:
        path.unlink()
    try:
        yield
    except BaseException:
        for path, content in before.items():
            has_run = path.parent in begun or (path.parent / "result.json").exists()
            if not path.exists() and not has_run:
                files.write(path, content)
        raise


def failure(cell: Cell, job: engine.Job, code: int) -> str:
    """One line that says why; a process that died without a word gets its failure.json here.

    One that was refused (exit code 2) does not: the folder may be another's at work.
    """
    path = cell.folder / "failure.json"
    if path.exists():
        error = run_folder.read_error(cell.folder)
    else:
        error = f"exit code {code}: {last_line(job.log)}"
        if code != USER_MISTAKE:
            files.write_json(path, {"error": error, "traceback": "", "step": None})
    return f"{error} (see {job.log})"


def last_line(log: pathlib.Path) -> str:
    """The last that a process printed."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"
