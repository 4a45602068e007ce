"""The results of a sweep, as they lie on disk."""

import dataclasses
import pathlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files
from transformer_jax.drawing import tables
from transformer_jax.evaluation import measures
from transformer_jax.runs import run_folder

REMEDY = "start the sweep again, which writes it anew and runs nothing twice"  # sweep.json
ANEW = "delete the run's result.json and start the sweep again, which evaluates it anew"
_REQUIRED = {
    "table": str,
    "base": dict,
    "rows": dict,
    "tune": dict,
}
TAKEN = ("table1", "scores", "examples")  # what experiments.table1 and experiments.publish write
BUDGETS = ("parameters", "flops")  # what all rows can have as much of as base
LONGEST_NAME = 200  # bytes of a row's folder; file systems allow 255
# A letter, digit or _; then nothing that a path or a terminal would take for more than itself.
_PLAIN = re.compile(r"\w[^/\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*")
# What else lies in a sweep's folder.
_OF_THE_SWEEP = re.compile(r"cache|slurm|.*\.(csv|html|json|log|md|sh|yaml)")
ROUNDING = 1e-6  # of a score
UNEQUAL = 0.02  # parameters that differ by a larger share are marked
UNEQUAL_NOTE = (
    "A percentage after params: the row has so many more or fewer than base, so that it does not "
    "compare parts at equal parameters."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table with the runs that it has."""

    name: str
    overrides: Mapping[str, Any]  # what the row changes in the base, by dotted name
    results: Mapping[int, Mapping[str, Any]]  # the contents of result.json by seed
    failures: Mapping[int, str]  # the errors of failed runs by seed, each one line
    stale: Sequence[int]  # seeds whose run is not of the row's present configuration: none counts
    # The row with another value of the tuned field, by value.
    tuned: Mapping[Any, "Row"] = dataclasses.field(default_factory=dict)

    def of(self, field: str) -> list[Any]:
        """A field of each result.json, in the order of seeds; empty if the row has not been run."""
        return [result[field] for result in self.results.values()]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """All rows of a table, in its order."""

    table: str  # its name, such as table3
    base: config_lib.Config
    rows: list[Row]  # whether run yet or not
    workdir: pathlib.Path
    # The field that each row is tuned in, and its values; empty if none is.
    tune: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    match: str = ""  # what all rows have as much of as base; "" if they need not
    noise_floor: int = 0  # runs of base whose deviation stands for other rows' seeds; 0: none does

    def config(self, row: Row) -> config_lib.Config:
        """The configuration of a row."""
        return config_lib.replace(self.base, row.overrides)


def read_record(workdir: pathlib.Path) -> dict[str, Any]:
    """What a sweep's sweep.json says; raises UserError if there is none, or it is damaged."""
    path = workdir / "sweep.json"
    if not path.exists():
        raise errors.UserError(f"{workdir} holds no sweep: it has no sweep.json")
    return files.read_json(path, _REQUIRED, REMEDY)


def slug(row: str) -> str:
    """The name of a row's folder, spaces and = as -; raises UserError if no folder can have it."""
    name = row.replace(" ", "-").replace("=", "-")
    if not _PLAIN.fullmatch(name) or len(name.encode(errors="replace")) > LONGEST_NAME:
        raise errors.UserError(
            f"a row cannot be called {row[:80]!r}: its folder has its name, so that it should "
            f"begin with a letter, a digit or _, hold no slash, backslash or control character, "
            f"and take at most {LONGEST_NAME} bytes"
        )
    return name


def require_folders(rows: Collection[str]) -> None:
    """Raises UserError unless every row can have a folder, and one of its own on any disk."""
    owners: dict[str, str] = {}
    for row in rows:
        folder = unicodedata.normalize("NFC", slug(row)).casefold()
        if _OF_THE_SWEEP.fullmatch(folder):
            raise errors.UserError(
                f"a row cannot be called {row!r}: the sweep's own {folder} lies there; rename it"
            )
        owner = owners.setdefault(folder, row)
        if owner != row:
            raise errors.UserError(
                f"rows {owner!r} and {row!r} would share the folder {slug(row)}: rename one"
            )


def cell_folder(workdir: pathlib.Path, row: str, seed: int) -> pathlib.Path:
    """Where one run of a row lies."""
    return workdir / slug(row) / f"seed{seed}"


def tuned(
    row: str, overrides: Mapping[str, Any], base: config_lib.Config, tune: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    """A row as it is, and with each value of the tuned field that it does not have, by name."""
    return {row: overrides} | {
        f"{row} {field.split('.')[-1]}={value}": {**overrides, field: value}
        for field, values in tune.items()
        for value in values
        if value != overrides.get(field, config_lib.get(base, field))
    }


def reference(row: Row, sweep: Sweep) -> Row:
    """The row that a row's difference is taken from.

    That is base; for one that was trained on short sentences only, the row of base's kinds that
    was trained on the same ones.
    """
    field = "data.train_max_tokens"
    if field in row.overrides:
        for other in sweep.rows:
            kinds = {name: value for name, value in other.overrides.items() if name != field}
            same = other.overrides.get(field) == row.overrides[field]
            if same and config_lib.replace(sweep.base, kinds) == sweep.base:
                return other
    return sweep.rows[0]


def counts(sweep: Sweep, row: Row, variant: str, of: str = "dev") -> dict[int, np.ndarray]:
    """What a measure sums on the "dev" or "test" set, by seed; empty where runs were not scored so.

    Raises UserError if a file is missing or damaged, or does not give the score of result.json.
    """
    measure = measures.MEASURES[variant]
    name = {"dev": "", "test": "test_"}[of] + measure.file
    found: dict[int, np.ndarray] = {}
    for seed, result in row.results.items():
        path = cell_folder(sweep.workdir, row.name, seed) / name
        scored = result if of == "dev" else result.get("test", {})
        if not path.exists():
            if scored.get("bleu"):
                raise errors.UserError(f"{path} is missing, of a scored run: {ANEW}")
            return {}
        sentences = files.read_json(path, {variant: list}, ANEW)[variant]
        if not sentences or any(
            len(s) != measure.width or min(s) < 0 or max(s) >= 2**31 for s in sentences
        ):
            raise errors.UserError(
                f"{path} is damaged (a sentence has {measure.width} counts, none below 0): {ANEW}"
            )
        found[seed] = np.array(sentences, np.int32)
        score = measure.from_counts(found[seed].sum(0))
        try:
            written = measure.of_result(scored)
        except KeyError as error:
            raise errors.UserError(
                f"{path} counts sentences of which result.json beside it has no {measure.name}: "
                "delete it"
            ) from error
        if abs(score - written) > ROUNDING:
            raise errors.UserError(
                f"{path} is of other sentences than result.json beside it ({measure.name} "
                f"{score:.2f} and {written:.2f}): {ANEW}"
            )
    return found


def device_hours(runs: Iterable[Mapping[str, Any]]) -> float:
    """What runs took, by their results; one that does not name its devices had one."""
    return sum(run["wall_seconds"] * len(run.get("devices") or [0]) for run in runs) / 3600


def files_of(sweep: Sweep, held_out: str) -> str:
    """The files of the "dev" or "test" set, in brackets, without folders; "" if none is named."""
    parts = getattr(sweep.base.data, held_out).split(",")
    names = ", ".join(pathlib.PurePath(part.strip()).name for part in parts if part.strip())
    return f" ({names})" if names else ""


def unequal(params: int, other: int) -> str:
    """How one number of parameters differs from another, where it differs enough to matter."""
    share = params / other - 1
    return tables.signed(share, "+.0%") if abs(share) > UNEQUAL else ""


def described(
    workdir: pathlib.Path,
) -> tuple[dict[str, Any], config_lib.Config, dict[str, dict[str, Mapping[str, Any]]]]:
    """What sweep.json says, its base, and what each row and its tuned variants change, by names.

    Raises UserError if there is none, or no table, row or configuration can be as it says.
    """
    record = read_record(workdir)
    try:
        return record, *rows_of(record)
    except errors.UserError as error:
        path = workdir / "sweep.json"
        raise errors.UserError(f"{path} is damaged ({error}): {REMEDY}") from error


def rows_of(
    record: Mapping[str, Any],
) -> tuple[config_lib.Config, dict[str, dict[str, Mapping[str, Any]]]]:
    """The base of what a sweep.json says, and its rows; raises UserError as `described`."""
    table, tune = record["table"], record["tune"]
    if not re.fullmatch(r"\w+", table) or table in TAKEN:  # it names the files of the report
        raise errors.UserError(f"no table is called {table[:80]!r}")
    if not record["rows"]:
        raise errors.UserError("it has no rows")
    if len(tune) > 1:
        raise errors.UserError(f"it tunes several fields: {', '.join(tune)}")
    if match := record.get("match", ""):
        fields.require_known("match", match, BUDGETS)
    base = config_lib.from_record(record["base"])
    own = {row: _known(row, changes) for row, changes in record["rows"].items()}
    rows = {row: tuned(row, changes, base, tune) for row, changes in own.items()}
    for variants in rows.values():
        for name, changes in variants.items():
            try:
                config_lib.replace(base, changes)
            except errors.UserError as error:
                raise errors.UserError(f"row {name!r}: {error}") from error
    names = [name for variants in rows.values() for name in variants]
    require_folders(names)
    for field in ("seeds", "said"):
        if unknown := record.get(field, {}).keys() - names:
            raise errors.UserError(f"{field} names {min(unknown)[:80]!r}, which is no row")
    return base, rows


def _known(row: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return config_lib.without_removed(changes)
    except errors.UserError as error:
        raise errors.UserError(f"row {row!r}: {error}") from error


def require_fields(sweep: Sweep, required: Mapping[str, type]) -> None:
    """Raises UserError unless all results have what a table shows besides what every one has."""
    for row in [each for own in sweep.rows for each in (own, *own.tuned.values())]:
        for seed, result in row.results.items():
            try:
                files.require(result, required)
            except ValueError as error:
                path = cell_folder(sweep.workdir, row.name, seed) / "result.json"
                raise errors.UserError(
                    f"{path} is no result of {sweep.table} ({error}), which sweep.json names: "
                    "start the sweep again, which writes that anew; if it is right, delete the "
                    "result first"
                ) from error


def read(workdir: pathlib.Path) -> Sweep:
    """Reads a sweep's folder; raises UserError if it holds none, or a damaged file."""
    record, base, described_rows = described(workdir)
    tune, rows = record["tune"], []
    for variants in described_rows.values():
        row, *others = (_read_row(workdir, base, *variant) for variant in variants.items())
        tried = {other.overrides[field]: other for field in tune for other in others}
        rows.append(dataclasses.replace(row, tuned=tried))
    more = record.get("match", ""), record.get("noise_floor", 0)
    return Sweep(record["table"], base, rows, workdir, tune, *more)


def _read_row(
    workdir: pathlib.Path, base: config_lib.Config, name: str, overrides: Mapping[str, Any]
) -> Row:
    found: dict[int, Mapping[str, Any]] = {}
    failures: dict[int, str] = {}
    stale: list[int] = []
    for seed, folder in seed_folders(workdir, name):
        config = config_lib.replace(base, {**overrides, "train.seed": seed})
        claimed = None
        if (folder / "run.json").exists():  # before anything claimed it, it may be any run's
            record = run_folder.read_record(folder)
            claimed = record["config_hash"]
            if claimed != config_lib.fingerprint(config, record["digests"]):
                stale.append(seed)
                continue
        if (folder / "result.json").exists():
            result = run_folder.read_result(folder)
            if claimed and result.get("config_hash", claimed) != claimed:
                raise errors.UserError(
                    f"{folder / 'result.json'} is of another run than run.json beside it: {ANEW}"
                )
            found[seed] = result
        elif (folder / "failure.json").exists():
            failures[seed] = run_folder.read_error(folder)
    return Row(name, overrides, found, failures, stale)


def seed_folders(workdir: pathlib.Path, row: str) -> list[tuple[int, pathlib.Path]]:
    """The runs of a row by seed; seed0.01234567, of an earlier config, was set aside."""
    found = (workdir / slug(row)).glob("seed*")
    return sorted((int(path.name[4:]), path) for path in found if path.name[4:].isdecimal())


def shortfalls(sweep: Sweep) -> list[str]:
    """What of a sweep is not in its table: a line each for what failed, is stale, was not run."""
    rows = [row for own in sweep.rows for row in (own, *own.tuned.values())]
    found = {
        "Failed": [f"{row.name} (seed {s}: {e})" for row in rows for s, e in row.failures.items()],
        "Left out, being of another configuration": [
            f"{row.name} (seed {seed})" for row in rows for seed in row.stale
        ],
        "Not run": [
            f"“{row.name}”" for row in rows if not (row.results or row.failures or row.stale)
        ],
    }
    separators = {"Failed": "; "}  # between errors, which have commas
    return [
        f"{why}: {separators.get(why, ', ').join(names)}." for why, names in found.items() if names
    ]
