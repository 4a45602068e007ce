"""Tables as people read them, on the terminal and as Markdown, and as other programs do."""

import csv
import dataclasses
import io
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import rich.box
import rich.console
import rich.markup
import rich.table

WIDTH = 160  # where the output is no terminal


@dataclasses.dataclass(frozen=True)
class Printed:
    """A table as it is printed, under its title; a column of the paper is set apart.

    Its note, how cells are to be read, stands below it.
    """

    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""


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


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """The two as a table shows them: 1.23 ± 0.45; of one value no deviation, of none nothing."""
    text = f"{statistics.mean(values):.{digits}f}" if values else ""
    return text if len(values) < 2 else f"{text} ± {statistics.stdev(values):.{digits}f}"


def _escaped(text: str) -> str:
    """Text that stays on its line and is no HTML, which Markdown would let through.

    What is left can still be emphasis; a name such as d_model needs no more.
    """
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")


def rendered(table: Printed) -> rich.table.Table:
    """A table for the terminal; columns of numbers are flush right."""
    title = rich.markup.escape(table.title) or None
    note = rich.markup.escape(table.note) or None
    shown = rich.table.Table(
        box=rich.box.SIMPLE, pad_edge=False, title=title, title_style="",
        caption=note, caption_style="", caption_justify="left",
    )  # fmt: skip
    columns = zip(*table.lines, strict=True) if table.lines else [()] * len(table.heads)
    for place, (head, cells) in enumerate(zip(table.heads, columns, strict=True)):
        is_number = any(cell[:1].isdigit() or cell[:1] in "+-−" for cell in cells if cell)
        shown.add_column(
            rich.markup.escape(head),
            justify="right" if is_number and place else "left",
            style="dim" if "paper" in head else "",
            no_wrap=not place,
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
        console.print(rendered(table))
    for note in notes:
        console.print(note, highlight=False, markup=False)
