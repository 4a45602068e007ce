"""Writes the report of a sweep: TABLE.md, TABLE.csv, runs.csv and report.html.

TABLE is the name of the table, such as table3. runs.csv has the numbers of each run. The first
table is also printed on the terminal.
"""

import contextlib
import pathlib
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence

import pandas as pd
import rich.console

from experiments.results import (
    answers,
    comparison,
    documents,
    frames,
    labels,
    page,
    sensitivity,
    tables,
)
from experiments.sweep import store
from experiments.sweep import table as table_lib
from transformer_jax import files

PATIENCE = 2.0  # seconds after which work is announced


def build(compared: comparison.Comparison) -> documents.Document:
    """Returns the report of a comparison, for any output format."""
    if compared.table.document:
        return compared.table.document(compared)
    main = documents.rows_table(compared)
    sections = [documents.development_set(compared), sensitivity.section(compared)]
    sections += [section(compared) for section in compared.table.sections]
    further = [table for section in sections for table in section.tables]
    notes = [note for section in sections for note in section.notes]
    latex = compared.table.latex
    return documents.Document(
        tables=[table for table in [main, *further] if len(table.frame)],
        notes=[*documents.notes(compared), *notes, *documents.shortfalls(compared.sweep)],
        data=documents.data(compared),
        latex=latex(compared) if latex else tables.latex(main),
    )


def write(folder: pathlib.Path, table: table_lib.Table | None = None) -> None:
    """Writes the report of a sweep, and prints its first table.

    Beside the rows, a terminal shows only a few lines. Elsewhere a summary follows the table.

    Args:
      folder: the sweep's folder, or a published folder, to which report.html is not written.
      table: the table that the sweep runs; None for the one that sweep.json names.

    Raises:
      UserError: the folder has no sweep, a file is damaged, or the results are not comparable; see
        `comparison.compare`.
    """
    with _announced(f"Reading {folder} …"):
        compared = comparison.compare(frames.load(folder), table)
        document = build(compared)
    name = compared.table.name
    contents = {
        f"{name}.md": tables.markdown(document.tables, document.notes),
        f"{name}.csv": tables.csv(document.data),
    }
    if not store.is_published(folder):
        contents["runs.csv"] = tables.csv(compared.sweep.runs)
        with _announced("Writing report.html …"):
            contents["report.html"] = page.render(compared, document)
    for file, content in contents.items():
        files.write(folder / file, content.encode())
    console = rich.console.Console()
    notes = [answers.counts(compared)] if console.is_terminal else answers.summary(compared)
    if document.tables and console.is_terminal:
        columns = tables.fitting(document.tables[0], console.width)
        notes[:0] = _legend([column.source for column in columns], document.tables[0])
    notes += documents.shortfalls(compared.sweep)
    tables.show(document.tables[:1], notes, console)
    console.print(
        f"Wrote {folder / list(contents)[-1]}", highlight=False, markup=False, soft_wrap=True
    )


def _legend(names: Sequence[str], table: tables.Table) -> list[str]:
    """Returns the legend of the short verdicts in columns of a table; [] if there are none."""
    found = [table.frame[name].dropna() for name in names if name.endswith("short_verdict")]
    texts = {cell for cells in found for cell in cells}
    shown = {word for text in texts for word in (text.removesuffix("†"), text[-1])}
    parts = [f"{word}: {text}" for word, text in documents.SHORT_LEGEND.items() if word in shown]
    return ["; ".join(parts)] if parts else []


@contextlib.contextmanager
def _announced(text: str) -> Iterator[None]:
    """Prints a text on standard error if the work of the context takes more than `PATIENCE`."""
    timer = threading.Timer(PATIENCE, lambda: print(text, file=sys.stderr, flush=True))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def print_so_far(
    sweep: frames.Sweep, table: table_lib.Table, console: rich.console.Console | None = None
) -> None:
    """Prints the mean scores of the rows that have finished runs, while other runs continue.

    Args:
      sweep: the results so far.
      table: the table that the sweep runs.
      console: the console to print on; None for standard output.
    """
    table = table_lib.of_corpus(table.name, sweep.description.base, table)
    means = {}
    for row in sweep.description.rows:
        scores = sweep.values(row, table.measure)
        if scores:
            means[row] = statistics.mean(scores)
    if not means:
        return
    lines = []
    for row, score in means.items():
        other = comparison.reference(sweep.description, row)
        lines.append({
            "row": row,
            "change": labels.meaning(sweep.description, row, with_paper=False),
            "ppl": statistics.mean(sweep.values(row, "ppl")),
            "score": score,
            "difference": score - means[other] if other != row and other in means else None,
        })  # fmt: skip
    columns = [
        tables.Column("row", main=True),
        tables.Column("change", main=True, spare=1),
        tables.Column("PPL", "ppl", ".3f", main=True),
        tables.Column(table.score, "score", ".2f", main=True),
        tables.Column(f"− {sweep.description.base_row}", "difference", "+.2f", main=True),
    ]
    tables.show([tables.Table(pd.DataFrame(lines), columns)], console=console)
