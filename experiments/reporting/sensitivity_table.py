"""How much a tuned field matters: each row at its best and worst, and whether its verdict stays."""

from collections.abc import Mapping

from experiments.analysis import comparison, noise_floor, significance, tuning
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax.drawing import tables

_WORDS = {"reproduced": "lower", "contradicts": "higher"}  # of a row that should be lower


def section(compared: comparison.Comparison) -> table_lib.Section:
    """A line for each row of a sweep with --tune, what is to be known, and what to try next."""
    sweep, tuned = compared.sweep, compared.tuned
    if not tuned:
        return table_lib.Section([])
    field = next(iter(sweep.tune))
    floor = comparison.floor_of(sweep, _counts(tuned), compared.table.measure)
    recipes = {name: each.tried[0] for name, each in tuned.items()}
    fixed = {name: tried for name, tried in recipes.items() if tried.row.name == name}
    best = {row.name: tuned[row.name].best for row in sweep.rows if _is_whole(row, compared)}
    gaps = [_gaps(compared, found, floor) for found in (fixed, best)]
    words = [_verdicts(compared, found) for found in gaps]
    lines = []
    for row in sweep.rows:
        if (each := tuned.get(row.name)) is None:
            continue
        found = [own.get(row.name) for own in gaps]
        said = [own.get(row.name, "") for own in words]
        losses, worst = [tried.nats for tried in each.tried], each.worst
        at_best = [f"{each.best.value}{' (edge)' * each.is_at_edge}", f"{each.best.score:.2f}"]
        at_worst = f"{worst.score:.2f} at {worst.value}"
        nats = [f"{min(losses):.3f}", f"{max(losses):.3f}"]
        differences = [tables.difference(gap.mean, gap.half) if gap else "" for gap in found]
        same = ("yes" if said[0] == said[1] else "no") if all(said) else ""
        lines.append([row.name, *at_best, at_worst, *nats, *differences, *said, same, *_cost(row)])
    name = compared.table.compared_by.name
    against = f"− {sweep.rows[0].name}"
    heads = ["row", "best at", f"{name}: best", f"{name}: worst", "nats: best", "nats: worst"]
    heads += [f"{against}: recipe", f"{against}: best", "verdict: recipe", "verdict: best"]
    heads += ["same", "cells", "hours"]
    title = f"Sensitivity to {field}: {tuning.SETS}"
    return table_lib.Section([tables.Printed(heads, lines, title)], notes(compared, name))


def _is_whole(row: results.Row, compared: comparison.Comparison) -> bool:
    """Whether a row and the one it is compared with were both tuned wholly."""
    pair = (row, results.reference(row, compared.sweep))
    found = [compared.tuned.get(each.name) for each in pair]
    return all(each is not None and not each.missing for each in found)


def _counts(tuned: Mapping[str, tuning.Tuned]) -> dict[str, significance.Runs]:
    """Counts of the test set, by the names of all that was tried."""
    return {each.row.name: each.counts for row in tuned.values() for each in row.tried}


def _gaps(
    compared: comparison.Comparison,
    chosen: Mapping[str, tuning.Tried],
    floor: noise_floor.Floor | None,
) -> dict[str, significance.Difference]:
    """Each row's difference on the test set, between the values chosen for both."""
    sweep, measure = compared.sweep, compared.table.measure
    counts = _counts(compared.tuned)
    return {
        row.name: comparison.gap(
            counts, chosen[row.name].row.name, chosen[against].row.name, measure, floor
        )
        for row in sweep.rows
        for against in [results.reference(row, sweep).name]
        if row.name != against and {row.name, against} <= chosen.keys()
        if min(map(len, counts[chosen[row.name].row.name].values())) > 1  # one says nothing
    }


def _verdicts(
    compared: comparison.Comparison, gaps: Mapping[str, significance.Difference]
) -> dict[str, str]:
    """On the paper's differences; where there are none, whether a row is lower or higher."""
    if compared.table.reported:
        return {row: each.word for row, each in comparison.verdicts(compared, gaps).items()}
    found = significance.verdicts(gaps, dict.fromkeys(gaps, -1.0))
    return {row: _WORDS.get(each.word, each.word) for row, each in found.items()}


def _cost(row: results.Row) -> list[str]:
    """Further runs that tuning a row took, and their device hours."""
    runs = [result for each in row.tuned.values() for result in each.results.values()]
    failed = sum(len(each.failures) for each in row.tuned.values())
    cells = f"{len(runs)}" + (f" ({failed} failed)" if failed else "")
    return [cells, f"{results.device_hours(runs):.2f}"]


def notes(compared: comparison.Comparison, name: str) -> list[str]:
    """How to read the table, what tuning took, where the grid should go on, and what it lacks."""
    sweep, tuned = compared.sweep, compared.tuned
    (field, values), base = next(iter(sweep.tune.items())), sweep.rows[0]
    fixed = [result for row in sweep.rows for result in row.results.values()]
    variants = [each for row in sweep.rows for each in row.tuned.values()]
    more = [result for each in variants for result in each.results.values()]
    found = [
        f"Best of {field}, for base as for all rows: {tuning.SETS}; worst likewise. recipe: the "
        f"row's own value, on the test set too. nats: ln PPL of the development set, the lowest "
        "and the highest. same: whether the verdict is the same with each row at its best. "
        f"Tuning took {len(more)} cells and {results.device_hours(more):.2f} device hours, beside "
        f"{len(fixed)} and {results.device_hours(fixed):.2f} of the recipe."
    ]
    edges = {row: each for row, each in tuned.items() if each.is_at_edge}
    if edges:
        said = [
            f"{row} at {each.best.value} "
            + (f"(add {each.add})" if each.add is not None else "(none can follow)")
            for row, each in edges.items()
        ]
        added = {each.add for each in edges.values() if each.add is not None}
        grid = ",".join(map(str, sorted({*values, *added})))
        remedy = f": start the sweep again with --tune={field}:{grid}" if added else ""
        found.append(f"Best {name} at the edge of the grid, {', '.join(said)}{remedy}.")
    lacking = {row: each.missing for row, each in tuned.items() if each.missing}
    untuned = [row.name for row in sweep.rows if row.results and row.name not in tuned]
    if lacking:
        said = [f"{row} at {', '.join(map(str, each))}" for row, each in lacking.items()]
        found.append(
            f"Not tuned to the end: {'; '.join(said)}. A row's best is compared with that of "
            f"{base.name} only where both have been run with all values."
        )
    if untuned:
        found.append(f"Without sentences of their own, and so not tuned: {', '.join(untuned)}.")
    return found
