"""The tables in LaTeX are what LaTeX takes without a complaint."""

import shutil
import subprocess

import pandas as pd
import pytest

from experiments import table3
from experiments.results import comparison, frames, report, tables
from experiments.results import table3 as latex
from tests import escaping_test, sweeps

pytestmark = pytest.mark.skipif(
    not shutil.which("pdflatex"), reason="no pdflatex: apt-get install texlive-latex-recommended"
)
PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{booktabs}
\usepackage[paperwidth=60cm,paperheight=40cm]{geometry}
\begin{document}
"""


def compiled(folder, *texts):
    """Compiles tables, fails at the first mistake, and returns pdflatex's output."""
    content = PREAMBLE + "\n\n".join(texts) + "\n\\end{document}\n"
    (folder / "page.tex").write_text(content, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "page"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    printed = done.stdout.decode(errors="replace")
    assert done.returncode == 0, printed[-2000:]
    assert (folder / "page.pdf").read_bytes().startswith(b"%PDF")
    return printed


def test_table_3_in_both_layouts_compiles(tmp_path):
    rows = table3.rows_for(sweeps.base())
    sweeps.make(tmp_path / "sweep", sweeps.Made(rows), missing=["E"])
    compared = comparison.compare(frames.load(tmp_path / "sweep"))
    shown = report.build(compared).tables
    printed = compiled(tmp_path, latex.latex(compared), *map(tables.latex, shown))
    assert "Overfull" not in printed


def test_no_text_of_a_sweep_is_a_command(tmp_path):
    texts = [text for text in escaping_test.HOSTILE if text.strip()]
    texts += [r"\input{/etc/passwd}", "100% $x_1^2$ & #3 ~ {a} [b] `c`", "− ± × → ≥ · ⁶ … “q”"]
    frame = pd.DataFrame({"row": texts, "50% of a_b": [f"[{text}]" for text in texts]})
    compiled(tmp_path, tables.latex(tables.Table(frame, [*map(tables.Column, frame)])))
