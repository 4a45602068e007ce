r"""Formats a comparison as the paper's Table 3 in LaTeX, which needs \usepackage{booktabs}."""

import pandas as pd

from experiments.results import comparison, labels, tables
from transformer_jax import config as config_lib

_FIELDS = {  # the paper's column heads, in its order
    "model.num_layers": "$N$",
    "model.d_model": r"$d_{\mathrm{model}}$",
    "model.d_ff": r"$d_{\mathrm{ff}}$",
    "model.num_heads": "$h$",
    "model.d_k": "$d_k$",
    "model.d_v": "$d_v$",
    "model.dropout_rate": "$P_{\\mathrm{drop}}$",
    "train.label_smoothing": r"$\epsilon_{\mathrm{ls}}$",
    "train.num_steps": "train steps",
}
_HEADS = ["", *_FIELDS.values(), "PPL (dev)", "BLEU (dev)", "params $\\times 10^6$", "$-$ base"]


def latex(compared: comparison.Comparison) -> str:
    """Returns Table 3 in LaTeX, in the layout of the paper.

    The first line has the settings of base. Each further line has the settings that the row
    changes. A column that the paper does not have shows each row's difference from base in BLEU,
    with the half-width of the 95% interval.
    """
    lines: list[list[str]] = []
    group = ""
    for row in compared.rows["row"]:
        letter = labels.group(row)
        name = f"({letter})" if letter else row
        if lines and name != group:
            lines.append([])
        lines.append([tables.latex_text(name) if name != group else "", *_cells(compared, row)])
        group = name
    return tables.tabular("c" + "r" * (len(_HEADS) - 1), _HEADS, lines)


def _cells(compared: comparison.Comparison, row: str) -> list[str]:
    """Returns the cells of a row without the first cell, which has the name."""
    description, line = compared.sweep.description, compared.rows.loc[row]
    base = {field: config_lib.get(description.base, field) for field in _FIELDS}
    settings = base if row == description.base_row else description.rows[row]
    cells = [tables.latex_text(str(settings.get(field, ""))) for field in _FIELDS]
    if "model.position" in settings:
        kind = tables.latex_text(str(settings["model.position"]))
        other = tables.latex_text(description.base.model.position)
        # Over the columns of sizes, as in the paper, up to the first that the row changes.
        width = next((place for place, cell in enumerate(cells) if cell), len(cells))
        if width:
            text = f"{kind} positions instead of {other} ones"
            cells[:width] = [rf"\multicolumn{{{width}}}{{c}}{{{text}}}"]
    if not line["seeds"]:
        return [*cells, "failed" if line["failed"] else "not run", "", "", ""]
    return [
        *cells,
        _math(line, "ppl", ".2f", "ppl_sd"),
        _math(line, "score", ".1f", "score_sd"),
        f"{line['params'] / 1e6:.3g}",
        _math(line, "difference", "+.1f", "half_width"),
    ]


def _math(line: pd.Series, name: str, form: str, deviation: str) -> str:
    text = tables.Column(name, form=form, deviation=deviation).cell(line)
    return f"${text}$".replace("±", r"\pm").replace("−", "-") if text else ""
