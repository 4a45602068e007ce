"""Runs the rows of a table: what has no result yet, each run in a process of its own."""

import dataclasses
import functools
import logging
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from absl import flags
from ml_collections import config_flags

from experiments import cost, paper, plan, report, results, reuse
from experiments import rows as rows_lib
from launch import local
from transformer_jax import config as config_lib
from transformer_jax import files, run_folder, runs
from transformer_jax import flags as flags_lib
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.evaluation import bleu
from transformer_jax.training import metrics, sharding

_log = logging.getLogger("transformer_jax.sweep")

_CONFIG = flags_lib.define_config()
_WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder.", required=True)
_CACHE_DIR = flags.DEFINE_string(
    "cache_dir",
    "",
    "Where tokenizers, encoded corpora and compiled programs are shared; default WORKDIR/cache.",
)
_ROWS = flags.DEFINE_string(
    "rows", "*", "Rows to run: names and shell patterns, separated by commas."
)
_SEEDS = flags.DEFINE_integer("seeds", 1, "Runs of each row, with seeds 0, 1, …", lower_bound=1)
_PACK_SEEDS = flags.DEFINE_boolean(
    "pack_seeds", False, "Train all seeds of a row in one program, side by side."
)
_TUNE = flags.DEFINE_string(
    "tune",
    "",
    "A field and values, train.learning_rate_scale:0.5,1,2: runs each row with each value too, and "
    "reports it at its best on the development set beside the fixed recipe.",
)
_MATCH = flags.DEFINE_enum(
    "match",
    None,
    sorted(rows_lib.BUDGETS),
    "Gives each row base's parameters (by d_ff), or base's training operations (by steps).",
)
_REUSE = flags.DEFINE_string(
    "reuse", "", "Folder of another sweep, whose finished runs of the same configuration serve."
)
_LAUNCHER = flags.DEFINE_string("launcher", "local", "Where to run: local, on this machine.")
_PARALLEL = flags.DEFINE_integer(
    "parallel",
    0,
    "Runs at a time; 0: one for each CPU core, or one if JAX has an accelerator.",
    lower_bound=0,
)
_DRY_RUN = flags.DEFINE_boolean("dry_run", False, "Print the rows and what they cost; run nothing.")
_DEVICE = flags.DEFINE_string(
    "device",
    "",
    "With --dry_run: what to plan hours, memory and dollars for, v5e-8 or H100-1.",
)
_UTILISATION = flags.DEFINE_float(
    "utilisation",
    0.0,
    "With --device: share of its peak that training reaches; 0: that of experiments/devices.json.",
    lower_bound=0.0,
    upper_bound=1.0,
)

Rows = Mapping[str, Mapping[str, Any]]
SECONDS_BETWEEN_LINES = 20
USER_MISTAKE = 2  # exit code of a run that was refused


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of the sweep."""

    row: str
    seed: int
    config: config_lib.Config
    overrides: Mapping[str, Any]
    folder: pathlib.Path

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.row}, seed {self.seed}"


def main(
    rows_for: Callable[[config_lib.Config], Rows],
    table: str,
    least_seeds: Callable[[str], int] = lambda row: 1,
) -> int:
    """Runs a table as the flags say, and reports.

    Args:
      rows_for: the table's rows for a base.
      table: the table's name.
      least_seeds: runs that a row has even if --seeds says fewer.

    Returns:
      Exit code: 1 if a run failed.
    """
    jax.config.update("jax_platforms", "cpu")  # this process only counts; runs take the devices
    config_lib.require_known("--launcher", _LAUNCHER.value, ("local",))
    base = flags_lib.read_config(_CONFIG)
    rows = rows_for(base)
    chosen = rows_lib.select(rows, _ROWS.value)
    if _MATCH.value:
        if _TUNE.value:
            raise config_lib.UserError("--tune would leave the budget of --match: give one of them")
        rows = rows_lib.matched(rows, chosen, base, _MATCH.value)
    tune = parse_tune(_TUNE.value, base)
    variants = {
        row: {row: rows[row], **results.tuned(row, rows[row], base, tune)} for row in chosen
    }
    planned = {name: o for group in variants.values() for name, o in group.items()}
    results.require_folders(planned)
    if _DRY_RUN.value:
        devices = plan.parse(_DEVICE.value) if _DEVICE.value else None
        plan.list_rows(base, planned, paper.TABLES.get(table, {}))
        if devices:
            plan.write(base, planned, _SEEDS.value, devices, _UTILISATION.value)
        return 0
    if _DEVICE.value or _UTILISATION.value:
        raise config_lib.UserError("--device and --utilisation plan: give --dry_run with them")
    workdir = files.local_path(_WORKDIR.value)
    cache_dir = flags_lib.cache_dir(_CACHE_DIR.value, workdir)
    if "train.seed" in flags_lib.overrides():
        raise config_lib.UserError("--config.train.seed: a sweep sets the seeds; use --seeds")
    device_kind, device_count = local.devices()
    sharding.mesh_sizes(base.mesh, device_count)
    parallel = _PARALLEL.value or local.default_parallel(device_kind)
    _require_no_other(workdir, table)
    reusable = {}
    if _REUSE.value:
        other = files.local_path(_REUSE.value)
        if other.resolve() == workdir.resolve():
            raise config_lib.UserError(f"--reuse={other} is --workdir itself")
        reusable = reuse.finished(other)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise config_lib.UserError(f"cannot make the sweep's folder: {error}") from error
    cells = [
        _make_cell(base, name, overrides, seed, workdir, cache_dir)
        for row in chosen
        for name, overrides in variants[row].items()
        for seed in range(max(_SEEDS.value, least_seeds(row)))
    ]
    missing = [cell for cell in cells if not _is_done(cell, cache_dir, reusable)]
    files.write_json(
        workdir / "sweep.json",
        {
            "table": table,
            "base": config_lib.to_dict(base),
            "rows": {row: dict(overrides) for row, overrides in rows.items()},
            "tune": tune,
            "match": _MATCH.value or "",
        },
    )
    failed = _run(missing, len(cells), cache_dir, parallel)
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    report.write(workdir)
    _log.info("the table lies in %s", workdir / f"{table}.md")
    return 1 if failed else 0


def parse_tune(text: str, base: config_lib.Config) -> dict[str, list[Any]]:
    """The field and its values that --tune names; nothing for "".

    Raises:
      UserError: it names no field, or values that the field cannot have.
    """
    if not text:
        return {}
    field, _, values = text.partition(":")
    if field.split(".")[0] not in ("model", "train", "data", "decode") or field == "train.seed":
        raise config_lib.UserError(
            f"--tune={text}: only fields of model, train, data and decode that are no seed change "
            "a result"
        )
    try:
        kind = type(config_lib.get(base, field))
        if kind is bool:
            raise config_lib.UserError("it is no number and no name")
        found = [kind(value) for value in values.split(",")]
        for value in found:
            config_lib.replace(base, {field: value})
    except (AttributeError, ValueError, config_lib.UserError) as error:
        raise config_lib.UserError(
            f"--tune={text}: {error}; give a field and its values, as in "
            "--tune=train.learning_rate_scale:0.5,1,2"
        ) from error
    return {field: found}


def _make_cell(
    base: config_lib.Config,
    row: str,
    overrides: Mapping[str, Any],
    seed: int,
    workdir: pathlib.Path,
    cache_dir: pathlib.Path,
) -> Cell:
    """A cell whose configuration can be run.

    Raises:
      UserError: it cannot; the message names the row.
    """
    changes = {**overrides, "train.seed": seed}
    try:
        config = config_lib.replace(base, changes)
        one_device = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1), jax.devices()[:1])
        runs.check(config, one_device, _dataset(config.data, cache_dir))
    except config_lib.UserError as error:
        raise config_lib.UserError(f"row {row!r}: {error}") from error
    folder = results.cell_folder(workdir, row, seed)
    return Cell(row, seed, config, {**flags_lib.overrides(), **changes}, folder)


def _require_no_other(workdir: pathlib.Path, table: str) -> None:
    """Raises UserError if another table's sweep lies in a folder, or one at another budget."""
    try:
        record = files.read_json(workdir / "sweep.json", {"table": str}, "")
    except config_lib.UserError:  # none, or a damaged one, which is written anew
        return
    for name, here, there in (
        ("sweep", table, record["table"]),
        ("sweep with --match", _MATCH.value or "", record.get("match", "")),
    ):
        if here != there:
            raise config_lib.UserError(
                f"{workdir} holds the {name} {there!r}, not {here!r}: choose another --workdir; "
                f"with --reuse={workdir} its finished runs are not run again"
            )


def _is_done(cell: Cell, cache_dir: pathlib.Path, reusable: Mapping[str, pathlib.Path]) -> bool:
    """Whether the cell has its result, by now.

    A run of another config in its place is set aside, under a part of its hash; one of this config
    that was set aside earlier is brought back.
    """
    wanted = config_lib.fingerprint(cell.config, _dataset(cell.config.data, cache_dir).digests)
    record_path = cell.folder / "run.json"
    if record_path.exists():
        found = run_folder.read_record(cell.folder)["config_hash"]
        if found != wanted:
            aside = _aside(cell.folder, found)
            with run_folder.only_run_in(cell.folder):
                cell.folder.rename(aside)
            _log.info("%s: its config has changed; the earlier run is now %s", cell.name, aside)
    if not record_path.exists() and _aside(cell.folder, wanted).exists():
        shutil.rmtree(cell.folder, ignore_errors=True)  # a start that ended before it began
        _aside(cell.folder, wanted).rename(cell.folder)
        _log.info("%s: a run of this config was set aside earlier; it is back", cell.name)
    if not (cell.folder / "result.json").exists() and wanted in reusable:
        about = {"row": cell.row, "overrides": dict(cell.overrides)}
        _log.info("%s: taken over from %s", cell.name, reusable[wanted])
        reuse.take(reusable[wanted], cell.folder, about)
    return (cell.folder / "result.json").exists()


def _aside(folder: pathlib.Path, config_hash: str) -> pathlib.Path:
    return folder.with_name(f"{folder.name}.{config_hash[:8]}")


@functools.cache
def _dataset(config: config_lib.DataConfig, cache_dir: pathlib.Path) -> dataset_lib.Dataset:
    """A corpus, whose tokenizer and tokens are then in the cache for all cells."""
    return dataset_lib.load(config, cache_dir)


def _run(cells: Sequence[Cell], total: int, cache_dir: pathlib.Path, parallel: int) -> list[str]:
    """Runs cells, seed by seed, the most expensive first; returns a line for each that failed.

    Seeds that are trained together are one job, whose cost is that of all of them.
    """
    _log.info("%d of %d runs are done; %d to go", total - len(cells), total, len(cells))
    if not cells:
        return []
    for cell in cells:
        (cell.folder / "failure.json").unlink(missing_ok=True)  # of an earlier start
    groups: dict[str, list[Cell]] = {}  # what one process runs, by its name
    for cell in cells:
        groups.setdefault(cell.row if _PACK_SEEDS.value else cell.name, []).append(cell)

    def expense(name: str) -> tuple[int, float]:
        first, *others = groups[name]
        return first.seed, -cost.training_flops(first.config) * (1 + len(others))

    groups = {name: groups[name] for name in sorted(groups, key=expense)}
    failed: list[str] = []
    ended = total - len(cells)
    last_line = time.monotonic()

    def on_end(job: local.Job, code: int) -> None:
        nonlocal ended
        for cell in groups[job.name]:
            ended += 1
            if (cell.folder / "result.json").exists():
                result = run_folder.read_result(cell.folder)
                _log.info(
                    "%d of %d   %s: ppl %.3f, BLEU %.2f, %s",
                    ended,
                    total,
                    cell.name,
                    result["ppl"],
                    result["bleu"][bleu.MAIN]["score"],
                    metrics.duration(result["wall_seconds"]),
                )
            else:
                failed.append(f"{cell.name}: {_failure(cell, job, code)}")
                _log.info("%d of %d   %s FAILED", ended, total, cell.name)

    def on_tick(running: Sequence[local.Job]) -> None:
        nonlocal last_line
        if time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            states = [f"{job.name}: {_state(groups[job.name][0])}" for job in running]
            _log.info("%d of %d   %s", ended, total, "   ".join(states))

    jobs = [_job(name, group, cache_dir) for name, group in groups.items()]
    local.run(jobs, parallel, on_end, on_tick)
    return failed


def _job(name: str, cells: Sequence[Cell], cache_dir: pathlib.Path) -> local.Job:
    """A process that runs one cell, or all that are missing of a row."""
    first = cells[0]
    folder, overrides, seeds = first.folder, dict(first.overrides), []
    if _PACK_SEEDS.value:
        folder = folder.parent
        del overrides["train.seed"]
        seeds = [f"--seeds={','.join(str(cell.seed) for cell in cells)}"]
    command = [
        sys.executable,
        "-m",
        "transformer_jax.train",
        f"--config={config_flags.get_config_filename(flags.FLAGS['config'])}",
        *(f"--config.{field}={value}" for field, value in overrides.items()),
        f"--workdir={folder}",
        f"--cache_dir={cache_dir}",
        f"--row={first.row}",
        *seeds,
    ]
    return local.Job(name, command, folder / "log.txt")


def _state(cell: Cell) -> str:
    steps = cell.config.train.num_steps
    try:
        records = metrics.read(cell.folder)
    except config_lib.UserError as error:  # which the run itself ends with; the others go on
        return str(error)
    for last in reversed(records):
        if "loss" in last:
            if last["step"] >= steps:
                return "evaluating"
            return f"step {last['step']:,} of {steps:,}, loss {last['loss']:.2f}"
    return "starting"


def _failure(cell: Cell, job: local.Job, code: int) -> str:
    """One line that says why; a process that died without a word gets its failure.json here.

    One that was refused (exit code 2) does not: the folder may be another's at work.
    """
    path = cell.folder / "failure.json"
    if path.exists():
        error = run_folder.read_error(cell.folder)
    else:
        lines = job.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        error = f"exit code {code}: {lines[-1] if lines else 'no output'}"
        if code != USER_MISTAKE:
            files.write_json(path, {"error": error, "traceback": "", "step": None})
    return f"{error} (see {job.log})"
