"""Descriptions of tables: their rows, and the columns and sections of their reports."""

import dataclasses
import importlib
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from transformer_jax import config as config_lib
from transformer_jax import errors, paper
from transformer_jax.data import treebank

Rows = Mapping[str, Mapping[str, Any]]  # the overrides of each row, base first


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    The module `experiments/NAME.py` defines it as TABLE, where reports look for it.

    Attributes:
      name: the name of the module and of the table's files, also in sweep.json.
      title: the title of the table's page.
      rows: returns the overrides of each row for a base configuration, base first.
      reported: a paper's numbers by row, base included; reports then have columns of the paper and
        verdicts.
      reported_on: the corpus on which the paper's numbers were measured.
      least_seeds: returns the least number of runs of a row, also if --seeds is lower.
      needed: rows that claims compare, which a sweep must have.
      corpus: returns the name of a row's corpus, if rows have different corpora; such rows are not
        compared.
      measure: the score that rows are compared by, "bleu" or "f1"; see `of_corpus`.
      sections: functions that return a `results.documents.Section` for a
        `stats.comparison.Comparison`. The sections follow the table of rows.
      document: returns the `results.documents.Document` of a `stats.comparison.Comparison`; None
        for a document of the table of rows and the sections.
      latex: returns the LaTeX of a `stats.comparison.Comparison`; None for the first table of the
        document.
    """

    name: str
    title: str
    rows: Callable[[config_lib.Config], Rows]
    reported: Mapping[str, paper.Reported] = dataclasses.field(default_factory=dict)
    reported_on: str = paper.TABLE3_ON
    least_seeds: Callable[[str], int] = lambda row: 1
    needed: Collection[str] = ()
    corpus: Callable[[str], str] = lambda row: ""
    measure: str = "bleu"
    # Any: comparisons and documents are defined in packages that import this one.
    sections: Sequence[Callable[[Any], Any]] = ()
    document: Callable[[Any], Any] | None = None
    latex: Callable[[Any], str] | None = None

    @property
    def score(self) -> str:
        """The name of the score in column heads."""
        return self.measure.upper()


def of_corpus(name: str, base: config_lib.Config, table: Table | None = None) -> Table:
    """Returns a table with the measure that suits base's corpus, which is F1 for treebanks.

    Args:
      name: the name of the table.
      base: the configuration of base.
      table: the table; None to find it by name.
    """
    table = table or find(name)
    is_parsing = base.data.corpus in treebank.CORPORA
    return dataclasses.replace(table, measure="f1") if is_parsing else table


def require_sound(table: Table, rows: Rows) -> None:
    """Raises UserError if reports could not find a table, or `reported` does not fit its rows."""
    command = sys.modules["__main__"]
    file = pathlib.Path(str(command.__file__)).name
    if getattr(command, "TABLE", None) is table:
        if file != f"{table.name}.py":
            raise errors.UserError(
                f"{file} names its table {table.name!r}: give it the file's name, under which "
                "reports look for it"
            )
        if table.name not in names():
            raise errors.UserError(
                f"reports would not find the table of {command.__file__}: put the file into "
                "experiments/, and let a line of it begin with TABLE ="
            )
    if missing := sorted(table.reported.keys() - rows.keys()):
        raise errors.UserError(f"reported: there is no row {missing[0]!r}")
    if table.reported and next(iter(rows)) not in table.reported:
        raise errors.UserError(f"reported lacks {next(iter(rows))!r}, the base of the others")


def scaled_rows(
    rows: Rows,
    base: config_lib.Config,
    papers: Mapping[str, int] = paper.BASE_SIZES,
) -> dict[str, dict[str, Any]]:
    """Scales rows with the paper's sizes to a base of another size.

    Args:
      rows: the overrides of each row, with the paper's sizes.
      base: the base of the scaled rows.
      papers: the fields to scale, with their values in the paper's base. A field is multiplied by
        the ratio of base's value to the paper's.

    Raises:
      UserError: a scaled value is not a whole number of at least 1.
    """
    scaled = {row: dict(changes) for row, changes in rows.items()}
    for row, changes in scaled.items():
        for field in [field for field in changes if field in papers]:
            own = config_lib.get(base, field)
            exact = Fraction(changes[field] * own, papers[field])
            if exact.denominator != 1 or exact < 1:
                raise errors.UserError(
                    f"row {row!r} cannot be scaled: {field} would be {float(exact):g}, since this "
                    f"base has {own} where the paper's has {papers[field]}; set --config.{field} "
                    f"to a multiple of {Fraction(changes[field], papers[field]).denominator}"
                )
            changes[field] = int(exact)
    return scaled


def require_defaults(base: config_lib.Config, fields: Iterable[str]) -> None:
    """Raises UserError unless the base has the default, the paper's value, in each field."""
    for field in fields:
        value, default = config_lib.get(base, field), config_lib.get(config_lib.DEFAULTS, field)
        if value != default:
            raise errors.UserError(
                f"the rows vary {field}: in base it should be {default}, not {value}"
            )


def names() -> list[str]:
    """Returns the names of the modules in experiments/ that define TABLE; imports none."""
    return sorted(
        path.stem
        for folder in sys.modules["experiments"].__path__
        for path in pathlib.Path(folder).glob("*.py")
        if re.search(r"^TABLE = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def find(name: str) -> Table:
    """Returns the table of a module in experiments/, or a plain table for any other name.

    Only modules in `names()` are imported, since a sweep.json may contain any name.
    """
    if name in names():
        return importlib.import_module(f"experiments.{name}").TABLE
    return Table(name, name, rows=lambda base: {})
