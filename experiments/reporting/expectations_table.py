"""What was expected of rows before they ran, beside what came."""

from experiments.analysis import comparison, intervals
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax.drawing import tables


def section(compared: comparison.Comparison) -> table_lib.Section:
    """The rows that something is said of; nothing where there are none."""
    lines = [
        [row.name, own["why"], own["expect"], f"{own['date']}, {own['when']}", _came(row, compared)]
        for row in compared.sweep.rows
        if (own := compared.sweep.said.get(row.name))
    ]
    heads = ["row", "why", "expected", "written", "came"]
    shown = tables.Printed(heads, lines, "Expected, and what came")
    return table_lib.Section([shown] if lines else [])


def _came(row: results.Row, compared: comparison.Comparison) -> str:
    """The difference from base, and whether it can be chance."""
    gap = compared.gaps.get(row.name)
    name = compared.table.compared_by.name
    if gap is None and row.name in (found := comparison.differences(compared)):
        return f"{intervals.written(found[row.name], None)} {name}, without an interval"
    if gap is None:
        return "" if row.results else "failed" if row.failures else "not run"
    sure = "" if comparison.is_sure(row.name, compared) else ", which may be chance"
    if sure and gap.excludes_0:
        one = "one seed" if gap.runs[0] == 1 else "one seed of base"
        sure += " among so many rows" if gap.over_seeds else f" of {one}"
    return f"{intervals.written(gap.mean, gap.half)} {name}{sure}"
