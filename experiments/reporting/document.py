"""All that is written of a sweep: TABLE.md, TABLE.csv and report.html, and the terminal's table."""

import pathlib
from collections.abc import Collection

from experiments.analysis import comparison
from experiments.reporting import (
    attention_view,
    content,
    export,
    latex,
    page,
    table,
    table2_page,
    translations,
)
from experiments.sweep import results
from transformer_jax import files
from transformer_jax.drawing import tables


def write(workdir: pathlib.Path, sentences: Collection[int] = ()) -> None:
    """Writes a sweep's report and prints its table.

    Args:
      workdir: the sweep's folder.
      sentences: numbers of development sentences whose attention is collected, from 1.

    Raises:
      UserError: there is no sweep, its results were not measured alike, or a file is damaged.
    """
    sweep = results.read(workdir)
    compared = None
    if sweep.table == "table2":  # the only one whose rows have several corpora
        for pair in table2_page.PAIRS.values():
            comparison.require_alike([row for row in sweep.rows if row.name.endswith(pair)])
        shown, notes = table2_page.all_of(sweep), table2_page.notes(sweep)
        on_page, as_csv = shown, table2_page.to_csv(sweep)
        as_latex = latex.plain(shown[0])
        counts = translations.read_counts(sweep)
    else:
        compared = comparison.compare(sweep)
        shown, notes = table.all_of(compared), table.notes(compared)
        on_page = [table.main(compared, sweep.rows), *table.besides(compared)]
        as_csv = export.to_csv(compared)
        is_table3 = sweep.table == "table3"
        as_latex = latex.table3(compared) if is_table3 else latex.plain(on_page[0])
        counts = compared.counts
    downloads = {
        f"{sweep.table}.csv": as_csv,
        f"{sweep.table}.md": tables.markdown(shown, notes),
        f"{sweep.table}.tex": as_latex,
    }
    why = attention_view.collect(sweep, sentences)
    written = page.html_of(
        content.of_table(sweep, compared, on_page, notes, downloads),
        translations.gather(sweep, counts),
        {"captions": attention_view.captions(), "sentences": attention_view.gather(sweep, why)},
    )
    for name in (f"{sweep.table}.md", f"{sweep.table}.csv"):
        files.write(workdir / name, downloads[name].encode())
    files.write(workdir / "report.html", written.encode())
    tables.show(shown, notes)
