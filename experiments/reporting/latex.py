r"""The table of a sweep in LaTeX, with \usepackage{booktabs}: Table 3 in the paper's own layout."""

import re
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


def _escaped(text: str) -> str:
    """Text that LaTeX prints as it is, on one line."""
    return " ".join(text.split()).translate(_SPECIAL)


def as_in_the_paper(compared: comparison.Comparison) -> str:
    """Table 3 as the paper sets it: base's values, then what each row changes, in groups.

    A last column has each row's difference from base in BLEU with half of its 95% interval.
    """
    lines: list[list[str]] = []
    group = ""
    for row in compared.sweep.rows:
        own = re.fullmatch(r"([A-Z])(?: .*)?", row.name)
        name = f"({own[1]})" if own else row.name
        if lines and name != group:
            lines.append([])
        lines.append([_escaped(name) if name != group else "", *_values(row, compared)])
        group = name
    return _tabular("c" + "r" * (len(_HEADS) - 1), _HEADS, lines)


def plain(table: tables.Printed) -> str:
    """Any table, a column each."""
    lines = [list(map(_escaped, line)) for line in table.lines]
    return _tabular("l" * len(table.heads), list(map(_escaped, table.heads)), lines)


def _values(row: results.Row, compared: comparison.Comparison) -> list[str]:
    """The cells of a row but the first."""
    base = compared.sweep.base
    of_base = {field: config_lib.get(base, field) for field in _FIELDS}
    shown = of_base if row is compared.sweep.rows[0] else row.overrides
    cells = [_escaped(str(shown.get(field, ""))) for field in _FIELDS]
    if "model.position" in shown:
        kind = _escaped(str(shown["model.position"]))
        text = f"{kind} positions instead of {_escaped(base.model.position)} ones"
        # Over the columns of sizes, as the paper has it; what else the row changes stays.
        width = next((place for place, cell in enumerate(cells) if cell), len(cells))
        if width:
            cells[:width] = [rf"\multicolumn{{{width}}}{{c}}{{{text}}}"]
    if not row.results:
        return [*cells, "failed" if row.failures else "not run", "", "", ""]
    gap = compared.gaps.get(row.name)
    means = [(row.of("ppl"), 2), (comparison.scores(row), 1)]
    written = [tables.mean_and_deviation(*each) for each in means]
    return [
        *cells,
        *(f"${mean}$".replace("±", r"\pm") if "±" in mean else mean for mean in written),
        f"{row.of('params')[0] / 1e6:.3g}",
        rf"${gap.mean:+z.1f} \pm {gap.half:.1f}$" if gap else "",
    ]


def _tabular(columns: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """LaTeX's table; an empty line is a rule."""
    written = [" & ".join(line) + r" \\" if line else r"\midrule" for line in [heads, [], *lines]]
    parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *written, r"\bottomrule"]
    return "\n".join([*parts, r"\end{tabular}"]) + "\n"
