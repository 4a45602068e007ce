"""Tables of results, and functions that format them as Markdown, HTML, LaTeX, CSV or text.

A table is a data frame with a description of the columns to show. Its numbers are rounded when the
table is formatted. CSV has unrounded numbers.
"""

import dataclasses
import html as html_lib
from collections.abc import Iterator, Sequence

import pandas as pd
import rich.box
import rich.console
import rich.table

UNLIMITED = 10_000  # characters of a line that no terminal shows
TEXT = 60  # characters of a text before it is wrapped there, if no terminal shows it
PADDING = 2  # characters between columns
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "_": r"\_", "%": r"\%", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "→": r"$\to$", "≥": r"$\geq$", "·": r"$\cdot$",
    "⁶": "$^6$", "[": "{[}", "]": "{]}", "`": r"\textasciigrave{}",
})  # fmt: skip

LONGEST_LATEX = 20  # characters of a cell in LaTeX that is not wrapped


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
      head: the text at the top of the column.
      name: the name of the column in the data frame; "" if it is the same as `head`.
      form: the format of numbers, such as ".2f" or "+.1f"; "" for a column of text.
      deviation: the name of a column in the data frame whose number is added to the cell after ±.
      group: the text above neighbouring columns that belong together, such as "paper".
      main: True if a terminal that is too narrow for all columns shows the column too.
      short: the name of a column in the data frame with shorter texts, for such a terminal.
      spare: the place in which a main column is left out where not all main columns fit: 1 is
        left out first, and 0 never.
    """

    head: str
    name: str = ""
    form: str = ""
    deviation: str = ""
    group: str = ""
    main: bool = False
    short: str = ""
    spare: int = 0

    @property
    def source(self) -> str:
        """The name of the column in the data frame."""
        return self.name or self.head

    @property
    def full_head(self) -> str:
        """The column's head, prefixed with the group's head if there is one: "paper: BLEU"."""
        return f"{self.group}: {self.head}" if self.group else self.head

    def cell(self, line: pd.Series) -> str:
        """Returns the text of the column's cell in a line of the frame; "" for a missing value."""
        value = line[self.source]
        if pd.isna(value):
            return ""
        if not self.form:
            return " ".join(str(value).split())
        if not self.deviation or pd.isna(line[self.deviation]):
            return number(value, self.form)
        deviation = number(line[self.deviation], self.form.removeprefix("+"))
        return f"{number(value, self.form)} ± {deviation}"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table: a data frame, and a description of the columns to show.

    Attributes:
      frame: the data frame, with a line for each line of the table.
      columns: the columns to show. The first column has the names of the lines.
      title: the title; "" for none.
      note: a note below the table; "" for none.
      part: the part of the page with the table, if it has its own, such as "claims".
    """

    frame: pd.DataFrame
    columns: Sequence[Column]
    title: str = ""
    note: str = ""
    part: str = ""

    def cells(self, columns: Sequence[Column] | None = None) -> list[list[str]]:
        """Returns the texts of the cells, as a list for each line.

        Args:
          columns: the columns; None for all columns.
        """
        columns = self.columns if columns is None else columns
        return [[column.cell(line) for column in columns] for _, line in self.frame.iterrows()]


def number(value: float, form: str) -> str:
    """Formats a number with the minus sign − instead of a hyphen. 0 has no sign after rounding."""
    if form.endswith("d"):
        value = int(value)
    elif form[-1] in "efg%":
        sign = "+" if form.startswith("+") else ""
        form = f"{sign}z{form.removeprefix('+')}"
        value = float(value)
    return format(value, form).replace("-", "−")


def csv(frame: pd.DataFrame) -> str:
    """Returns a data frame as comma-separated values, with unrounded numbers."""
    return frame.to_csv(index=False, lineterminator="\n")


def markdown(tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """Returns tables with their titles, followed by notes, as Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_markdown_text(cell).replace("|", "\\|") for cell in cells) + " |"

    parts: list[str] = []
    for table in tables:
        if table.title:
            parts.append(f"## {_markdown_text(table.title)}")
        heads = line([column.full_head for column in table.columns])
        rule = " | ".join("---:" if column.form else "---" for column in table.columns)
        parts.append("\n".join([heads, f"| {rule} |", *map(line, table.cells())]))
        if table.note:
            parts.append(_markdown_text(table.note))
    return "\n\n".join([*parts, *map(_markdown_text, notes)]) + "\n"


def _markdown_text(text: str) -> str:
    """Escapes the HTML in a text, which Markdown would interpret, and joins its lines."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")


def html(table: Table) -> str:
    """Returns a table as HTML, in a region that scrolls sideways on narrow screens."""
    escape, columns = html_lib.escape, table.columns
    rows = []
    if any(column.group for column in columns):
        spans = "".join(
            f'<th colspan="{width}" scope="colgroup">{escape(group)}</th>'
            if group
            else f'<td colspan="{width}"></td>'
            for group, width in _groups(columns)
        )
        rows.append(f"<tr>{spans}</tr>")
    kinds = [' class="number"' if column.form else "" for column in columns]
    heads = "".join(
        f'<th scope="col"{kind}>{escape(column.head)}</th>'
        for column, kind in zip(columns, kinds, strict=True)
    )
    rows.append(f"<tr>{heads}</tr>")
    lines = []
    for first, *others in table.cells():
        cells = "".join(
            f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(others, kinds[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    label = escape(table.title or "Rows of the table")
    body = "\n".join(lines)
    content = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}"><table>\n'
        f"<thead>{''.join(rows)}</thead>\n<tbody>{body}</tbody>\n</table></div>\n"
    )
    return content + (f"<p>{escape(table.note)}</p>\n" if table.note else "")


def _groups(columns: Sequence[Column]) -> Iterator[tuple[str, int]]:
    """Yields the `group` of neighbouring columns with the same group, and their number."""
    start = 0
    for end in range(1, len(columns) + 1):
        if end == len(columns) or columns[end].group != columns[start].group:
            yield columns[start].group, end - start
            start = end


def latex(table: Table) -> str:
    """Returns a table in LaTeX, which needs the package booktabs.

    It has the main columns if there are any, otherwise all. Long texts are wrapped.
    """
    columns = [column for column in table.columns if column.main] or table.columns
    heads = [latex_text(column.full_head) for column in columns]
    lines = [list(map(latex_text, line)) for line in table.cells(columns)]
    alignment = ""
    for place, column in enumerate(columns):
        is_long = max((len(line[place]) for line in lines), default=0) > LONGEST_LATEX
        alignment += "r" if column.form else "p{35mm}" if is_long else "l"
    return tabular(alignment, heads, lines)


def latex_text(text: str) -> str:
    """Escapes a text for LaTeX, and joins its lines."""
    return " ".join(text.split()).translate(_LATEX)


def tabular(columns: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Returns a LaTeX tabular.

    Args:
      columns: the alignment of the columns, such as "lrr".
      heads: the cells of the first line.
      lines: the cells of each further line; an empty list becomes a horizontal rule.
    """
    written = [" & ".join(line) + r" \\" if line else r"\midrule" for line in [heads, [], *lines]]
    parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *written, r"\bottomrule"]
    return "\n".join([*parts, r"\end{tabular}"]) + "\n"


def show(
    tables: Sequence[Table],
    notes: Sequence[str] = (),
    console: rich.console.Console | None = None,
) -> None:
    """Prints tables and notes.

    A terminal that is too narrow for a table shows its short texts, then only the main columns,
    and then leaves out the spare ones, one by one.
    """
    console = console or rich.console.Console()
    width = console.width if console.is_terminal else UNLIMITED
    for table in tables:
        columns = fitting(table, width) if console.is_terminal else table.columns
        if len(columns) < len(table.columns):
            table = dataclasses.replace(table, note="")  # it may explain columns left out
        _print(table, columns, console, width)
    for note in notes:
        console.print(note, highlight=False, markup=False, soft_wrap=not console.is_terminal)


def fitting(table: Table, width: int) -> Sequence[Column]:
    """Returns the columns of a table to show on lines of a number of characters."""
    short = [
        dataclasses.replace(each, name=each.short) if each.short else each for each in table.columns
    ]
    main = [each for each in short if each.main]
    if not main:
        return table.columns
    choices = [table.columns, short, main]
    for last in sorted({each.spare for each in main} - {0}):
        choices.append([each for each in main if not 0 < each.spare <= last])
    for columns in choices:
        if _total(_widths(columns, table.cells(columns))) <= width:
            return columns
    return choices[-1]


def _widths(columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> list[int]:
    """Returns the least widths with which no cell is wrapped, and no head into three lines."""
    heads = [_in_two_lines(column.full_head) for column in columns]
    return [max([head, *map(len, cells)]) for head, *cells in zip(heads, *lines, strict=True)]


def _in_two_lines(text: str) -> int:
    """Returns the least width with which a text has at most two lines."""
    words = text.split()
    halves = [(" ".join(words[:end]), " ".join(words[end:])) for end in range(len(words))]
    return min((max(map(len, half)) for half in halves), default=0)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + PADDING * (len(widths) - 1)


def _print(
    table: Table, columns: Sequence[Column], console: rich.console.Console, width: int
) -> None:
    # A terminal shows bold heads; elsewhere a rule follows them.
    box, gap = (None, PADDING) if console.is_terminal else (rich.box.SIMPLE, PADDING - 1)
    grid = rich.table.Table(box=box, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))
    lines = table.cells(columns)
    widths = _shown_widths(columns, lines, width if console.is_terminal else None)
    for column, own in zip(columns, widths, strict=True):
        grid.add_column(
            column.full_head,
            justify="right" if column.form else "left",
            overflow="fold",
            width=own,
            style="dim" if column.group == "paper" else "",
        )
    for line in lines:
        grid.add_row(*line)
    previous = console.width
    console.width = max(width, _total(widths))  # a terminal wraps longer lines; none is cut
    try:
        for part in (table.title, grid, table.note):
            if part:
                console.print(part, crop=False, highlight=False, markup=False)
    finally:
        console.width = previous


def _shown_widths(
    columns: Sequence[Column], lines: Sequence[Sequence[str]], width: int | None
) -> list[int]:
    """Returns the widths of columns on a terminal of a width, or in a file if it is None.

    Texts are wrapped on a terminal that is too narrow, and in a file after `TEXT` characters.
    Numbers and the names of the lines are not wrapped.
    """
    widths = _widths(columns, lines)
    for place, column in enumerate(columns):
        if place == 0 or column.form:
            continue
        words = " ".join([column.full_head, *(line[place] for line in lines)]).split()
        longest = max(map(len, words), default=0)
        if width is None:
            widths[place] = min(widths[place], max(TEXT, longest))
        else:
            excess = max(_total(widths) - width, 0)
            widths[place] = max(widths[place] - excess, longest)
    if width is None:
        heads = [len(column.full_head) for column in columns]
        widths = [max(pair) for pair in zip(widths, heads, strict=True)]
    return widths
