"""Descriptions of tables such as Table 3: their rows, and the contents of their reports."""

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
    """The description of a table of experiments.

    The module experiments/NAME.py defines the table NAME as the global TABLE.

    Attributes:
      name: the name of the module, which is also the name of the report's files, as in table3.md.
      title: the title of report.html.
      rows: a function that takes a base configuration and returns the overrides of each row, base
        first.
      reported: the numbers of a paper, by row; empty for none. If there are any, base is among
        them, and reports have columns of the paper and verdicts.
      reported_on: the corpus on which the paper's numbers were measured.
      least_seeds: a function that returns the least number of runs of a row. If --seeds is lower,
        this number is used.
      needed: rows that claims compare, which a sweep must have.
      corpus: a function that returns the name of a row's corpus. If the names of two rows differ,
        no rows of the table are compared.
      measure: the score by which rows are compared, "bleu" or "f1"; see `of_corpus`.
      sections: functions that take a `results.comparison.Comparison` and return a
        `results.documents.Section`. The sections follow the table of rows in the report.
      document: a function that takes a `results.comparison.Comparison` and returns a
        `results.documents.Document`; None for a document with the table of rows and the sections.
      latex: a function that takes a `results.comparison.Comparison` and returns LaTeX; None for the
        first table of the document.
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
        """The name of the score at the top of columns, "BLEU" or "F1"."""
        return self.measure.upper()


def of_corpus(name: str, base: config_lib.Config, table: Table | None = None) -> Table:
    """Returns a table whose `measure` suits base's corpus: "f1" for a treebank.

    For other corpora, the table keeps its `measure`.

    Args:
      name: the name of the table.
      base: the configuration of base.
      table: the table; None to find it by name.
    """
    table = table or find(name)
    is_parsing = base.data.corpus in treebank.CORPORA
    return dataclasses.replace(table, measure="f1") if is_parsing else table


def require_sound(table: Table, rows: Rows) -> None:
    """Checks a table before its rows run.

    Raises:
      UserError: reports would not find the module of the table, or `reported` has a row that the
        table does not have.
    """
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
    """Scales the sizes in rows from the paper's base model to another base.

    For example, d_ff=1024, where the paper's base model has 2048, becomes 512 if base has 1024.

    Args:
      rows: the overrides of each row, with the paper's sizes.
      base: the configuration that the scaled rows change.
      papers: the fields to scale, with their values in the paper's base model.

    Returns:
      The rows, with each of these fields multiplied by base's value / the paper's value.

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
    """Raises UserError if a field has another value in base than the default."""
    for field in fields:
        value, default = config_lib.get(base, field), config_lib.get(config_lib.DEFAULTS, field)
        if value != default:
            raise errors.UserError(
                f"the rows vary {field}: in base it should be {default}, not {value}"
            )


def names() -> list[str]:
    """Returns the names of the modules in experiments/ that define TABLE. None is imported."""
    return sorted(
        path.stem
        for folder in sys.modules["experiments"].__path__
        for path in pathlib.Path(folder).glob("*.py")
        if re.search(r"^TABLE = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def find(name: str) -> Table:
    """Returns the table that experiments/NAME.py defines.

    If there is no such module, it returns a table without paper and sections, such as that of a
    file of --sweep.
    """
    # Only modules in `names()` are imported, since a sweep.json may contain any name.
    if name in names():
        return importlib.import_module(f"experiments.{name}").TABLE
    return Table(name, name, rows=lambda base: {})
