"""The folder of a sweep: `sweep.json` and the folders of runs.

A sweep's folder has the file `sweep.json`, which lists rows and runs, and a folder `ROW/seedK-HASH`
for each run. HASH is the beginning of the run's `config_hash`, which identifies the run. Rows with
equal settings have the same hash and share one run. If the configuration of a row is changed, its
runs get new folders, and the old folders stay.

`--reuse` names further folders in which finished runs are looked up. These are folders of other
sweeps, or published folders, which have `runs.csv` instead of folders of runs. Nothing is written
to folders of `--reuse`.
"""

import dataclasses
import pathlib
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files
from transformer_jax.runs import run_folder

REMEDY = "start the sweep again, which writes the file anew and repeats no run"
BUDGETS = ("parameters", "flops")  # values of --match
RESERVED_TABLES = ("table1",)  # names of tables that are not sweeps
HASH_LENGTH = 8  # digits of a config_hash in the name of a folder
LONGEST_NAME = 200  # bytes of a row's folder; file systems allow 255
# A letter, a digit or _, followed by characters that are special in neither paths nor terminals.
_PLAIN = re.compile(r"\w[^/\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*")
_PATTERN = re.compile(r"[*?\[\]#{}]")  # characters of patterns in Orbax and in buckets
# Names of files and folders in a sweep's folder that are no folders of rows.
_SWEEP_FILES = re.compile(r"cache|slurm|.*\.(csv|html|json|log|md|npz|sh|yaml)")


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a sweep: its row, its seed, and the hash of its configuration and corpus."""

    row: str
    seed: int
    config_hash: str


@dataclasses.dataclass(frozen=True)
class Description:
    """The contents of `sweep.json`.

    Attributes:
      table: the name of the table.
      base: the configuration that the rows change.
      rows: the overrides of each row, base first.
      runs: the runs of the table, finished or not.
      tune: the field of --tune and its values; empty without --tune.
      match: the value of --match, "parameters" or "flops"; "" without --match.
      noise_floor: the number of runs of base whose variance is used for all rows; 0 without
        --noise_floor.
      reuse: the folders of --reuse.
      data: the files, hashes and line counts of the corpora, in a published folder.
      published: True for a published folder.
    """

    table: str
    base: config_lib.Config
    rows: Mapping[str, Mapping[str, Any]]
    runs: Sequence[Run] = ()
    tune: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    match: str = ""
    noise_floor: int = 0
    reuse: Sequence[str] = ()
    data: Sequence[Any] = ()
    published: bool = False

    @property
    def base_row(self) -> str:
        """The name of the first row, with which the other rows are compared."""
        return next(iter(self.rows))

    def variants(self, row: str) -> dict[Any, str]:
        """Returns the names of a row and of its variants for --tune, by value of the tuned field.

        The result is {} without --tune.
        """
        field = next(iter(self.tune), None)
        if field is None:
            return {}
        named = variants(row, self.rows[row], self.base, self.tune)
        return {config_lib.get(self.config(name), field): name for name in named}

    def names(self, row: str) -> list[str]:
        """Returns the name of a row, followed by the names of its variants for --tune."""
        return list(variants(row, self.rows[row], self.base, self.tune))

    def overrides(self, name: str) -> Mapping[str, Any]:
        """Returns the overrides of a row, or of a variant of a row for --tune.

        Raises:
          KeyError: no row or variant has the name.
        """
        if name in self.rows:
            return self.rows[name]
        for row, changes in self.rows.items():
            overrides = variants(row, changes, self.base, self.tune)
            if name in overrides:
                return overrides[name]
        raise KeyError(name)

    def config(self, name: str) -> config_lib.Config:
        """Returns the configuration of a row, or of a variant of a row for --tune.

        Its train.seed is that of `base`.
        """
        return config_lib.replace(self.base, self.overrides(name))


def variants(
    row: str, overrides: Mapping[str, Any], base: config_lib.Config, tune: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    """Returns the overrides of a row and of its variants for --tune, by name.

    There is one variant for each value of the tuned field, except the value that the row already
    has. The variant of row "E" with train.learning_rate_scale=2 is named "E learning_rate_scale=2".

    Args:
      row: the row.
      overrides: the overrides of the row.
      base: the configuration that the rows change.
      tune: the field of --tune with its values; empty without --tune.
    """
    named: dict[str, Mapping[str, Any]] = {row: overrides}
    for field, values in tune.items():
        own = overrides.get(field, config_lib.get(base, field))
        for value in values:
            if value != own:
                named[f"{row} {field.split('.')[-1]}={value}"] = {**overrides, field: value}
    return named


def write(folder: pathlib.Path, description: Description) -> None:
    """Writes the description of a sweep to `sweep.json` in its folder."""
    record = {
        **dataclasses.asdict(description),
        "base": config_lib.to_dict(description.base),
        "rows": {row: dict(overrides) for row, overrides in description.rows.items()},
    }
    files.write_json(folder / "sweep.json", record)


def read(folder: pathlib.Path) -> Description:
    """Reads the description of a sweep from `sweep.json` in its folder.

    Raises:
      UserError: the folder holds no sweep, or its description is damaged.
    """
    path = folder / "sweep.json"
    if not path.exists():
        raise errors.UserError(
            f"{folder} holds no sweep: it has no sweep.json; name the --workdir of a sweep, or a "
            "published folder"
        )
    required = {
        "table": str,
        "base": dict,
        "rows": dict,
        "runs": list,
        "tune": dict,
        "match": str,
        "noise_floor": int,
        "reuse": list,
    }
    record = files.read_json(path, required, REMEDY)
    try:
        return parse(record)
    except (errors.UserError, AttributeError, KeyError, TypeError) as error:
        raise errors.UserError(f"{path} is damaged ({error}): {REMEDY}") from error


def parse(record: Mapping[str, Any]) -> Description:
    """Converts the contents of `sweep.json` to a description.

    Raises:
      UserError: a value is impossible, such as a run of a row that the file does not list.
    """
    table = record["table"]
    if not re.fullmatch(r"\w+", table) or table in RESERVED_TABLES:
        raise errors.UserError(f"no table can be called {table[:80]!r}")
    if not record["rows"]:
        raise errors.UserError("it has no rows")
    if len(record["tune"]) > 1:
        raise errors.UserError(f"it tunes several fields: {', '.join(record['tune'])}")
    if not all(isinstance(folder, str) for folder in record["reuse"]):
        raise errors.UserError("reuse: it holds other values than folders")
    if record["match"]:
        fields.require_known("match", record["match"], BUDGETS)
    description = Description(
        table=table,
        base=config_lib.from_record(record["base"]),
        rows={row: _without_removed(row, changes) for row, changes in record["rows"].items()},
        runs=[Run(run["row"], run["seed"], run["config_hash"]) for run in record["runs"]],
        tune=record["tune"],
        match=record["match"],
        noise_floor=record["noise_floor"],
        reuse=record["reuse"],
        data=record.get("data", ()),
        published=record.get("published", False),
    )
    names: set[str] = set()
    for row, changes in description.rows.items():
        for name, overrides in variants(row, changes, description.base, description.tune).items():
            names.add(name)
            try:
                config_lib.replace(description.base, overrides)
            except errors.UserError as error:
                raise errors.UserError(f"row {name!r}: {error}") from error
    require_folder_names(names)
    keys: set[tuple[str, int]] = set()
    for run in description.runs:
        if run.row not in names:
            raise errors.UserError(f"runs: there is no row {run.row[:80]!r}")
        if type(run.seed) is not int or run.seed < 0:
            raise errors.UserError(f"runs: {run.seed!r} is no seed")
        if (run.row, run.seed) in keys:
            raise errors.UserError(f"runs: row {run.row!r} has seed {run.seed} twice")
        keys.add((run.row, run.seed))
        if not re.fullmatch("[0-9a-f]{64}", run.config_hash):
            raise errors.UserError(f"runs: {run.config_hash[:80]!r} is no config_hash")
    return description


def _without_removed(row: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return config_lib.without_removed(changes)
    except errors.UserError as error:
        raise errors.UserError(f"row {row!r}: {error}") from error


def slug(row: str) -> str:
    """Returns the name of a row's folder: the row's name, with "-" in place of spaces and "=".

    Raises:
      UserError: the row's name has characters that the name of a folder cannot have.
    """
    name = row.replace(" ", "-").replace("=", "-")
    if not _PLAIN.fullmatch(name) or len(name.encode(errors="replace")) > LONGEST_NAME:
        raise errors.UserError(
            f"a row cannot be called {row[:80]!r}: its folder has its name, so that it must "
            "begin with a letter, a digit or _, contain no slash, backslash or control character, "
            f"and take at most {LONGEST_NAME} bytes"
        )
    if found := _PATTERN.search(name):
        raise errors.UserError(
            f"a row cannot be called {row[:80]!r}: its folder has its name, in which {found[0]!r} "
            "would be read as a pattern; rename the row"
        )
    return name


def require_folder_names(rows: Collection[str]) -> None:
    """Raises UserError if a row cannot have a folder, or if two rows would have the same folder.

    Folders are compared as on file systems that ignore case and Unicode normalization.
    """
    owners: dict[str, str] = {}
    for row in rows:
        folder = unicodedata.normalize("NFC", slug(row)).casefold()
        if _SWEEP_FILES.fullmatch(folder):
            raise errors.UserError(
                f"a row cannot be called {row!r}: the sweep has a file {folder}; rename the row"
            )
        owner = owners.setdefault(folder, row)
        if owner != row:
            raise errors.UserError(
                f"rows {owner!r} and {row!r} would share the folder {slug(row)}: rename one"
            )


def folder_name(run: Run) -> str:
    """Returns the path of a new run's folder, ROW/seedK-HASH, relative to the sweep's folder."""
    return f"{slug(run.row)}/seed{run.seed}-{run.config_hash[:HASH_LENGTH]}"


def locate(folder: pathlib.Path, run: Run) -> pathlib.Path:
    """Returns the path of a run's folder inside a sweep's folder.

    If a run with the same config_hash has already started as a run of another row, this is the
    folder of that run.
    """
    own = folder / folder_name(run)
    if (own / "run.json").exists():
        return own
    others = folder.glob(f"*/seed*-{run.config_hash[:HASH_LENGTH]}/run.json")
    for record in sorted(others):
        if run_folder.read_record(record.parent)["config_hash"] == run.config_hash:
            return record.parent
    return own


def is_published(folder: pathlib.Path) -> bool:
    """Returns True for a published folder, which has `runs.csv` instead of folders of runs."""
    path = folder / "sweep.json"
    return path.exists() and files.read_json(path, {}, REMEDY).get("published", False) is True
