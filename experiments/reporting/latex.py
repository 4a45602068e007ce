r"""The table of a sweep in LaTeX, with \usepackage{booktabs}: Table 3 in the paper's own layout."""

import re
import statistics
from collections.abc import Sequence

from experiments.analysis import comparison
from experiments.sweep import results
from transformer_jax import config as config_lib
from transformer_jax.drawing import tables

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
_SPECIAL = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "_": r"\_", "%": r"\%", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "→": r"$\to$", "≥": r"$\geq$", "·": r"$\cdot$",
    "⁶": "$^6$", "[": "{[}", "]": "{]}", "`": r"\textasciigrave{}",
})  # fmt: skip


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is, on one line."""
    return " ".join(text.split()).translate(_SPECIAL)


def as_in_the_paper(compared: comparison.Comparison) -> str:
    """Table 3 as the paper sets it: base's values, then what each row changes, in groups.

    A last column has each row's difference from base in BLEU with half of its 95% interval.
    """
    lines: list[str] = []
    group = ""
    for row in compared.sweep.rows:
        own = re.fullmatch(r"([A-Z])(?: .*)?", row.name)
        name = f"({own[1]})" if own else row.name
        if lines and name != group:
            lines.append(r"\midrule")
        lines.append(_line([escaped(name) if name != group else "", *_values(row, compared)]))
        group = name
    columns = "c" + "r" * (len(_HEADS) - 1)
    return _tabular(columns, [_line(_HEADS)], lines)


def plain(table: tables.Printed) -> str:
    """Any table, a column each."""
    lines = [_line([escaped(cell) for cell in line]) for line in table.lines]
    heads = _line([escaped(head) for head in table.heads])
    return _tabular("l" * len(table.heads), [heads], lines)


def _values(row: results.Row, compared: comparison.Comparison) -> list[str]:
    """The cells of a row but the first."""
    sweep = compared.sweep
    is_base = row is sweep.rows[0]
    cells = [
        escaped(str(config_lib.get(sweep.base, field) if is_base else row.overrides[field]))
        if is_base or field in row.overrides
        else ""
        for field in _FIELDS
    ]
    if "model.position" in row.overrides and not is_base:
        kind = escaped(str(row.overrides["model.position"]))
        was = escaped(sweep.base.model.position)
        text = f"{kind} positions instead of {was} ones"
        # Over the columns of sizes, as the paper has it; what else the row changes stays.
        filled = [place for place, cell in enumerate(cells) if cell]
        width = filled[0] if filled else len(cells)
        if width:
            cells[:width] = [rf"\multicolumn{{{width}}}{{c}}{{{text}}}"]
    if not row.results:
        return [*cells, "failed" if row.failures else "not run", "", "", ""]
    gap = compared.gaps.get(row.name)
    return [
        *cells,
        _with_deviation(row.of("ppl"), 2),
        _with_deviation(comparison.scores(row), 1),
        f"{row.of('params')[0] / 1e6:.3g}",
        rf"${gap.mean:+.1f} \pm {gap.half:.1f}$" if gap else "",
    ]


def _with_deviation(values: Sequence[float], digits: int) -> str:
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) < 2 else rf"${mean} \pm {statistics.stdev(values):.{digits}f}$"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _tabular(columns: str, heads: Sequence[str], lines: Sequence[str]) -> str:
    parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *heads, r"\midrule", *lines]
    return "\n".join([*parts, r"\bottomrule", r"\end{tabular}"]) + "\n"
