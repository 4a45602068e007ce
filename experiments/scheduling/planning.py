"""Planning of a sweep: its runs, their configurations and hashes, and the runs to start."""

import dataclasses
import functools
import logging
import pathlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
from absl import flags
from ml_collections import config_flags

from experiments.results import frames
from experiments.sweep import cost, store
from launch import engine
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.distributed import sharding
from transformer_jax.runs import starting_weights, training_run

_log = logging.getLogger("transformer_jax.sweep")


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep, which need not have started.

    Attributes:
      run: the row, the seed and the config_hash.
      config: the configuration, in which train.start_from is the name of a row.
      overrides: the fields that the command line of the run sets.
      folder: the folder of the run, which exists once the run has started.
      measured_on: the corpus and the decoding with which the run is scored; see
        `frames.measured_on`.
      source: the run with whose weights this run starts; None for random weights.
    """

    run: store.Run
    config: config_lib.Config
    overrides: Mapping[str, Any]
    folder: pathlib.Path
    measured_on: Mapping[str, Any]
    source: "PlannedRun | None" = None

    @property
    def name(self) -> str:
        """The name of the run in messages, such as "A h=1, seed 0"."""
        return f"{self.run.row}, seed {self.run.seed}"

    @property
    def label(self) -> str:
        """The unique name of the run in engines, such as "a-h-1-s0-0f3a9c12"."""
        row = engine.label(self.run.row, "row")[:20].strip("-")
        return f"{row}-s{self.run.seed}-{self.run.config_hash[: store.HASH_LENGTH]}"

    @property
    def is_finished(self) -> bool:
        """True if the run has a result in the sweep's folder."""
        return (self.folder / "result.json").exists()

    @property
    def depth(self) -> int:
        """The number of runs that have to finish before this run, each starting from the previous.

        0 for a run that starts from random weights.
        """
        return self.source.depth + 1 if self.source else 0

    def needs_weights(self) -> bool:
        """Returns True if the run will read the weights of `source` when it starts or resumes."""
        return self.source is not None and starting_weights.are_read(self.config, self.folder)


@dataclasses.dataclass(frozen=True)
class Work:
    """The runs of a sweep that are to be started.

    Attributes:
      table: the name of the table.
      runs: the runs, none of which has a result.
      total: the number of runs of the sweep, finished ones included.
      workdir: the sweep's folder.
      cache_dir: the folder of tokenizers, encoded corpora and compiled programs.
      weights: the folder of each run whose weights other runs start from, by config_hash.
    """

    table: str
    runs: Sequence[PlannedRun]
    total: int
    workdir: pathlib.Path
    cache_dir: pathlib.Path
    weights: Mapping[str, pathlib.Path]

    def in_order(self) -> list[PlannedRun]:
        """Returns the runs in the order in which they should start.

        Runs are sorted by seed. Runs of one seed are sorted by `depth`, so that a run follows the
        run whose weights it starts from. At the same depth, the run of the first row is followed
        by the other runs, by descending FLOPs.
        """
        # Long runs start early, so that the last run to end is not a long one.
        first_row = self.runs[0].run.row

        def key(planned: PlannedRun) -> tuple[int, int, bool, float]:
            operations = cost.training_flops(planned.config)
            return planned.run.seed, planned.depth, planned.run.row != first_row, -operations

        return sorted(self.runs, key=key)

    def job(
        self, planned: PlannedRun, python: str, workdir: object, cache_dir: object, *more: str
    ) -> engine.Job:
        """Returns the job that trains and evaluates a run.

        Args:
          planned: the run.
          python: the path of the interpreter on the machine that runs the job.
          workdir: the run's folder on that machine.
          cache_dir: the folder of tokenizers and encoded corpora on that machine.
          *more: further flags of transformer_jax.train.
        """
        overrides = dict(planned.overrides)
        after = ""
        if planned.source:
            source = planned.source.run.config_hash
            overrides["train.start_from"] = self.weights[source]
            after = next((run.name for run in self.runs if run.run.config_hash == source), "")
        command = [
            python,
            "-m",
            "transformer_jax.train",
            f"--config={config_file()}",
            *(f"--config.{field}={value}" for field, value in overrides.items()),
            f"--row={planned.run.row}",
            f"--workdir={workdir}",
            f"--cache_dir={cache_dir}",
            *more,
        ]
        return engine.Job(planned.name, planned.label, command, planned.folder / "log.txt", after)

    def local_jobs(self, *more: str) -> list[engine.Job]:
        """Returns the jobs of all runs, in the order of `in_order`, for machines with this disk."""
        return [
            self.job(planned, sys.executable, planned.folder, self.cache_dir, *more)
            for planned in self.in_order()
        ]


def config_file() -> str:
    """Returns the path of the file that --config names."""
    return config_flags.get_config_filename(flags.FLAGS["config"])


def plan(
    base: config_lib.Config,
    rows: Mapping[str, Mapping[str, Any]],
    chosen: Mapping[str, Mapping[str, Any]],
    seeds: Mapping[str, int],
    workdir: pathlib.Path,
    cache_dir: pathlib.Path,
) -> list[PlannedRun]:
    """Returns the runs of the chosen rows, and the runs whose weights they start from.

    This encodes the corpora, since the config_hash of a run depends on the content of the corpus.
    Rows with equal settings have the same config_hash and share one folder.

    Args:
      base: the configuration that the rows change.
      rows: the overrides of all rows of the table, which train.start_from may name.
      chosen: the overrides of the rows to run, and of their variants for --tune.
      seeds: the number of runs of each chosen row.
      workdir: the sweep's folder.
      cache_dir: the folder of tokenizers and encoded corpora.

    Raises:
      UserError: a row cannot be run; the message names it.
    """
    files.make_folder(cache_dir, "the sweep's folder")
    known = {**rows, **chosen}
    planned: dict[tuple[str, int], PlannedRun] = {}

    folders: dict[str, pathlib.Path] = {}  # by config_hash; rows with equal settings share one

    def add(row: str, seed: int) -> PlannedRun:
        if (row, seed) not in planned:
            source_name = source_row(row, known, base)
            source = add(source_name, seed) if source_name else None
            one = _plan_run(base, row, known[row], seed, source, workdir, cache_dir)
            folder = folders.setdefault(one.run.config_hash, one.folder)
            planned[row, seed] = dataclasses.replace(one, folder=folder)
        return planned[row, seed]

    for row in chosen:
        for seed in range(seeds[row]):
            add(row, seed)
    _warn_of_equal_rows(planned)
    return list(planned.values())


def _warn_of_equal_rows(planned: Mapping[tuple[str, int], PlannedRun]) -> None:
    first: dict[str, str] = {}
    warned: set[tuple[str, str]] = set()
    for (row, _), run in planned.items():
        other = first.setdefault(run.run.config_hash, row)
        if other != row and (row, other) not in warned:
            warned.add((row, other))
            _log.warning("row %r has the settings of row %r: they share their runs", row, other)


def source_row(row: str, rows: Mapping[str, Mapping[str, Any]], base: config_lib.Config) -> str:
    """Returns the row with whose weights a row starts; "" if it starts with random weights.

    Args:
      row: the row.
      rows: the overrides of all rows. In a sweep, train.start_from is the name of a row.
      base: the configuration that the rows change.

    Raises:
      UserError: train.start_from names no row, or a row would start from its own weights. All rows
        in the chain of sources are checked.
    """

    def start_from(name: str) -> str:
        return config_lib.replace(base, rows[name]).train.start_from

    first = start_from(row)
    visited = [row]
    source = first
    while source:
        if source not in rows:
            raise errors.UserError(
                f"row {visited[-1]!r}: train.start_from={source!r} is no row of this table; in a "
                f"sweep it names one of {', '.join(map(repr, rows))}"
            )
        if source in visited:
            raise errors.UserError(
                f"row {row!r} would start from its own weights (train.start_from: "
                f"{' → '.join([*visited, source])}); remove train.start_from from one of them"
            )
        visited.append(source)
        source = start_from(source)
    return first


def _plan_run(
    base: config_lib.Config,
    row: str,
    overrides: Mapping[str, Any],
    seed: int,
    source: PlannedRun | None,
    workdir: pathlib.Path,
    cache_dir: pathlib.Path,
) -> PlannedRun:
    own = {**overrides, "train.seed": seed}
    config = config_lib.replace(base, own)
    one_device = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1), jax.devices()[:1])
    try:
        dataset = _dataset(config.data, cache_dir)
        # No check depends on the seed. With seed 0, runs of one row share the cached check.
        training_run.check(config_lib.replace(config, {"train.seed": 0}), one_device, dataset)
    except errors.UserError as error:
        raise errors.UserError(f"row {row!r}: {error}") from error
    digests = dict(dataset.digests)
    if source:
        digests["start_from"] = source.run.config_hash
    run = store.Run(row, seed, config_lib.fingerprint(config, digests))
    return PlannedRun(
        run=run,
        config=config,
        overrides={**flags_lib.overrides(), **own},
        folder=store.locate(workdir, run),
        measured_on=frames.measured_on(training_run.measured_on(config, dataset)),
        source=source,
    )


_dataset = functools.cache(dataset_lib.load)


def unfinished(
    planned: Sequence[PlannedRun],
    chosen: Collection[str],
    reuse: Sequence[pathlib.Path],
) -> tuple[list[PlannedRun], dict[str, pathlib.Path]]:
    """Returns the runs to start, and the folders with the weights that they start from.

    A chosen row's run is started unless it has a result, in the sweep's folder or in a folder of
    `reuse`. If it starts from the weights of another run, its source, those are taken from a folder
    with the source's checkpoints. If there is none, the source is started too. Published folders
    have no checkpoints.

    Args:
      planned: the runs of the sweep, and the runs whose weights they start from; see `plan`.
      chosen: the rows to run.
      reuse: further folders in which finished runs are looked up.

    Returns:
      The runs to start, and the folder of each source by the source's config_hash.

    Raises:
      UserError: a source has no checkpoints, and is finished or belongs to a row that is not
        chosen.
    """
    reusable = [frames.load(folder) for folder in reuse]
    finished = {config_hash for sweep in reusable for config_hash in sweep.folders}
    weights: dict[str, pathlib.Path] = {}
    missing: dict[str, PlannedRun] = {}

    def require(needed: PlannedRun) -> None:
        """Adds a run to `missing`, and its source too if that has to be trained first."""
        missing.setdefault(needed.run.config_hash, needed)
        if needed.source is None:
            return
        source = needed.source.run
        folders = [needed.source.folder, *(store.locate(folder, source) for folder in reuse)]
        trained = next((folder for folder in folders if _has_weights(folder)), None)
        weights[source.config_hash] = trained or needed.source.folder
        if trained or not needed.needs_weights() or source.config_hash in missing:
            return
        if needed.source.is_finished:
            raise errors.UserError(
                f"row {needed.run.row!r} starts from the weights in {needed.source.folder}, which "
                "holds a finished run without its checkpoints: delete that folder and start the "
                "sweep again, which trains it anew"
            )
        if source.row not in chosen:
            raise errors.UserError(
                f"row {needed.run.row!r} starts from the weights of row {source.row!r}, which has "
                f"no finished run with seed {source.seed} and checkpoints (published runs have "
                f"none): choose row {source.row!r} too (--rows), which trains it"
            )
        require(needed.source)

    for run in planned:
        is_chosen = run.run.row in chosen
        if is_chosen and not run.is_finished and run.run.config_hash not in finished:
            require(run)
    return list(missing.values()), weights


def _has_weights(folder: pathlib.Path) -> bool:
    return (folder / "result.json").exists() and (folder / "checkpoints").exists()
