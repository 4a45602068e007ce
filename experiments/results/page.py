"""The page report.html of a sweep: one file with tables and figures, which needs no network."""

import base64
import hashlib
import html
import math
import pathlib
import string

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly import offline

from experiments.results import documents, labels, tables
from experiments.stats import comparison, verdicts

_FOLDER = pathlib.Path(__file__).parent
OURS, PAPER = "#0072b2", "#d55e00"
# Okabe and Ito's colours, which people with colour blindness can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
SHOWN_EFFECTS = 3  # number of learning curves that are visible at first, besides base's
MOST_POINTS = 200  # the most points of a learning curve
FENCE = 3  # a value this many interquartile ranges above the third quartile is an outlier (Tukey)
ROW_HEIGHT = 26  # pixels


def render(compared: comparison.Comparison, document: documents.Document) -> str:
    """Returns the page of a comparison as HTML."""
    parts = [_downloads(compared.table.name, document)]
    for prefix, measured in compared.answers.measured.items():
        figure = differences_figure(compared, prefix)
        if figure:
            sentences = [
                f"Difference of {measured.scale.name} from base with its 95% interval.",
                "A filled mark is significant, for all rows together.",
            ]
            if prefix:
                sentences.append("Lower perplexity is better.")
            if compared.table.reported:
                sentences.append("Diamonds are the paper's.")
            sentences.append("An arrow marks a value beyond the axis, which stands in the label.")
            title = f"Differences from base in {measured.scale.name}"
            parts.append(_figure(title, figure, " ".join(sentences)))
    for number, table in enumerate(document.tables):
        title = table.title or ("Rows" if number == 0 else "Further numbers")
        parts.append(f"<section><h2>{html.escape(title)}</h2>\n{tables.html(table)}</section>")
    curves = curves_figure(compared)
    if curves:
        caption = (
            "Means over seeds. The legend shows and hides rows; a double click shows one alone."
        )
        parts.append(_figure("Learning curves", curves, caption))
    paragraphs = "\n".join(f"<p>{html.escape(note)}</p>" for note in document.notes)
    parts.append(f"<details open><summary>Notes</summary>\n{paragraphs}\n</details>")
    if len(compared.sweep.runs):
        provenance = tables.html(_provenance(compared))
        parts.append(f"<details><summary>Provenance</summary>\n{provenance}</details>")
    scripts = {"plotly": offline.get_plotlyjs(), "draw": _text("page.js")}
    return string.Template(_text("page.html")).substitute(
        title=html.escape(compared.table.title),
        answer=html.escape(answer(compared)),
        style=_text("page.css"),
        content="\n".join(parts),
        scripts=" ".join(map(_digest, scripts.values())),
        **scripts,
    )


def answer(compared: comparison.Comparison) -> str:
    """Returns a few sentences that summarise the results of a sweep."""
    rows = compared.answer_rows
    done = rows[rows["seeds"] > 0]
    seeds = sorted({int(number) for number in done["seeds"]}) or [0]
    runs = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    noun = "seed" if runs == "1" else "seeds"
    parts = [f"{len(done)} of {len(rows)} rows, {runs} {noun}."]
    for prefix, measured in compared.answers.measured.items():
        parts += _answer_of(rows, prefix, measured.scale)
    failed = [
        f"{line.row} ({line.failed_to_train} of {line.seeds} runs)"
        for line in done.itertuples()
        if line.failed_to_train
    ]
    if failed:
        parts.append(f"Failed to train: {', '.join(failed)}.")
    if compared.answers.tau:
        value = tables.number(compared.answers.tau.estimate.value, ".2f")
        parts.append(f"Kendall's tau-b with the paper: {value}.")
    return " ".join(parts)


def _answer_of(rows: pd.DataFrame, prefix: str, scale: verdicts.Scale) -> list[str]:
    """Returns sentences that summarise the differences of one measure."""
    form = "+.1f" if scale is not verdicts.LOG_PPL else "+.2f"
    judged = rows[rows[f"{prefix}difference"].notna()]
    tested = judged[judged[f"{prefix}over_seeds"]]
    if not len(tested):
        if not len(judged) or prefix:
            return []
        return [f"One seed, not tested for other seeds: {_rows(len(judged))}."]
    difference, words = f"{prefix}difference", tested[f"{prefix}verdict"]
    significant = tested[tested[f"{prefix}significant"]].sort_values(difference)
    parts = []
    for word, chosen in (
        ("Lower", significant[significant[difference] < 0]),
        ("Higher", significant[significant[difference] > 0][::-1]),
    ):
        if len(chosen):
            names = ", ".join(
                f"{row} ({tables.number(value, form)})"
                for row, value in zip(chosen["row"], chosen[difference], strict=True)
            )
            parts.append(f"{word} than base in {scale.name}: {names}.")
    for word, text in (
        (verdicts.AS_PAPER, "No difference, as in the paper"),
        (verdicts.NO_DIFFERENCE, "No difference"),
        (verdicts.SMALLER, "Smaller than the paper's"),
    ):
        if (words == word).any():
            parts.append(f"{text}: {', '.join(tested['row'][words == word])}.")
    unresolved = int((words == verdicts.NOT_RESOLVED).sum())
    if unresolved:
        parts.append(f"Not resolved in {scale.name}: {_rows(unresolved)}.")
    return parts


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"


def differences_figure(compared: comparison.Comparison, prefix: str = "") -> go.Figure | None:
    """Returns a plot of each row's difference from base, with 95% intervals.

    Args:
      compared: the rows.
      prefix: the prefix of the measure's columns; see `comparison.OneSet.measured`.

    Returns:
      The plot; None if no row has a difference.
    """
    rows = compared.answer_rows
    names = ["difference", "half_width", "significant", "verdict"]
    rows = rows.assign(
        **{name: rows[f"{prefix}{name}"] for name in names},
        paper_difference=rows[f"paper_{prefix}difference"],
    )
    rows = rows[rows["difference"].notna()]
    if not len(rows):
        return None
    form = "+.3f" if prefix else "+.2f"
    score = "ln PPL" if prefix else compared.table.score
    low, high = robust_range(rows)
    places = []  # the vertical place of each row
    place = 0.0
    previous = labels.group(rows["row"].iloc[0])
    for row in rows["row"]:
        place += 1 if labels.group(row) == previous else 1.5  # a gap between the paper's groups
        previous = labels.group(row)
        places.append(place)
    rows = rows.assign(place=places)
    inside = rows["difference"].between(low, high)
    names = [
        _label(line, is_inside, form)
        for (_, line), is_inside in zip(rows.iterrows(), inside, strict=True)
    ]
    hovers = [_hover(line, form) for _, line in rows.iterrows()]
    rows = rows.assign(hover=hovers)
    ours, clipped = rows[inside], rows[~inside]
    figure = go.Figure()
    figure.add_vline(x=0, line_width=1)
    figure.add_scatter(
        x=ours["difference"].tolist(),
        y=ours["place"].tolist(),
        error_x={"type": "data", "array": ours["half_width"].tolist(), "thickness": 1.5},
        mode="markers",
        name="ours",
        marker={
            "color": OURS,
            "size": 9,
            "symbol": ["circle" if sure else "circle-open" for sure in ours["significant"]],
        },
        text=ours["hover"].tolist(),
        hoverinfo="text",
    )
    if len(clipped):
        below = clipped["difference"] < low
        inset = 0.015 * (high - low)
        figure.add_scatter(
            x=np.where(below, low + inset, high - inset).tolist(),
            y=clipped["place"].tolist(),
            mode="markers",
            name="beyond the axis",
            marker={
                "color": OURS,
                "size": 12,
                "symbol": ["triangle-left" if each else "triangle-right" for each in below],
            },
            text=clipped["hover"].tolist(),
            hoverinfo="text",
        )
    paper = rows[rows["paper_difference"].notna()]
    if len(paper):
        figure.add_scatter(
            x=paper["paper_difference"].tolist(),
            y=paper["place"].tolist(),
            mode="markers",
            name="paper",
            marker={"color": PAPER, "size": 8, "symbol": "diamond-open"},
            text=[f"paper: {tables.number(each, form)}" for each in paper["paper_difference"]],
            hoverinfo="text",
        )
    _set_layout(figure, height=int(110 + ROW_HEIGHT * (place + 1)))
    figure.update_xaxes(range=[low, high], title=f"{score} − base", zeroline=False)
    figure.update_yaxes(
        range=[place + 1, 0], tickvals=places, ticktext=names, showgrid=False, zeroline=False
    )
    return figure


def robust_range(rows: pd.DataFrame) -> tuple[float, float]:
    """Returns the range of the axis of differences, which leaves out outliers.

    A row is an outlier if |difference| + half_width lies beyond Tukey's outer fence; see `FENCE`.
    The differences of all other rows with their intervals, the paper's differences, and 0 are
    inside the range.
    """
    ends = rows["difference"].abs() + rows["half_width"].fillna(0)
    first, third = np.quantile(ends, [0.25, 0.75])
    kept = rows[ends <= third + FENCE * (third - first)]
    widths = kept["half_width"].fillna(0)
    lower, upper = kept["difference"] - widths, kept["difference"] + widths
    low = min(0.0, lower.min(), rows["paper_difference"].min())
    high = max(0.0, upper.max(), rows["paper_difference"].max())
    margin = 0.05 * (high - low)
    return float(low - margin), float(high + margin)


def _label(line: pd.Series, is_inside: bool, form: str) -> str:
    """Returns the label of a row: its name, and its difference if that is beyond the axis."""
    if not is_inside:
        return f"{_plain(line['row'])}: {tables.number(line['difference'], form)}"
    return _plain(line["row"])


def _hover(line: pd.Series, form: str) -> str:
    columns = [
        tables.Column("row"),
        tables.Column("change"),
        tables.Column("difference", form=form, deviation="half_width"),
        tables.Column("verdict"),
    ]
    cells = [column.cell(line) for column in columns]
    return "<br>".join(_plain(cell) for cell in cells if cell)


def curves_figure(compared: comparison.Comparison) -> go.Figure | None:
    """Returns a plot of learning curves.

    At first, the curves of base and of the rows with the largest differences are visible. The
    legend shows and hides curves. The result is None if no curve was logged.
    """
    curves = compared.sweep.curves
    metric = next((name for name in ("dev_ppl", "ppl") if name in curves), None)
    if metric is None:
        return None
    curves = curves.dropna(subset=[metric])
    effects = compared.answer_rows["difference"].abs().nlargest(SHOWN_EFFECTS).index
    shown = [compared.sweep.description.base_row, *effects]
    figure = go.Figure()
    rows = [row for row in compared.rows["row"] if row in set(curves["row"])]
    colours = dict(zip(shown, COLOURS, strict=False))
    others = [row for row in rows if row not in colours]
    for number, row in enumerate(others):
        colours[row] = COLOURS[number % len(COLOURS)]
    for row in rows:
        own = curves[curves["row"] == row]
        means = own.groupby("step")[metric].agg(["mean", "size"])
        means = means.loc[means["size"] == means["size"].max(), "mean"]
        every = max(math.ceil(len(means) / MOST_POINTS), 1)
        # Counted from the last point, so that it is kept.
        means = means.iloc[(len(means) - 1) % every :: every]
        figure.add_scatter(
            x=means.index.tolist(),
            y=[float(f"{value:.4g}") for value in means],
            mode="lines",
            name=_plain(row),
            line={"color": colours[row], "width": 2.5 if row == shown[0] else 1.5},
            visible=True if row in shown else "legendonly",
            hovertemplate="%{fullData.name}<br>step %{x}: %{y}<extra></extra>",
        )
    if not figure.data:
        return None
    _set_layout(figure, height=400 + 8 * len(rows))
    kind = "development" if metric == "dev_ppl" else "training"
    figure.update_xaxes(title="step", rangemode="tozero")
    figure.update_yaxes(title=f"{kind} perplexity", type="log", dtick="D1")
    return figure


def _set_layout(figure: go.Figure, height: int) -> None:
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 10, "r": 16, "t": 10, "b": 10},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"size": 13, "family": "system-ui, sans-serif"},
        legend={"orientation": "h", "yanchor": "bottom", "y": 0, "yref": "container"},
        hoverlabel={"bgcolor": "#333333"},
        dragmode=False,
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)


def _figure(title: str, figure: go.Figure, caption: str) -> str:
    # In JSON, "<" is an escape, so that no text ends the script element.
    data = (figure.to_json() or "").replace("<", "\\u003c")
    return (
        f"<section><h2>{html.escape(title)}</h2>\n<figure>"
        f'<div class="plot" style="min-height:{figure.layout.height}px"></div>'
        f'<script type="application/json">{data}</script>'
        f"<figcaption>{html.escape(caption)}</figcaption></figure></section>"
    )


def _plain(text: str) -> str:
    """Escapes a text for Plotly, which would interpret HTML in it, and collapses whitespace."""
    return html.escape(" ".join(text.split()), quote=False)


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


def _provenance(compared: comparison.Comparison) -> tables.Table:
    runs = compared.sweep.runs
    names = ["config_hash", "git_commit", "data_sha256", "tokenizer_sha256"]
    short = {name: runs[name].str[:12] for name in names if name in runs}
    frame = runs.assign(**short, hours=runs["wall_seconds"] / 3600)
    columns = [
        tables.Column("row"),
        tables.Column("seed", form="d"),
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
    return tables.Table(frame, columns, "Provenance")


def _digest(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
