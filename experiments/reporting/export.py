"""The table of a sweep for other programs: CSV, and LaTeX in the paper's own layout."""

import csv
import io
import statistics
from collections.abc import Sequence
from typing import Any

from experiments.analysis import comparison
from experiments.reporting import table


def to_csv(compared: comparison.Comparison) -> str:
    """One line a row, numbers unrounded, for other programs."""
    sweep, reported = compared.sweep, compared.reported
    lines = []
    for row in sweep.rows:
        ppl = [result["ppl"] for result in row.results.values()]
        ours = list(comparison.scores(row).values())
        gap = compared.gaps.get(row.name)
        line: dict[str, Any] = {
            "row": row.name,
            "values": table.changed(row),
            "seeds": len(row.results),
            "failed": len(row.failures),
            **{f"ppl{end}": value for end, value in _mean_sd(ppl).items()},
            **{f"bleu{end}": value for end, value in _mean_sd(ours).items()},
            "bleu_minus_base": gap.mean if gap else "",
            "interval_half_width": gap.half if gap else "",
            "p": gap.p if gap else "",
            "params": next((result["params"] for result in row.results.values()), ""),
        }
        for field in sweep.tune:
            found = comparison.best(row, sweep.base, field) or ("", "")
            line |= {f"best_{field}_value": found[0], f"best_{field}_bleu": found[1]}
        if reported:
            theirs, theirs_gap = reported.get(row.name), comparison.paper_gap(row, compared)
            line |= {
                "paper_wmt14_ppl": theirs.ppl if theirs else "",
                "paper_wmt14_bleu": theirs.bleu if theirs else "",
                "paper_wmt14_bleu_minus_base": "" if theirs_gap is None else theirs_gap,
                "paper_params_millions": (theirs and theirs.params) or "",
                "verdict": comparison.verdict(row, compared),
            }
        lines.append(line)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _mean_sd(values: Sequence[float]) -> dict[str, Any]:
    """Mean and standard deviation, by the end of their columns' names."""
    return {
        "": statistics.mean(values) if values else "",
        "_sd": statistics.stdev(values) if len(values) > 1 else "",
    }
