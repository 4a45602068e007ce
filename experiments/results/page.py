"""The page report.html of a sweep: one file with tables and figures, which needs no network."""

import base64
import hashlib
import html
import json
import pathlib
import string
from collections.abc import Mapping

import plotly.graph_objects as go
from plotly import offline

from experiments.results import (
    answers,
    comparison,
    convergence,
    documents,
    examples,
    frames,
    labels,
    plots,
    tables,
)

_FOLDER = pathlib.Path(__file__).parent
_CURVES = """<div class="controls">
<button type="button" id="half" aria-pressed="true">last half, enlarged</button>
<button type="button" id="difference" aria-pressed="false">difference from base</button></div>
<div class="plot" id="curves-plot"></div>
<script type="application/json">{data}</script>
<fieldset><legend>Rows</legend>{boxes}</fieldset>
<p class="note">Means over seeds; the band reaches from the lowest to the highest seed.</p>"""


def render(compared: comparison.Comparison, document: documents.Document) -> str:
    """Returns the page of a comparison as HTML."""
    parts = _parts(compared, document)
    links = " · ".join(f'<a href="#{name}">{title}</a>' for name, (title, _) in parts.items())
    content = [
        f'<section id="{name}"><h2>{title}</h2>\n{text}</section>'
        if name not in _FOLDED
        else f'<details id="{name}"><summary>{title}</summary>\n{text}</details>'
        for name, (title, text) in parts.items()
    ]
    scripts = {"plotly": offline.get_plotlyjs(), "draw": _text("page.js")}
    return string.Template(_text("page.html")).substitute(
        title=html.escape(compared.table.title),
        about=html.escape(documents.about(compared)),
        answer="\n".join(f"<li>{html.escape(each)}</li>" for each in answers.summary(compared)),
        links=links,
        style=_text("page.css"),
        content="\n".join(content),
        scripts=" ".join(map(_digest, scripts.values())),
        **scripts,
    )


_FOLDED = ("further", "notes", "runs", "downloads")


def _parts(
    compared: comparison.Comparison, document: documents.Document
) -> dict[str, tuple[str, str]]:
    """Returns the title and the HTML of each part of the page, by its anchor."""
    claims = [table for table in document.tables if table.part == "claims"]
    others = [table for table in document.tables if not table.part]
    # All tables of Tables 2 and 4, which have their own documents, are shown unfolded.
    opened = len(others) if compared.table.document else 1
    further = [_table(table) for table in others[opened:]]
    notes = "\n".join(f"<p>{html.escape(note)}</p>" for note in document.notes)
    runs = tables.html(_runs(compared)) if len(compared.sweep.runs) else ""
    parts = {
        "effects": ("Differences from base", _effects(compared)),
        "claims": ("Claims, on the development set", "".join(map(tables.html, claims))),
        "rows": ("Rows", "".join(map(_table, others[:opened]))),
        "sizes": ("Scores against sizes", _sizes(compared)),
        "curves": ("Learning curves", _curves(compared)),
        "sentences": ("Ten sentences", _sentences(compared)),
        "further": ("Development set and further tables", "".join(further)),
        "notes": ("Notes", notes),
        "runs": ("Runs", runs),
        "downloads": ("Downloads", _downloads(compared.table.name, document)),
    }
    return {name: part for name, part in parts.items() if part[1]}


def _table(table: tables.Table) -> str:
    heading = f"<h3>{html.escape(table.title)}</h3>\n" if table.title else ""
    return heading + tables.html(table)


def _effects(compared: comparison.Comparison) -> str:
    """Returns the first figure: a panel for each measure, with the same rows."""
    found = [plots.differences_figure(compared, measure) for measure in compared.answers.measured]
    figures = [figure.update_layout(showlegend=False) for figure in found if figure]
    if not figures:
        return ""
    keys = [
        '<span class="ours">●</span> ours with its 95% interval, filled if significant after '
        "correction for all rows",
        '<span class="seed">●</span> a seed',
    ]
    if compared.table.reported:
        keys.append('<span class="paper">◇</span> the paper')
    if any([*figure.select_traces({"name": plots.CLIPPED})] for figure in figures):
        keys.append(f'<span class="ours">◀ ▶</span> {plots.CLIPPED}')
    panels = "\n".join(map(_plot, figures))
    return (
        f'<figure><div class="panels">\n{panels}</div>'
        f'<figcaption class="keys">{"".join(f"<span>{key}</span>" for key in keys)}</figcaption>'
        "</figure>"
    )


def _sizes(compared: comparison.Comparison) -> str:
    figures = plots.dose_figures(compared)
    if not figures:
        return ""
    panels = "\n".join(_plot(each.update_layout(showlegend=False)) for each in figures.values())
    keys = ['<span class="ours">●</span> ours with its 95% interval']
    if compared.table.reported:
        keys.append('<span class="paper">◇</span> the paper, at our sizes')
    return (
        f'<figure><div class="multiples">\n{panels}</div><figcaption class="keys">'
        f"<span>{html.escape(compared.table.score)} − base</span>"
        f"{''.join(f'<span>{key}</span>' for key in keys)}</figcaption></figure>"
    )


def _curves(compared: comparison.Comparison) -> str:
    data = plots.curves(compared)
    if data is None:
        return ""
    boxes = "".join(
        f'<label><input type="checkbox" value="{number}"{" checked" if row["shown"] else ""}> '
        f"{html.escape(row['label'])}</label>"
        for number, row in enumerate(data["rows"])
    )
    return _CURVES.format(data=_json(data), boxes=boxes)


def _sentences(compared: comparison.Comparison) -> str:
    """Returns example sentences with the outputs of base and of a row that can be chosen."""
    found = examples.collect(compared.sweep)
    base = compared.sweep.description.base_row
    rows = [row for row in found.outputs if row != base]
    if not rows or base not in found.outputs or not any(each.source for each in found.sentences):
        return ""
    effects = compared.answer_rows["difference"].abs().reindex(rows)
    first = effects.idxmax() if effects.notna().any() else rows[0]
    data = compared.sweep.description.base.data
    names = {row: labels.full_name(compared.sweep.description, row, False) for row in rows}
    options = "".join(
        f'<option value="{html.escape(row)}"{" selected" if row == first else ""}>'
        f"{html.escape(name)}</option>"
        for row, name in names.items()
    )
    items = []
    for number, sentence in enumerate(found.sentences):
        lines = {
            "source": sentence.source,
            "reference": sentence.reference,
            base: found.outputs[base][number],
        }
        cells = "".join(
            f"<dt>{html.escape(name)}</dt><dd{_language(data, name)}>{html.escape(text)}</dd>"
            for name, text in lines.items()
        )
        output = html.escape(found.outputs[first][number])
        chosen = f'<dt class="chosen">{html.escape(first)}</dt>'
        items.append(f"<li><dl>{cells}{chosen}<dd{_language(data)}>{output}</dd></dl></li>")
    outputs = _json({row: list(found.outputs[row]) for row in rows})
    return (
        f'<p><label>Row <select id="row">{options}</select></label></p>\n'
        f'<script type="application/json" id="outputs">{outputs}</script>\n'
        f'<ol class="sentences">{"".join(items)}</ol>'
    )


def _language(data: object, name: str = "") -> str:
    """Returns the attribute for the language of a sentence; "" if it is no ISO 639-1 code."""
    code = getattr(data, "source_language" if name == "source" else "target_language")
    return f' lang="{code}"' if len(code) == 2 else ""


def _plot(figure: go.Figure) -> str:
    data = (figure.to_json() or "").replace("<", "\\u003c")
    return (
        f'<div class="panel"><div class="plot" style="height:{figure.layout.height}px"></div>'
        f'<script type="application/json">{data}</script></div>'
    )


def _json(data: Mapping[str, object]) -> str:
    # In JSON, "<" is an escape, so that no text ends the script element.
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")


def _downloads(name: str, document: documents.Document) -> str:
    contents = {
        "csv": tables.csv(document.data),
        "md": tables.markdown(document.tables, document.notes),
        "tex": document.latex,
    }
    prefix = "data:text/plain;charset=utf-8;base64,"
    links = []
    for end, content in contents.items():
        encoded = base64.b64encode(content.encode()).decode()
        links.append(f'<a download="{name}.{end}" href="{prefix}{encoded}">{end.upper()}</a>')
    return f'<p class="downloads">Download the table: {" ".join(links)}</p>'


def _runs(compared: comparison.Comparison) -> tables.Table:
    """Returns a table of the runs: scores, convergence and provenance."""
    runs, measure = compared.sweep.runs, compared.table.measure
    prefix = frames.SPLITS[compared.answer_set]
    changes = runs["config_hash"].map(convergence.of_runs(compared.sweep)).astype(float)
    names = ["config_hash", "git_commit", "data_sha256", "tokenizer_sha256"]
    short = {name: runs[name].str[:12] for name in names if name in runs}
    frame = runs.assign(
        **short,
        last_quarter=changes,
        trained=[
            "no" if run.seed in compared.failed.get(run.row, []) else "yes"
            for run in runs.itertuples()
        ],
        hours=runs["wall_seconds"] / 3600,
    )
    columns = [
        tables.Column("row"),
        tables.Column("seed", form="d"),
        tables.Column(compared.table.score, prefix + measure, ".2f"),
        tables.Column("PPL", f"{prefix}ppl", ".3f"),
        tables.Column("trained"),
        tables.Column("last quarter", "last_quarter", "+.1%"),
        tables.Column("config", "config_hash"),
        tables.Column("commit", "git_commit"),
        tables.Column("corpus", "data_sha256"),
        tables.Column("tokenizer", "tokenizer_sha256"),
        tables.Column("devices", form="d"),
        tables.Column("of kind", "device_kind"),
        tables.Column("JAX", "jax_version"),
        tables.Column("hours", form=".2f"),
        tables.Column("tokens/s", "tokens_per_second", ",.0f"),
    ]
    columns = [column for column in columns if column.source in frame]
    return tables.Table(frame, columns, "Runs")


def _digest(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
