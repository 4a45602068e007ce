"""The folder of a sweep: `sweep.json` and the folders of runs.

A sweep's folder holds `sweep.json`, which lists its rows and runs, and a folder `ROW/seedK-HASH`
for each run, where HASH is the beginning of the run's `config_hash`. A run is identified by its
hash, whatever its row: rows with equal settings share one run, and a changed configuration gets
new folders beside the old ones.

`--reuse` names further folders to look for finished runs, which are only read: other sweeps, or
published folders, which hold `runs.csv` instead of run folders.
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
# A letter, digit or _; then any character that neither a path nor a terminal interprets.
_PLAIN = re.compile(r"\w[^/\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*")
_PATTERN = re.compile(r"[*?\[\]#{}]")  # characters of patterns in Orbax and in buckets
# Other files and folders of a sweep's folder.
_SWEEP_FILES = re.compile(r"cache|slurm|.*\.(csv|html|json|log|md|npz|sh|yaml)")


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a sweep."""

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
      match: the budget of --match; "" without --match.
      noise_floor: the number of runs of base whose variance is used for all rows; 0 without
        --noise_floor.
      reuse: the folders of --reuse.
      data: the provenance of the corpora, in published folders.
      published: whether the folder is a published one.
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
        """The row that the others are compared with."""
        return next(iter(self.rows))

    def variants(self, row: str) -> dict[Any, str]:
        """Returns the names of a row and its variants by their value of the tuned field."""
        field = next(iter(self.tune), None)
        if field is None:
            return {}
        named = variants(row, self.rows[row], self.base, self.tune)
        return {config_lib.get(self.config(name), field): name for name in named}

    def names(self, row: str) -> list[str]:
        """Returns the name of a row, followed by those of its variants in the tuned field."""
        return list(variants(row, self.rows[row], self.base, self.tune))

    def overrides(self, name: str) -> Mapping[str, Any]:
        """Returns the overrides of a row, or of one of its variants in the tuned field."""
        if name in self.rows:
            return self.rows[name]
        for row, changes in self.rows.items():
            overrides = variants(row, changes, self.base, self.tune)
            if name in overrides:
                return overrides[name]
        raise KeyError(name)

    def config(self, name: str) -> config_lib.Config:
        """Returns the configuration of a row or variant, with base's seed."""
        return config_lib.replace(self.base, self.overrides(name))


def variants(
    row: str, overrides: Mapping[str, Any], base: config_lib.Config, tune: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    """Returns the overrides of a row and of its variants with each value of the tuned field.

    The row has no further variant with its own value of the field.
    """
    return {row: overrides} | {
        f"{row} {field.split('.')[-1]}={value}": {**overrides, field: value}
        for field, values in tune.items()
        for value in values
        if value != overrides.get(field, config_lib.get(base, field))
    }


def write(folder: pathlib.Path, description: Description) -> None:
    """Writes `sweep.json`."""
    record = {
        **dataclasses.asdict(description),
        "base": config_lib.to_dict(description.base),
        "rows": {row: dict(overrides) for row, overrides in description.rows.items()},
    }
    files.write_json(folder / "sweep.json", record)


def read(folder: pathlib.Path) -> Description:
    """Reads `sweep.json`.

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
    """Returns the description that `sweep.json` holds; raises UserError if it is inconsistent."""
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
    """Returns the name of a row's folder: the row's name with - for spaces and equals signs.

    Raises:
      UserError: no folder can have the name.
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
    """Raises UserError unless rows can have distinct folders on any file system."""
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
    """Returns the folder of a run in a sweep's folder.

    If the run has started under another row with equal settings, this is the folder of that row.
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
    """Returns whether a folder is a published one, which has no run folders."""
    path = folder / "sweep.json"
    return path.exists() and files.read_json(path, {}, REMEDY).get("published", False) is True
