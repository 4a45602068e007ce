"""Tables of what was measured: a line for each record, a column for each thing in it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_jax.drawing import tables

RATIO = "{:.2f} ({:.2f}–{:.2f})"


@dataclasses.dataclass(frozen=True)
class Column:
    """One column, whose cell is empty where a record has nothing of its key."""

    head: str
    key: str  # of a text, a number or several
    form: str = "{}"  # how it is written
    scale: float = 1  # by which numbers are multiplied

    def cell(self, record: Mapping[str, Any]) -> str:
        """What a record has in this column."""
        value = record.get(self.key)
        if value is None or isinstance(value, str):
            return value or ""
        numbers = value if isinstance(value, Sequence) else [value]
        return self.form.format(*(number * self.scale for number in numbers))


def table(records: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> tables.Printed:
    """A line for each record."""
    lines = [[column.cell(record) for column in columns] for record in records]
    return tables.Printed([column.head for column in columns], lines)
