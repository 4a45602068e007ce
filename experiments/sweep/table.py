"""Tables: the rows that a command runs, with everything its report needs to know of them."""

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

    A module `experiments/NAME.py` defines it as TABLE; no other file knows its name.

    Attributes:
      name: of the module, of the table's files, and in sweep.json.
      title: of its page.
      rows: from a base configuration to the overrides of each row, base first.
      reported: a paper's numbers by row, base included; they add its columns and verdicts.
      reported_on: the corpus that they were measured on.
      least_seeds: the least number of runs of a row, whatever --seeds says.
      needed: rows that claims compare, which a sweep must have.
      corpus: the corpus of a row, where rows have different ones and are not compared.
      measure: the score that rows are compared by, "bleu" or "f1"; see `of_corpus`.
      sections: from a `stats.comparison.Comparison` to a `results.documents.Section`, which follows
        the table of rows.
      document: from a `stats.comparison.Comparison` to a `results.documents.Document`; None for the
        table of rows and the sections.
      latex: from a `stats.comparison.Comparison` to LaTeX; None for the first table of the
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
        """The name of the score as column heads show it."""
        return self.measure.upper()


def of_corpus(name: str, base: config_lib.Config, table: Table | None = None) -> Table:
    """Returns a table on a base's corpus: rows that parse are compared by F1.

    Args:
      name: the name of the table.
      base: the configuration of base.
      table: the table; None to find the one of the name.
    """
    table = table or find(name)
    is_parsing = base.data.corpus in treebank.CORPORA
    return dataclasses.replace(table, measure="f1") if is_parsing else table


def require_sound(table: Table, rows: Rows) -> None:
    """Requires that reports can find a table, and that its numbers belong to its rows.

    Raises:
      UserError: they do not.
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
    """Scales rows with the paper's sizes to a base of any size, by its ratio to the paper's base.

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
    """Returns the modules in experiments/ that define a TABLE, without importing them."""
    return sorted(
        path.stem
        for folder in sys.modules["experiments"].__path__
        for path in pathlib.Path(folder).glob("*.py")
        if re.search(r"^TABLE = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def find(name: str) -> Table:
    """Returns the table that a sweep.json names, or a plain one for a user's own sweep.

    Only modules in `names` are imported, whatever the file contains.
    """
    if name in names():
        return importlib.import_module(f"experiments.{name}").TABLE
    return Table(name, name, rows=lambda base: {})
