"""All that is written of a sweep: TABLE.md, TABLE.csv and report.html, and the terminal's table."""

import pathlib
from collections.abc import Collection

from experiments.analysis import comparison
from experiments.reporting import attention_view, comparison_table, content, page, translations
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import files
from transformer_jax.drawing import tables
from transformer_jax.evaluation import attention_weights


def write(
    workdir: pathlib.Path, sentences: Collection[int] = (), table: table_lib.Table | None = None
) -> None:
    """Writes a sweep's report and prints its table.

    Args:
      workdir: the sweep's folder.
      sentences: numbers of development sentences whose attention is collected, from 1.
      table: what the sweep runs; None: the table of the name that its folder says.

    Raises:
      UserError: there is no sweep, its results were not measured alike, or a file is damaged.
    """
    sweep = results.read(workdir)
    compared = comparison.compare(sweep, table)
    found = (compared.table.document or comparison_table.document)(compared)
    downloads = {
        f"{sweep.table}.csv": found.csv,
        f"{sweep.table}.md": tables.markdown(found.shown, found.notes),
        f"{sweep.table}.tex": found.latex,
    }
    why = attention_view.collect(sweep, sentences)
    written = page.html_of(
        content.of_table(compared, found, downloads),
        translations.gather(sweep, compared.counts),
        {
            "captions": attention_weights.CAPTIONS,
            "sentences": attention_view.gather(sweep, why),
        },
    )
    for name in (f"{sweep.table}.md", f"{sweep.table}.csv"):
        files.write(workdir / name, downloads[name].encode())
    files.write(workdir / "report.html", written.encode())
    tables.show(found.shown, found.notes)
