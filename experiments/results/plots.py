"""Figures of a sweep: differences from base, scores against one size, and learning curves."""

import html
import math
import statistics
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from experiments.results import comparison, frames, labels, tables
from experiments.sweep import store
from transformer_jax import config as config_lib
from transformer_jax import paper

SCORE, LOG_PPL = comparison.Measure.SCORE, comparison.Measure.LOG_PPL
OURS, PAPER, SEED = "#0072b2", "#d55e00", "#8c8c8c"
SHOWN_EFFECTS = 3  # number of learning curves that are visible at first, besides base's
MOST_POINTS = 200  # the most points of a learning curve
FENCE = 3  # a value this many interquartile ranges above the third quartile is an outlier (Tukey)
ROW_HEIGHT = 36  # pixels: a line of text, and the marks below it
CLIPPED = "beyond the axis"
LONGEST = 48  # characters of a label
SHORT_LABEL = 34  # characters of a label at the end of a curve
GROUPS = {
    "A": "attention heads",
    "B": "size of keys",
    "C": "size of the model",
    "D": "regularisation",
    "E": "positions",
}
SIZES = {  # the fields by which rows on the line of a size may differ from base
    "h": ("model.num_heads", "model.d_k", "model.d_v"),
    "d_k": ("model.d_k", "model.d_v"),
    "N": ("model.num_layers",),
    "d_model": ("model.d_model", "model.d_k", "model.d_v"),
    "d_ff": ("model.d_ff",),
    "P_drop": ("model.dropout_rate",),
    "eps_ls": ("train.label_smoothing",),
}
SIZE_TITLES = {
    "h": "heads h",
    "N": "depth N",
    "d_model": "width d_model",
    "P_drop": "dropout P_drop",
    "eps_ls": "smoothing eps_ls",
}
LINEAR = {"N", "P_drop", "eps_ls"}  # other sizes double from row to row


def differences_figure(
    compared: comparison.Comparison, measure: comparison.Measure = SCORE
) -> go.Figure | None:
    """Returns a plot of each row's difference from base, with 95% intervals.

    Args:
      compared: the rows.
      measure: the measure of the differences.

    Returns:
      The plot; None if no row has a difference.
    """
    rows, prefix, form = compared.answer_rows, measure.value, measure.form
    names = ["difference", "half_width", "significant", "verdict"]
    rows = rows.assign(
        **{name: rows[f"{prefix}{name}"] for name in names},
        paper_difference=rows[f"paper_{prefix}difference"],
    )
    measured = rows[rows["difference"].notna()]
    if not len(measured):
        return None
    low, high = robust_range(measured)
    is_failed = (rows["failed_to_train"] > 0) & (rows["row"] != compared.sweep.description.base_row)
    rows = rows[rows["difference"].notna() | is_failed]
    figure = go.Figure()
    figure.add_vline(x=0, line_width=1)
    places, bottom = _add_labels(figure, compared, rows["row"])
    rows = rows.assign(place=[places[row] for row in rows["row"]])
    untested = rows[rows["difference"].isna()]
    if len(untested):
        figure.add_scatter(
            x=[low + 0.01 * (high - low)] * len(untested),
            y=(untested["place"] + 0.06).tolist(),
            mode="text",
            text=[
                f"{line.failed_to_train} of {line.seeds} seeds failed to train"
                for line in untested.itertuples()
            ],
            textposition="middle right",
            showlegend=False,
            hoverinfo="skip",
        )
    dots = [
        (each, places[row] + 0.19)
        for row in measured["row"]
        for each in seed_differences(compared, row, measure)
        if low < each < high
    ]
    _add_marks(figure, dots, "a seed", {"color": SEED, "size": 4})
    rows = rows[rows["difference"].notna()]
    rows = rows.assign(hover=[_hover(line, form) for _, line in rows.iterrows()])
    inside = rows["difference"].between(low, high)
    ours, clipped = rows[inside], rows[~inside]
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
            mode="markers+text",
            name=CLIPPED,
            marker={
                "color": OURS,
                "size": 12,
                "symbol": ["triangle-left" if each else "triangle-right" for each in below],
            },
            text=[tables.number(each, form) for each in clipped["difference"]],
            textposition=["middle right" if each else "middle left" for each in below],
            hovertext=clipped["hover"].tolist(),
            hoverinfo="text",
        )
    reported = rows[rows["paper_difference"].notna()]
    looks = {"color": PAPER, "size": 8, "symbol": "diamond-open"}
    theirs = list(zip(reported["paper_difference"], reported["place"], strict=True))
    _add_marks(figure, theirs, "paper", looks)
    set_layout(figure, height=int(70 + ROW_HEIGHT * (bottom + 0.6)))
    better = "higher is better" if measure is SCORE else "lower is better"
    score = compared.table.score if measure is SCORE else "ln PPL"
    figure.update_xaxes(range=[low, high], title=f"{score} − base ({better})", zeroline=False)
    figure.update_yaxes(range=[bottom + 0.6, 0], visible=False)
    return figure


_TEXT = {
    "xref": "paper",
    "x": 0,
    "xanchor": "left",
    "yanchor": "middle",
    "align": "left",
    "showarrow": False,
    "font": {"size": 12},
}


def _add_labels(
    figure: go.Figure, compared: comparison.Comparison, rows: pd.Series
) -> tuple[dict[str, float], float]:
    """Adds the rows' names above their places, below headings of the paper's groups.

    Returns:
      The vertical place of each row, and the last place.
    """
    description = compared.sweep.description
    places: dict[str, float] = {}
    place, previous = 0.0, None
    for row in rows:
        group = labels.group(row)
        if group != previous:
            heading = GROUPS.get(group) if compared.table.reported else None
            if heading:
                place += 0.75
                text = f"<b>{group}: {heading}</b>"
                figure.add_annotation(text=text, y=place, **_TEXT)
            elif previous is not None:
                place += 0.5
            previous = group
        place += 1
        places[row] = place
        text = html.escape(short_name(description, row), quote=False)
        figure.add_annotation(text=text, y=place - 0.42, **_TEXT)
    return places, place


def short_name(description: store.Description, row: str, longest: int = LONGEST) -> str:
    """Returns a row's name with its meaning, shortened to a number of characters."""
    for text in (labels.full_name(description, row), labels.full_name(description, row, False)):
        if len(text) <= longest:
            return text
    # Names of other tables are more informative than changes cut short.
    return textwrap.shorten(text, longest, placeholder=" …") if row in paper.TABLE3 else row


def _add_marks(
    figure: go.Figure, points: list[tuple[float, float]], name: str, marker: Mapping[str, Any]
) -> None:
    if points:
        x, y = zip(*points, strict=True)
        figure.add_scatter(x=x, y=y, mode="markers", name=name, marker=marker, hoverinfo="x+name")


def seed_differences(
    compared: comparison.Comparison, row: str, measure: comparison.Measure = SCORE
) -> list[float]:
    """Returns the difference of each run that learned from base's run with the same seed.

    A run whose seed base does not have is compared with base's mean.
    """
    sweep = compared.sweep
    base = compared.rows.loc[row, "reference"]
    if pd.isna(base):
        return []
    if measure is LOG_PPL and row not in comparison.with_units_of_base(sweep):
        return []
    scored_by = compared.table.measure if measure is SCORE else "ppl"
    column = frames.SPLITS[compared.answer_set] + scored_by
    values = []
    for name in (row, base):
        own = sweep.of(name)
        own = own[~own["seed"].isin(compared.failed.get(name, []))]
        numbers = dict(zip(own["seed"], own[column], strict=True)) if column in own else {}
        numbers = {seed: number for seed, number in numbers.items() if not pd.isna(number)}
        if measure is LOG_PPL:
            numbers = {seed: math.log(number) for seed, number in numbers.items()}
        values.append(numbers)
    ours, theirs = values
    if not theirs:
        return []
    mean = statistics.mean(theirs.values())
    return [number - theirs.get(seed, mean) for seed, number in ours.items()]


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


def _hover(line: pd.Series, form: str) -> str:
    columns = [
        tables.Column("row"),
        tables.Column("change"),
        tables.Column("difference", form=form, deviation="half_width"),
        tables.Column("verdict"),
    ]
    cells = [column.cell(line) for column in columns]
    return "<br>".join(html.escape(cell, quote=False) for cell in cells if cell)


def dose_figures(compared: comparison.Comparison) -> dict[str, go.Figure]:
    """Returns plots of the difference from base against each size that rows change alone.

    The paper's line is drawn at our sizes. The plots share the range of the differences.
    """
    rows, description = compared.answer_rows, compared.sweep.description
    rows = rows[rows["difference"].notna()]
    lines = {}
    for symbol, fields in SIZES.items():
        own = [
            row
            for row in rows["row"]
            if fields[0] in (changed := labels.changes(description, row))
            and changed.keys() <= {*fields}
        ]
        if own:
            names = [description.base_row, *own]
            line = compared.answer_rows.loc[names].fillna(
                {"difference": 0.0, "paper_difference": 0.0 if compared.table.reported else np.nan}
            )
            sizes = [config_lib.get(description.config(row), fields[0]) for row in names]
            lines[symbol] = line.assign(size=sizes).sort_values("size")
    if not lines:
        return {}
    low, high = robust_range(pd.concat(lines.values()))
    figures = {}
    for symbol, line in lines.items():
        figure = go.Figure()
        figure.add_hline(y=0, line_width=1)
        sizes = line["size"].tolist()
        if line["paper_difference"].notna().any():
            figure.add_scatter(
                x=sizes,
                y=line["paper_difference"].tolist(),
                mode="lines+markers",
                name="paper",
                line={"color": PAPER, "width": 1.5, "dash": "dot"},
                marker={"symbol": "diamond-open", "size": 8},
            )
        figure.add_scatter(
            x=sizes,
            y=line["difference"].tolist(),
            error_y={"type": "data", "array": line["half_width"].fillna(0).tolist()},
            mode="lines+markers",
            name="ours",
            line={"color": OURS, "width": 2},
            marker={"size": 7},
        )
        set_layout(figure, height=210)
        kind = "linear" if symbol in LINEAR else "log"
        texts = [f"{size:g}" for size in sizes]
        figure.update_xaxes(type=kind, tickvals=sizes, ticktext=texts, zeroline=False)
        figure.update_xaxes(title=SIZE_TITLES.get(symbol, symbol), showgrid=False)
        figure.update_yaxes(range=[low, high], zeroline=False, nticks=6)
        figures[symbol] = figure
    return figures


def curves(compared: comparison.Comparison) -> dict[str, Any] | None:
    """Returns the learning curves as JSON, for page.js; None if no curve was logged.

    Each curve is the mean over seeds with a band from the lowest to the highest value, at the steps
    that all seeds have logged. At first, the curves of base and of the rows with the largest
    differences are shown.
    """
    logged = compared.sweep.curves
    metric = next((name for name in ("dev_ppl", "ppl") if name in logged), None)
    if metric is None:
        return None
    logged = logged.dropna(subset=[metric])
    base = compared.sweep.description.base_row
    effects = compared.answer_rows["difference"].abs().nlargest(SHOWN_EFFECTS).index
    shown = {base, *effects}
    rows = []
    for row in compared.rows["row"]:
        own = logged[logged["row"] == row]
        own = own[~own["seed"].isin(compared.failed.get(row, []))]
        means = own.groupby("step")[metric].agg(["mean", "min", "max", "size"])
        means = means[means["size"] == means["size"].max()]
        every = max(math.ceil(len(means) / MOST_POINTS), 1)
        # Counted from the last point, so that it is kept.
        means = means.iloc[(len(means) - 1) % every :: every] if len(means) else means
        if len(means):
            columns = {
                name: [float(f"{value:.5g}") for value in means[name]]
                for name in ("mean", "min", "max")
            }
            texts = {
                "row": row,
                "name": short_name(compared.sweep.description, row, SHORT_LABEL),
                "label": short_name(compared.sweep.description, row),
            }
            rows.append({**texts, "step": means.index.tolist(), **columns, "shown": row in shown})
    if not rows:
        return None
    kind = "development" if metric == "dev_ppl" else "training"
    return {"title": f"{kind} perplexity", "base": base, "rows": rows}


def set_layout(figure: go.Figure, height: int) -> None:
    """Sets the layout that all figures share."""
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 12, "r": 12, "t": 8, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"size": 13, "family": "system-ui, sans-serif"},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1},
        hoverlabel={"bgcolor": "#333333"},
        dragmode=False,
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
