"""Runs the rows of a table: what has no result yet, each run in a process of its own."""

import dataclasses
import logging
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from absl import flags

from experiments.analysis import comparison, plan
from experiments.reporting import document
from experiments.running import handing_over, here
from experiments.running import launcher as launcher_lib
from experiments.sweep import cells as cells_lib
from experiments.sweep import progress, results, taking_over
from experiments.sweep import rows as rows_lib
from experiments.sweep import table as table_lib
from launch import local
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.runs import run_folder
from transformer_jax.training import tracking

_log = logging.getLogger("transformer_jax.sweep")

_CONFIG = flags_lib.define_config(required=False)
_WORKDIR = flags_lib.define_required("workdir", "The sweep's folder.")
_CACHE_DIR = flags.DEFINE_string(
    "cache_dir",
    "",
    "Where tokenizers, encoded corpora and compiled programs are shared; default WORKDIR/cache.",
)
_ROWS = flags.DEFINE_string(
    "rows", "*", "Rows to run: names and shell patterns, separated by commas."
)
_SEEDS = flags.DEFINE_integer("seeds", 1, "Runs of each row, with seeds 0, 1, …", lower_bound=1)
_NOISE_FLOOR = flags.DEFINE_integer(
    "noise_floor",
    0,
    "Runs of base whose deviation stands for the seeds of rows that have one: 10; 0: none; left "
    "out: as at the last start.",
    lower_bound=0,
)
_TUNE = flags.DEFINE_string(
    "tune",
    "",
    "A field and values, train.learning_rate_scale:0.5,1,2: runs each row with each value too, and "
    "reports it at its best beside the fixed recipe: chosen on the development set, scored on the "
    "test set.",
)
_MATCH = flags.DEFINE_enum(
    "match",
    None,
    sorted(results.BUDGETS),
    "Gives each row base's parameters (by d_ff), or base's training operations (by steps).",
)
_REUSE = flags.DEFINE_list(
    "reuse", [], "Folders of other sweeps, whose finished runs of the same configuration serve."
)
_WANDB = flags.DEFINE_string("wandb", "", "Project of Weights & Biases that shows the runs too.")
_STATUS = flags.DEFINE_boolean(
    "status", False, "Print what each run of the sweep is about; run nothing. Needs no --config."
)
flags.register_multi_flags_validator(
    ["config", "status"],
    lambda given: given["status"] or given["config"] is not None,
    message="Flag --config must have a value other than None.",
)
_RETRY_FAILED = flags.DEFINE_boolean(
    "retry_failed", False, "Run again what failed at an earlier start."
)
_DRY_RUN = flags.DEFINE_boolean("dry_run", False, "Print the rows and what they cost; run nothing.")
_DEVICE = flags.DEFINE_string(
    "device", "", "With --dry_run: what to plan hours and dollars for, v5e-8 or H100-1."
)


@launcher_lib.as_user_errors()
def main(table: table_lib.Table) -> int:
    """Runs a table as the flags say, and reports; returns the exit code, 1 if a run failed."""
    jax.config.update("jax_platforms", "cpu")  # this process only counts; runs take the devices
    workdir = files.local_path(_WORKDIR.value)
    if _STATUS.value:
        _require_no_other(workdir, table.name, None)
        progress.show(progress.read(workdir, handing_over.states(workdir)))
        return 0
    launcher = launcher_lib.chosen()
    tracking.require_package(_WANDB.value)
    base = flags_lib.read_config(_CONFIG)
    if not base.data.source_language:
        raise errors.UserError("a table compares translations: data.source_language is empty")
    cache_dir = flags_lib.cache_dir(_CACHE_DIR.value, workdir)
    rows = table.rows(base)
    table_lib.require_sound(table, rows)
    chosen = rows_lib.select(rows, _ROWS.value)
    if _MATCH.value:
        rows = rows_lib.matched(rows, chosen, base, _MATCH.value)
    tune = rows_lib.parse_tune(_TUNE.value, base)
    variants = {row: results.tuned(row, rows[row], base, tune) for row in chosen}
    planned = {name: changes for tried in variants.values() for name, changes in tried.items()}
    seeds = _seeds(table, base, rows, variants)
    rows_lib.require_effects(base, flags_lib.overrides(), planned)
    cells = cells_lib.planned(base, planned, seeds, workdir)
    others = cells_lib.others(cells, base, rows, workdir)
    if _DRY_RUN.value:
        _show_plan(table, base, planned, seeds, cells, others)
        return 0
    if _DEVICE.value:
        raise errors.UserError("--device: give --dry_run with it")
    if "train.seed" in flags_lib.overrides():
        raise errors.UserError("--config.train.seed: a sweep sets the seeds; use --seeds")
    launcher_lib.check(launcher, base, [cell.config for cell in cells])
    _require_no_other(workdir, table.name, _MATCH.value or "")
    cells = cells_lib.read_texts(cells, cache_dir)
    _require_alike(table, variants, cells)
    record = _record(table, base, rows, tune, seeds)
    record["digests"] = [cell.digest for cell in cells]
    results.rows_of(record)  # of all rows, also those that are not chosen: a report reads them
    missing = _missing(cells, cells_lib.read_texts(others, cache_dir), workdir, launcher)
    files.make_folder(workdir, "the sweep's folder")
    with run_folder.only_run_in(workdir):
        files.write_json(workdir / "sweep.json", record | _asked_before(workdir, record))
        work = cells_lib.Work(table.name, missing, len(cells), workdir, cache_dir)
        return _run(table, work, launcher)


def _record(
    table: table_lib.Table,
    base: config_lib.Config,
    rows: plan.Rows,
    tune: Mapping[str, Any],
    seeds: Mapping[str, int],
) -> dict[str, Any]:
    """What sweep.json says of a sweep as it is asked for."""
    return {
        "table": table.name,
        "base": config_lib.to_dict(base),
        "rows": {row: dict(overrides) for row, overrides in rows.items()},
        "tune": tune,
        "match": _MATCH.value or "",
        "noise_floor": _NOISE_FLOOR.value,
        "seeds": seeds,
    }


def _seeds(
    table: table_lib.Table,
    base: config_lib.Config,
    rows: plan.Rows,
    variants: Mapping[str, plan.Rows],
) -> dict[str, int]:
    """How many seeds each chosen row has, and each of its variants in the tuned field."""
    seeds: dict[str, int] = {}
    for row, tried in variants.items():
        if _MATCH.value:
            rows_lib.require_within(base, row, tried, _MATCH.value)
        seeds |= dict.fromkeys(tried, max(_SEEDS.value, table.least_seeds(row)))
    if _NOISE_FLOOR.value:
        base_row = rows_lib.floor_row(table, rows, variants, _NOISE_FLOOR.value)
        seeds[base_row] = max(seeds[base_row], _NOISE_FLOOR.value)
    return seeds


def _asked_before(workdir: pathlib.Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """What of a record is as earlier starts have asked for: further seeds, a noise floor.

    Rows that have changed since have none of it, nor has any row if base has.
    """
    try:
        before, _, rows = results.described(workdir)
    except errors.UserError:  # none, or a damaged one, which is written anew
        return {}
    if before["base"] != record["base"]:
        return {}
    then, now = (
        {name: changes for tried in of.values() for name, changes in tried.items()}
        for of in (rows, results.rows_of(record)[1])
    )
    seeds = {
        row: number
        for row, number in before.get("seeds", {}).items()
        if row in now and now[row] == then[row]
    }
    most = {row: max(number, seeds.get(row, 0)) for row, number in record["seeds"].items()}
    kept: dict[str, Any] = {"seeds": seeds | most}
    if not _NOISE_FLOOR.present and next(iter(now.items())) == next(iter(then.items())):
        kept["noise_floor"] = before.get("noise_floor", 0)
    if now == then:
        digests = [*before.get("digests", []), *record["digests"]]
        kept["digests"] = [*dict.fromkeys(digests)]
    return kept


def _show_plan(
    table: table_lib.Table,
    base: config_lib.Config,
    planned: plan.Rows,
    seeds: Mapping[str, int],
    cells: Sequence[cells_lib.Cell],
    others: Sequence[cells_lib.Cell],
) -> None:
    """Prints the rows and, with --device, what they cost there."""
    if not _REUSE.value:  # which may bring the results of those that start from others
        taking_over.require_weights(cells, others)
    devices = plan.parse(_DEVICE.value) if _DEVICE.value else None
    plan.list_rows(base, planned, table.reported)
    if devices:
        plan.write(base, planned, seeds, devices)


def _require_alike(
    table: table_lib.Table, variants: Mapping[str, plan.Rows], cells: Sequence[cells_lib.Cell]
) -> None:
    """Raises UserError if the results that cells will have could not stand in one table."""
    said = {cell.row: {"bleu": {}, "bleu_by_length": [], **cell.measured_on} for cell in cells}
    corpora: dict[str, list[results.Row]] = {}
    for row, tried in variants.items():
        corpora.setdefault(table.corpus(row), []).extend(
            results.Row(name, changes, {0: said[name]}, {}, []) for name, changes in tried.items()
        )
    try:
        for alike in corpora.values():
            comparison.require_alike(alike)
    except errors.UserError as error:
        raise errors.UserError(f"nothing was run: {error}") from error


def _missing(
    cells: Sequence[cells_lib.Cell],
    others: Sequence[cells_lib.Cell],
    workdir: pathlib.Path,
    launcher: launcher_lib.Launcher,
) -> list[cells_lib.Cell]:
    """The cells that have no result yet, here or where they ran, and that can have one."""
    reusable = {}
    for other in map(files.local_path, _REUSE.value):
        if other.resolve() == workdir.resolve():
            raise errors.UserError(f"--reuse={other} is --workdir itself")
        reusable |= taking_over.finished(other)
    handing_over.require_no_other(cells, workdir, launcher)
    missing = taking_over.missing(cells, reusable)
    handing_over.fetch(missing, workdir, launcher)
    taking_over.require_weights(cells, others)
    return [cell for cell in missing if not (cell.folder / "result.json").exists()]


def _run(table: table_lib.Table, work: cells_lib.Work, launcher: launcher_lib.Launcher) -> int:
    """Runs what is missing, or hands it over, and reports what is done; returns the exit code."""
    workdir, done, handed_over = work.workdir, work.total - len(work.cells), False
    failed = []
    if not _RETRY_FAILED.value:
        cells, failed = cells_lib.without_failed(work.cells)
        work = dataclasses.replace(work, cells=cells)
    _log.info("%d of %d runs are done; %d to go", done, work.total, len(work.cells))
    if work.cells:
        group = workdir.absolute().name
        more = [f"--wandb={_WANDB.value}", f"--wandb_group={group}"] if _WANDB.value else []
        if isinstance(launcher, local.Local):
            handing_over.forget(workdir, work.cells)
            failed += here.run(work, launcher.devices, more)
        else:
            handing_over.start(work, launcher, more)
            handed_over = True
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    if done or not handed_over:  # else there is nothing to report yet
        document.write(workdir, table=table)
        _log.info("the table lies in %s", workdir / f"{table.name}.md")
    return 1 if failed else 0


def _require_no_other(workdir: pathlib.Path, table: str, match: str | None) -> None:
    """Raises UserError if another table's sweep lies in a folder, or one at another budget.

    The budget is "" where there is none; None stands for any.
    """
    try:
        record = files.read_json(workdir / "sweep.json", {"table": str}, "")
    except errors.UserError:  # none, or a damaged one, which is written anew
        return
    theirs = record["table"], record.get("match") or ""
    ours = table, theirs[1] if match is None else match
    if ours != theirs:
        there, here = (
            f"a sweep of {name}" + f" with --match={budget}" * bool(budget)
            for name, budget in (theirs, ours)
        )
        raise errors.UserError(
            f"{workdir} holds {there}, not {here}: choose another --workdir; "
            f"with --reuse={workdir} its finished runs are not run again"
        )
