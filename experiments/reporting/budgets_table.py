"""The rows of one table at several budgets, side by side: at equal steps, parameters, FLOPs."""

from collections.abc import Sequence

from experiments.analysis import comparison
from experiments.reporting import verdict_words
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import errors
from transformer_jax.drawing import tables


def section(compared: Sequence[comparison.Comparison]) -> table_lib.Section:
    """Each row's difference from base and its verdict in each sweep, the report's own first.

    Raises:
      UserError: they are of different tables.
    """
    first = compared[0].sweep
    for other in (each.sweep for each in compared[1:]):
        if other.table != first.table:
            raise errors.UserError(
                f"--beside={other.workdir} holds {other.table}, not {first.table}: give sweeps of "
                "one table"
            )
    comparison.require_alike([row for each in compared for row in each.sweep.rows])
    names = dict.fromkeys(name for each in compared for name in each.gaps)
    lines = []
    for name in names:
        cells = [cell for each in compared for cell in _cells(name, each)]
        ups = [each.gaps[name].mean > 0 for each in compared if name in each.gaps]
        sign = "" if len(ups) < 2 else "turns" if len({*ups}) > 1 else "same"
        lines.append([name, *cells, sign])
    heads = [
        head
        for budget in _budgets([each.sweep for each in compared])
        for head in (f"{budget}: − base", "says")
    ]
    shown = tables.Printed(["row", *heads, "sign"], lines, "At several budgets")
    return table_lib.Section([shown] if lines else [])


def _budgets(sweeps: Sequence[results.Sweep]) -> list[str]:
    """What rows have as much of as base, with the folder where two sweeps have one budget."""
    found = [f"equal {sweep.match or 'steps'}" for sweep in sweeps]
    return [
        budget if found.count(budget) == 1 else f"{budget} ({sweep.workdir})"
        for budget, sweep in zip(found, sweeps, strict=True)
    ]


def _cells(name: str, compared: comparison.Comparison) -> list[str]:
    """A row's difference with its interval, and the verdict on the paper's or the sign."""
    gap = compared.gaps.get(name)
    if gap is None:
        return ["", ""]
    return [tables.difference(gap.mean, gap.half), verdict_words.said(name, compared)]
