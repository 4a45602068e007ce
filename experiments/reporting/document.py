"""All that is written of a sweep: TABLE.md, TABLE.csv and report.html, and the terminal's table."""

import base64
import hashlib
import html
import json
import pathlib
import string
from typing import Any

from plotly import offline

from experiments.analysis import comparison
from experiments.reporting import comparison_table, content, translations
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import files
from transformer_jax.drawing import tables

_FOLDER = pathlib.Path(__file__).parent
# What stands before Plotly draws the table; the rest draws figures.
_BEFORE = ("elements", "table")
_AFTER = ("figures", "plots", "translations", "downloads")


def write(workdir: pathlib.Path, table: table_lib.Table | None = None) -> None:
    """Writes a sweep's report and prints its table.

    Args:
      workdir: the sweep's folder.
      table: what the sweep runs; None: the table of the name that its folder says.

    Raises:
      UserError: there is no sweep, its results were not measured alike, or a file is damaged.
      Exception: what a section of the table's own raised, once all else is written and printed.
    """
    sweep = results.read(workdir)
    compared = comparison.compare(sweep, table)
    found = (compared.table.document or comparison_table.document)(compared)
    downloads = {
        f"{sweep.table}.csv": found.csv,
        f"{sweep.table}.md": tables.markdown(found.shown, found.notes),
        f"{sweep.table}.tex": found.latex,
    }
    shown, measure = content.of_table(compared, found, downloads), compared.table.compared_by
    translated = translations.gather(sweep, compared.counts, measure)
    page = _page(shown, translated)
    for name in (f"{sweep.table}.md", f"{sweep.table}.csv"):
        files.write(workdir / name, downloads[name].encode())
    files.write(workdir / "report.html", page.encode())
    tables.show(found.shown, found.notes)
    if found.failed:
        raise found.failed[0]


def _page(shown: dict[str, Any], translated: dict[str, Any]) -> str:
    """One file that asks nothing of a network, from page.html and its parts."""
    shown["translated"] = bool(translated["rows"])  # which the page knows before it parses them
    before, after = (
        '"use strict";\n' + "\n".join(_text(f"{name}.js") for name in names)
        for names in (_BEFORE, _AFTER)
    )
    scripts = {"before": before, "plotly": offline.get_plotlyjs(), "after": after}
    # Only these three scripts run, whatever text the results hold.
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts.values()]
    return string.Template(_text("page.html")).substitute(
        allowed=" ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests),
        title=html.escape(shown["title"]),
        style=_text("page.css"),
        content=_script_json(shown),
        translations=_script_json(translated),
        **scripts,
    )


def _script_json(value: Any) -> str:
    """Returns JSON that cannot end the script element around it: "<" is written as an escape."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c")


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
