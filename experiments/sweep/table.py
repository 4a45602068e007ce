"""A table as an object: what its command runs and what its report shows, all in one place."""

import dataclasses
import importlib
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

from experiments.sweep import results
from transformer_jax import config as config_lib
from transformer_jax import errors, paper
from transformer_jax.data import treebank
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu, measures


@dataclasses.dataclass(frozen=True)
class Section:
    """Further tables of a report, and notes that stand below all tables."""

    shown: Sequence[tables.Printed]
    notes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Document:
    """A sweep's results in tables and words."""

    shown: Sequence[tables.Printed]  # the tables on the terminal and in Markdown
    on_page: Sequence[tables.Printed]  # those of the page, the one of all rows first
    notes: Sequence[str]  # a paragraph each
    csv: str  # of the same numbers, unrounded
    latex: str  # of the first table
    # What sections raised that are missing; whoever shows the rest raises the first.
    failed: Sequence[Exception] = ()


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; NAME.py on the floor of experiments defines it as TABLE, and nothing else knows it.

    Functions of a comparison get an `analysis.comparison.Comparison`.
    """

    name: str  # of its module, of its files, and in sweep.json
    title: str  # of its page
    # From a base to the rows: what each changes, by name, the base's own first.
    rows: Callable[[config_lib.Config], Mapping[str, Mapping[str, Any]]]
    # A paper's numbers by row, the base's own among them, which add its columns and verdicts.
    reported: Mapping[str, paper.Reported] = dataclasses.field(default_factory=dict)
    reported_on: str = paper.TABLE3_ON  # the corpus that they are of
    least_seeds: Callable[[str], int] = lambda row: 1  # a row's runs, even where --seeds says fewer
    needed: Collection[str] = ()  # rows that its claims compare
    corpus: Callable[[str], str] = lambda row: ""  # where it differs, no row is compared
    # From a sweep, of which rows may have no results yet, to what stands below the table of them.
    sections: Sequence[Callable[[results.Sweep], Section]] = ()
    latex: Callable[[Any], str] | None = None  # of a comparison; None: the columns that are printed
    measure: str = bleu.MAIN  # what rows are compared by, of `measures.MEASURES`; see `of_corpus`
    # From a comparison to all that is shown; None: the rows beside base, and sections.
    document: Callable[[Any], Document] | None = None
    # What it shows of each result.json besides what every one has; see `files.require`.
    reads: Mapping[str, type] = dataclasses.field(default_factory=dict)

    @property
    def compared_by(self) -> measures.Measure:
        """What rows are compared by."""
        return measures.MEASURES[self.measure]


def of_corpus(name: str, base: config_lib.Config, table: Table | None = None) -> Table:
    """The table of a name, or that given, on a base's corpus: parsers are compared by F1."""
    table = table or find(name)
    if base.data.corpus not in treebank.CORPORA:
        return table
    reads = {**table.reads, "parses": dict}
    return dataclasses.replace(table, measure=measures.F1, reads=reads)


def require_sound(table: Table, rows: Mapping[str, Any]) -> None:
    """Raises UserError if a report would not find the table again, or not use its numbers."""
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
    rows: Mapping[str, Mapping[str, Any]],
    base: config_lib.Config,
    papers: Mapping[str, int] = paper.BASE_SIZES,
) -> dict[str, dict[str, Any]]:
    """Rows at the paper's sizes, for a base of any, in its ratio to the paper's.

    Raises:
      UserError: a scaled value is not a whole number of at least 1.
    """
    found = {row: dict(changes) for row, changes in rows.items()}
    for row, changes in found.items():
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
    return found


def names() -> list[str]:
    """The modules on experiments' floor that define a TABLE, as their text says; none is run."""
    return sorted(
        path.stem
        for folder in sys.modules["experiments"].__path__
        for path in pathlib.Path(folder).glob("*.py")
        if re.search(r"^TABLE = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def find(name: str) -> Table:
    """The table that a sweep.json names; a plain one where that is a user's own sweep.

    Nothing but a module of `names` is imported, whatever the file says.
    """
    if name in names():
        return importlib.import_module(f"experiments.{name}").TABLE
    return Table(name, name, rows=lambda base: {})
