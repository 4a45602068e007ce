"""The tables in LaTeX are what LaTeX takes without a complaint."""

import shutil
import subprocess

import pytest

from experiments import table3
from experiments.analysis import comparison
from experiments.reporting import comparison_table, latex
from experiments.sweep import results
from tests import escaping_test, sweeps
from transformer_jax.drawing import tables

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
    """What pdflatex prints of tables; it stops at the first mistake."""
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
    compared = comparison.compare(results.read(tmp_path / "sweep"))
    shown = comparison_table.document(compared).on_page
    printed = compiled(
        tmp_path, latex.as_in_the_paper(compared), *(latex.plain(table) for table in shown)
    )
    assert "Overfull" not in printed


def test_no_text_of_a_sweep_is_a_command(tmp_path):
    texts = [text for text in escaping_test.HOSTILE if text.strip()]
    texts += [r"\input{/etc/passwd}", "100% $x_1^2$ & #3 ~ {a} [b] `c`", "− ± × → ≥ · ⁶ … “q”"]
    lines = [[text, f"[{text}]"] for text in texts]
    compiled(tmp_path, latex.plain(tables.Printed(["row", "50% of a_b"], lines)))
