"""The command that all tables share: it runs the rows without results, and writes the report."""

import contextlib
import dataclasses
import logging
import pathlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import pandas as pd
from absl import flags

from experiments.results import comparable, frames, report
from experiments.scheduling import dry_run, local_runs, planning, progress, submissions
from experiments.sweep import cost, store
from experiments.sweep import rows as rows_lib
from experiments.sweep import table as table_lib
from launch import engine, local
from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files
from transformer_jax import flags as flags_lib
from transformer_jax.distributed import sharding
from transformer_jax.runs import run_folder
from transformer_jax.training import tracking

_log = logging.getLogger("transformer_jax.sweep")

_CONFIG = flags_lib.define_config(required=False)
_WORKDIR = flags_lib.define_required("workdir", "The sweep's folder.")
_CACHE_DIR = flags.DEFINE_string(
    "cache_dir",
    "",
    "Folder of tokenizers, encoded corpora and compiled programs, which sweeps may share; default "
    "WORKDIR/cache.",
)
_ROWS = flags.DEFINE_string(
    "rows", "*", "Rows to run: names and shell patterns, separated by commas."
)
_SEEDS = flags.DEFINE_integer("seeds", 1, "Runs of each row, with seeds 0, 1, …", lower_bound=1)
_NOISE_FLOOR = flags.DEFINE_integer(
    "noise_floor",
    0,
    "Runs of base, whose variance over seeds is used for all rows; 0: each row's own. Default: as "
    "at the last start.",
    lower_bound=0,
)
_TUNE = flags.DEFINE_string(
    "tune",
    "",
    "A field and values, such as train.learning_rate_scale:0.5,1,2: runs each row with each value, "
    "and also reports the row with the value that is best on the development set, scored on the "
    "test set.",
)
_MATCH = flags.DEFINE_enum(
    "match",
    None,
    sorted(store.BUDGETS),
    "Give each row base's number of parameters (by d_ff), or its training FLOPs (by steps).",
)
_REUSE = flags.DEFINE_list(
    "reuse",
    [],
    "Folders of other sweeps, or published ones, whose finished runs with the same configuration "
    "are used; they are only read.",
)
_WANDB = flags.DEFINE_string("wandb", "", "Project of Weights & Biases to which runs are logged.")
_STATUS = flags.DEFINE_boolean(
    "status", False, "Print the state of each run, and start nothing. Needs no --config."
)
_RETRY_FAILED = flags.DEFINE_boolean(
    "retry_failed", False, "Run again what failed at an earlier start."
)
_DRY_RUN = flags.DEFINE_boolean("dry_run", False, "Print the rows and their cost; run nothing.")
_DEVICE = flags.DEFINE_string(
    "device", "", "With --dry_run: devices to compute hours and dollars for, such as v5e-8."
)
_LAUNCHER = flags.DEFINE_string(
    "launcher",
    local.Local.name,
    "Where to run: local, on this machine; slurm, as an array of jobs; skypilot, as managed jobs; "
    "xpk, as workloads on GKE.",
)
_SETTINGS = {  # help texts of the flags, one for each field of engine.Settings
    "parallel": "Runs at a time, which share this machine's devices; 0: one for each CPU core, or "
    "one if there is an accelerator. With slurm: the most at a time; 0: no limit.",
    "nodes": "With slurm, skypilot and xpk: machines that train each run together.",
    "launcher_options": "Further options of the engine's own command, such as '--partition=gpu "
    "--gpus-per-node=1 --time=8:00:00'.",
    "slurm_script": "With slurm: a changed copy of launch/slurm.sh, which runs a job.",
    "bucket": "With skypilot and xpk: where machines write runs, gs://BUCKET/FOLDER.",
    "accelerator": "With skypilot and xpk: the machines' devices, in the engine's words: "
    "tpu-v5litepod-8, H100:8.",
    "spot": "With skypilot and xpk: use machines that may be preempted.",
}
for _name, _help in _SETTINGS.items():
    _default = getattr(engine.Settings, _name)
    if isinstance(_default, bool):
        flags.DEFINE_boolean(_name, _default, _help)
    elif isinstance(_default, int):
        flags.DEFINE_integer(_name, _default, _help, lower_bound=_default)
    else:
        flags.DEFINE_string(_name, _default, _help)
flags_lib.group(
    "The runs", "config", "workdir", "cache_dir", "rows", "seeds", "noise_floor", "match", "tune",
    "reuse", "retry_failed", "wandb",
)  # fmt: skip
flags_lib.group("Without running anything", "status", "dry_run", "device")
flags_lib.group("Where to run", "launcher", *_SETTINGS)
LAUNCHERS: dict[str, type[local.Local | engine.Queue]] = {
    local.Local.name: local.Local,
    **submissions.ENGINES,
}


@contextlib.contextmanager
def _as_user_errors() -> Iterator[None]:
    try:
        yield
    except engine.EngineError as error:
        raise errors.UserError(str(error)) from error


@_as_user_errors()
def main(table: table_lib.Table) -> int:
    """Runs the rows of a table that the flags choose, and writes the report.

    Returns:
      The exit code: 1 if a run failed, otherwise 0.
    """
    jax.config.update("jax_platforms", "cpu")  # this process trains nothing
    workdir = files.local_path(_WORKDIR.value)
    if _STATUS.value:
        _print_status(table, workdir)
        return 0
    launcher = _launcher()
    tracking.require_package(_WANDB.value)
    base = flags_lib.read_config(_CONFIG)
    table = table_lib.of_corpus(table.name, base, table)
    rows, chosen, seeds, tune = _select(table, base)
    if _DRY_RUN.value:
        _print_plan(table, base, chosen, seeds)
        return 0
    if _DEVICE.value:
        raise errors.UserError("--device needs --dry_run")
    if "train.seed" in flags_lib.overrides():
        raise errors.UserError("--config.train.seed: a sweep sets the seeds; use --seeds")
    _check_launcher(launcher, base, chosen)
    earlier = _earlier(workdir, table.name)
    reuse = _reuse(workdir)
    cache_dir = flags_lib.cache_dir(_CACHE_DIR.value, workdir)
    planned = planning.plan(base, rows, chosen, seeds, workdir, cache_dir)
    runs = [one.run for one in planned if one.run.row in chosen]
    description = _describe(table, base, rows, tune, runs, reuse, earlier)
    _require_comparable(planned, description, table)
    missing, weights = planning.unfinished(
        planned, chosen, [pathlib.Path(folder) for folder in description.reuse]
    )
    submissions.require_not_running(missing, workdir, launcher)
    submissions.fetch_all([one.run for one in missing], workdir, launcher)
    missing = [one for one in missing if not one.is_finished]
    files.make_folder(workdir, "the sweep's folder")
    with run_folder.only_run_in(workdir):
        store.write(workdir, description)
        total = len({run.config_hash for run in runs})
        work = planning.Work(table.name, missing, total, workdir, cache_dir, weights)
        return _run(table, work, launcher)


def _launcher() -> local.Local | engine.Queue:
    kind = fields.lookup("--launcher", _LAUNCHER.value, LAUNCHERS)
    return kind(engine.Settings(**{name: getattr(flags.FLAGS, name) for name in _SETTINGS}))


def _check_launcher(
    launcher: local.Local | engine.Queue,
    base: config_lib.Config,
    chosen: Mapping[str, Mapping[str, Any]],
) -> None:
    """Raises UserError or EngineError if the launcher could not start the runs."""
    if not launcher.shares_disk:
        configs = [config_lib.replace(base, overrides) for overrides in chosen.values()]
        submissions.check(launcher.settings, configs)
    launcher.check()
    if isinstance(launcher, local.Local):
        sharding.mesh_sizes(base.mesh, launcher.devices.for_each)


def _print_status(table: table_lib.Table, workdir: pathlib.Path) -> None:
    description = store.read(workdir)
    _require_table(workdir, description, table.name)
    measure = table_lib.of_corpus(table.name, description.base, table).measure
    states = submissions.states(description, workdir)
    progress.show(progress.read(workdir, measure, states), frames.MEASURES[measure].name)


def _select(
    table: table_lib.Table, base: config_lib.Config
) -> tuple[rows_lib.Rows, dict[str, Mapping[str, Any]], dict[str, int], dict[str, list[Any]]]:
    """Returns the rows that the flags select.

    Returns:
      The overrides of all rows of the table. The overrides of the rows to run and of their variants
      for --tune. The number of runs of each of these. The field of --tune with its values.
    """
    if not base.data.source_language:
        raise errors.UserError("a table compares translations: data.source_language is empty")
    rows = {row: dict(overrides) for row, overrides in table.rows(base).items()}
    table_lib.require_sound(table, rows)
    names = rows_lib.select(rows, _ROWS.value)
    if _MATCH.value:
        rows = rows_lib.matched(rows, names, base, _MATCH.value)
    tune = rows_lib.parse_tune(_TUNE.value, base)
    chosen: dict[str, Mapping[str, Any]] = {}
    seeds: dict[str, int] = {}
    for row in names:
        variants = store.variants(row, rows[row], base, tune)
        if _MATCH.value:
            rows_lib.require_within(base, row, variants, _MATCH.value)
        chosen |= variants
        seeds |= dict.fromkeys(variants, max(_SEEDS.value, table.least_seeds(row)))
    if _NOISE_FLOOR.value:
        base_row = rows_lib.floor_row(table, rows, names, _NOISE_FLOOR.value)
        seeds[base_row] = max(seeds[base_row], _NOISE_FLOOR.value)
    store.require_folder_names({*rows, *chosen})
    rows_lib.require_effects(base, flags_lib.overrides(), chosen)
    for row in chosen:
        planning.source_row(row, {**rows, **chosen}, base)
    return rows, chosen, seeds, tune


def _print_plan(
    table: table_lib.Table,
    base: config_lib.Config,
    chosen: Mapping[str, Mapping[str, Any]],
    seeds: Mapping[str, int],
) -> None:
    devices = cost.parse_device(_DEVICE.value) if _DEVICE.value else None
    dry_run.print_rows(base, chosen, table.reported)
    if devices:
        dry_run.print_prices(base, chosen, seeds, devices)


def _require_table(workdir: pathlib.Path, description: store.Description, table: str) -> None:
    if description.table != table:
        raise errors.UserError(
            f"{workdir} holds a sweep of {description.table}, not of {table}: choose another "
            f"--workdir; --reuse={workdir} uses its finished runs"
        )


def _earlier(workdir: pathlib.Path, table: str) -> store.Description | None:
    """Reads the description that an earlier start of the sweep has written to its folder.

    Returns:
      The description; None if the folder has none, or if it is damaged.

    Raises:
      UserError: the folder has a sweep of another table or with another value of --match, or is a
        published folder.
    """
    if not (workdir / "sweep.json").exists():
        return None
    try:
        description = store.read(workdir)
    except errors.UserError as error:
        _log.warning("%s; it is written anew", error)
        return None
    if description.published:
        raise errors.UserError(
            f"{workdir} is a published folder, which only experiments.publish writes: choose "
            f"another --workdir; --reuse={workdir} uses its runs"
        )
    _require_table(workdir, description, table)
    match = _MATCH.value or ""
    if description.match != match:
        raise errors.UserError(
            f"{workdir} holds a sweep with {_match_flag(description.match)}, this one has "
            f"{_match_flag(match)}: choose another --workdir; --reuse={workdir} uses its finished "
            "runs"
        )
    return description


def _match_flag(budget: str) -> str:
    return f"--match={budget}" if budget else "no --match"


def _reuse(workdir: pathlib.Path) -> list[pathlib.Path]:
    folders = [files.local_path(name) for name in _REUSE.value]
    for folder in folders:
        if folder.resolve() == workdir.resolve():
            raise errors.UserError(f"--reuse={folder} is --workdir itself")
        store.read(folder)
    return folders


def _describe(
    table: table_lib.Table,
    base: config_lib.Config,
    rows: rows_lib.Rows,
    tune: Mapping[str, Sequence[Any]],
    runs: Sequence[store.Run],
    reuse: Sequence[pathlib.Path],
    earlier: store.Description | None,
) -> store.Description:
    """Returns the description of the sweep, which keeps parts of the earlier description.

    If base has not changed, these parts are the runs of unchanged rows, the folders of --reuse, and
    the value of --noise_floor unless the command line has that flag.

    Args:
      table: the table.
      base: the configuration that the rows change.
      rows: the overrides of all rows of the table.
      tune: the field of --tune with its values.
      runs: the runs that the flags select.
      reuse: the folders of --reuse.
      earlier: the description that an earlier start has written; None at the first start.
    """
    noise_floor = _NOISE_FLOOR.value
    kept: list[store.Run] = []
    folders = [str(folder.absolute()) for folder in reuse]
    if earlier and config_lib.hashed_fields(earlier.base) == config_lib.hashed_fields(base):
        then = _all_variants(earlier.rows, base, earlier.tune)
        now = _all_variants(rows, base, tune)
        hashes = {(run.row, run.seed): run.config_hash for run in runs}
        # If the corpus has changed, so have the hashes of a row's runs.
        changed = {
            run.row
            for run in earlier.runs
            if hashes.get((run.row, run.seed), run.config_hash) != run.config_hash
        }
        kept = [
            run
            for run in earlier.runs
            if run.row not in changed and run.row in now and now[run.row] == then.get(run.row)
        ]
        if not _NOISE_FLOOR.present and earlier.base_row == next(iter(rows)):
            noise_floor = earlier.noise_floor
        folders += [folder for folder in earlier.reuse if folder not in folders]
    names = list(_all_variants(rows, base, tune))
    merged = sorted(
        {(run.row, run.seed): run for run in (*kept, *runs)}.values(),
        key=lambda run: (names.index(run.row), run.seed),
    )
    return store.Description(
        table.name, base, rows, merged, tune, _MATCH.value or "", noise_floor, folders
    )


def _all_variants(
    rows: Mapping[str, Mapping[str, Any]],
    base: config_lib.Config,
    tune: Mapping[str, Sequence[Any]],
) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for row, overrides in rows.items():
        found |= store.variants(row, overrides, base, tune)
    return found


def _require_comparable(
    planned: Collection[planning.PlannedRun],
    description: store.Description,
    table: table_lib.Table,
) -> None:
    """Raises UserError if the results of the planned runs would not be comparable in one table."""
    records = pd.DataFrame(
        [{"row": one.run.row, "seed": one.run.seed, **one.measured_on} for one in planned]
    )
    try:
        comparable.require_alike(records, description, table)
    except errors.UserError as error:
        raise errors.UserError(f"nothing was run: {error}") from error


def _run(table: table_lib.Table, work: planning.Work, launcher: local.Local | engine.Queue) -> int:
    """Starts the runs that have no result, writes the report, and returns the exit code."""
    done = work.total - len(work.runs)
    failed: list[str] = []
    if not _RETRY_FAILED.value:
        runs, failed = local_runs.separate_failed(work.runs)
        work = dataclasses.replace(work, runs=runs)
    _log.info("%d of %d runs are done; %d to go", done, work.total, len(work.runs))
    if work.runs:
        group = work.workdir.absolute().name
        more = [f"--wandb={_WANDB.value}", f"--wandb_group={group}"] if _WANDB.value else []
        if isinstance(launcher, local.Local):
            submissions.forget(work.workdir, [one.run for one in work.runs])
            failed += local_runs.run(work, table, launcher.devices, more)
        else:
            submissions.submit(work, launcher, more)
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    if isinstance(launcher, local.Local) or done or not work.runs:
        report.write(work.workdir, table)
    return 1 if failed else 0
