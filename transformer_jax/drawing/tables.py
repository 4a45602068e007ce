"""Tables as people read them, on the terminal and as Markdown, and as other programs do."""

import csv
import dataclasses
import io
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import rich.box
import rich.console
import rich.markup
import rich.table

WIDTH = 160  # where the output is no terminal
UNBROKEN = 16  # characters of a number or a word that a column has room for
PADDING = 3  # characters between columns


@dataclasses.dataclass(frozen=True)
class Printed:
    """A table as it is printed, under its title; a column of the paper is set apart.

    Its note, how cells are to be read, stands below it.
    """

    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> Iterator[rich.table.Table]:
        yield _for_terminal(self, options.max_width)


def markdown(tables: Sequence[Printed], notes: Sequence[str]) -> str:
    """Tables under their titles, then paragraphs of notes."""

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_escaped(cell).replace("|", "\\|") for cell in cells) + " |"

    parts: list[str] = []
    for table in tables:
        parts += [f"## {_escaped(table.title)}"] if table.title else []
        lines = [row(table.heads), row(["---"] * len(table.heads)), *map(row, table.lines)]
        parts.append("\n".join(lines))
        parts += [_escaped(table.note)] if table.note else []
    return "\n\n".join([*parts, *map(_escaped, notes)]) + "\n"


def csv_of(heads: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    """Comma-separated values."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *lines])
    return text.getvalue()


def signed(value: float, form: str = "+.2f") -> str:
    """A difference as it is printed: +1.23 or −1.23; what rounds to 0 has no minus."""
    return format(value, form.replace(".", "z.")).replace("-", "−")


def difference(value: float, half: float | None) -> str:
    """A difference with half of its interval, if that is known: +1.23 ± 0.45."""
    return signed(value) if half is None else f"{signed(value)} ± {half:.2f}"


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """The two as a table shows them: 1.23 ± 0.45; of one value no deviation, of none nothing."""
    text = f"{statistics.mean(values):.{digits}f}" if values else ""
    return text if len(values) < 2 else f"{text} ± {statistics.stdev(values):.{digits}f}"


def _escaped(text: str) -> str:
    """Text that stays on its line and is no HTML, which Markdown would let through.

    What is left can still be emphasis; a name such as d_model needs no more.
    """
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column for the terminal: of numbers if its cells are short and one begins as they do."""

    head: str
    cells: Sequence[str]

    @property
    def is_of_numbers(self) -> bool:
        is_short = max(map(len, self.cells), default=0) <= UNBROKEN
        return is_short and any(c[:1].isdigit() or c[:1] in "+-−" for c in self.cells if c)

    @property
    def longest(self) -> int:
        """Characters of the longest number, or word, and of what the head says after a colon."""
        cells = self.cells if self.is_of_numbers else " ".join(self.cells).split()
        return max(map(len, [*re.split("(?<=:) ", self.head), *cells]), default=0)


def _for_terminal(table: Printed, width: int) -> rich.table.Table:
    """Columns of numbers are flush right, and as narrow as can be if that fits into the width."""
    title = rich.markup.escape(table.title) or None
    note = rich.markup.escape(table.note) or None
    shown = rich.table.Table(
        box=rich.box.SIMPLE, pad_edge=False, title=title, title_style="",
        caption=note, caption_style="", caption_justify="left",
    )  # fmt: skip
    cells = zip(*table.lines, strict=True) if table.lines else [()] * len(table.heads)
    first, *others = map(_Column, table.heads, cells)
    names = max(map(len, first.cells), default=0)
    fits = names + sum(min(each.longest, UNBROKEN) + PADDING for each in others) <= width
    shown.add_column(rich.markup.escape(first.head), no_wrap=True)
    for column in others:
        shown.add_column(
            rich.markup.escape(column.head),
            justify="right" if column.is_of_numbers else "left",
            style="dim" if "paper" in column.head else "",
            min_width=min(column.longest, UNBROKEN) if fits else None,
            max_width=column.longest if column.is_of_numbers else None,
        )
    for line in table.lines:
        shown.add_row(*map(rich.markup.escape, line))
    return shown


def show(tables: Sequence[Printed], notes: Sequence[str]) -> None:
    """Prints tables and notes."""
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=WIDTH)
    for table in tables:
        console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False)
