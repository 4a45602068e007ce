"""Two sweeps side by side, row by row: did anything change, and is the difference real?

  python -m experiments.compare runs/before runs/after [--output=changes.md]

A difference is the second sweep's BLEU, or F1, less the first's; its interval is over sentences and
seeds.
"""

import pathlib
import statistics
from collections.abc import Mapping, Sequence

from absl import flags

from experiments import diff
from experiments.analysis import comparison, noise_floor, significance
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.drawing import tables
from transformer_jax.evaluation import measures

LISTED = 8  # differences of configuration

# By row: counts of its runs, and how their scores vary over seeds.
_Side = tuple[Mapping[str, significance.Runs], Mapping[str, noise_floor.Spread | None]]


def compare(first: pathlib.Path, second: pathlib.Path) -> tuple[tables.Printed, list[str]]:
    """The table of the rows that either sweep has run, and what has to be known to read it.

    Raises:
      UserError: they share no row that both have run, or they were not measured alike.
    """
    sweeps = [results.read(folder) for folder in (first, second)]
    by_name = [{row.name: row for row in sweep.rows if row.results} for sweep in sweeps]
    shared = [name for name in by_name[0] if name in by_name[1]]
    if not shared:
        raise errors.UserError(f"{first} and {second} have no row that both have run")
    comparison.require_alike([row for rows in by_name for row in rows.values()])
    measure, theirs = (table_lib.of_corpus(each.table, each.base).measure for each in sweeps)
    score, other = (measures.MEASURES[each].name for each in (measure, theirs))
    if measure != theirs:
        raise errors.UserError(
            f"rows of {first} are compared by {score}, those of {second} by {other}: name two "
            "sweeps of one kind"
        )
    sides = [_side(sweep, rows, measure) for sweep, rows in zip(sweeps, by_name, strict=True)]
    lines = []
    for name in dict.fromkeys([*by_name[0], *by_name[1]]):
        rest = _difference(name, by_name, sides, measure) if name in shared else [""] * 3
        lines.append([name, *_scores(name, by_name, measure), *rest])
    heads = ["row", f"{score}: {first}", f"{score}: {second}", "difference", "p", "params"]
    return tables.Printed(heads, lines), [*_notes(sweeps), *_lacking(shared, sides)]


def _side(sweep: results.Sweep, rows: Mapping[str, results.Row], measure: str) -> _Side:
    """A sweep's counts, and of each row how its scores vary over seeds, where that is known."""
    counts = {name: results.counts(sweep, row, measure) for name, row in rows.items()}
    floor = comparison.floor_of(sweep, counts, measure)
    spreads: dict[str, noise_floor.Spread | None] = {}
    for name, runs in counts.items():
        scores = [measures.MEASURES[measure].from_counts(run.sum(0)) for run in runs.values()]
        spreads[name] = floor.spread(name) if floor else noise_floor.own_spread(scores)
    return counts, spreads


def _lacking(names: Sequence[str], sides: Sequence[_Side]) -> list[str]:
    """Rows whose difference, or what other seeds do to it, is not known."""
    uncounted = [name for name in names if not all(counts[name] for counts, _ in sides)]
    lacks = {
        "Without a difference, since they write no sentences": uncounted,
        "Over sentences alone, one side having one seed and no noise floor": [
            name
            for name in names
            if name not in uncounted and not all(spreads[name] for _, spreads in sides)
        ],
    }
    return [f"{why}: {', '.join(rows)}." for why, rows in lacks.items() if rows]


def _scores(name: str, by_name: Sequence[dict[str, results.Row]], measure: str) -> list[str]:
    """The mean in each sweep, with the number of seeds."""
    cells = []
    for rows in by_name:
        found = comparison.scores(rows[name], measure) if name in rows else []
        seeds = f" ({len(found)} seed{'s' if len(found) > 1 else ''})"
        cells.append(f"{statistics.mean(found):.2f}{seeds}" if found else "not run")
    return cells


def _difference(
    name: str, by_name: Sequence[dict[str, results.Row]], sides: Sequence[_Side], measure: str
) -> list[str]:
    """The second less the first, marked if its interval excludes 0; p; and parameters."""
    theirs, ours = (counts[name] for counts, _ in sides)
    earlier, later = (spreads[name] for _, spreads in sides)
    before, after = (rows[name].of("params")[0] for rows in by_name)
    mark = results.unequal(after, before)
    params = f"{after / 1e6:.3g}" + (f" ({mark})" if mark else "")
    if not (ours and theirs):  # they write no sentences
        return ["", "", params]
    of_reference = measures.MEASURES[measure].of_reference
    if len({run[:, of_reference].tobytes() for run in [*ours.values(), *theirs.values()]}) > 1:
        raise errors.UserError(
            f"row {name!r}: its {measures.MEASURES[measure].file} are of different sentences, or "
            "in another order: delete the result.json of the wrong ones and start that sweep "
            "again, which evaluates them anew"
        )
    spreads = (later, earlier) if earlier and later else None
    found = significance.difference(ours, theirs, measure, spreads)
    return [found.written, f"{found.p:.3f}", params]


def _notes(sweeps: Sequence[results.Sweep]) -> list[str]:
    first, second = sweeps
    fields = diff.fields(first.base, second.base)
    others = {row.name: row for row in second.rows}
    fields += [
        (f"row {row.name}", dict(row.overrides), dict(others[row.name].overrides))
        for row in first.rows
        if row.name in others
    ]
    changed = [f"{name}: {before} → {after}" for name, before, after in fields if before != after]
    more = f"; and {len(changed) - LISTED} more" if len(changed) > LISTED else ""
    return [
        "Configurations: " + ("; ".join(changed[:LISTED]) + more if changed else "the same."),
        "±: half of the difference's 95% interval, over sentences and, where each side has "
        "several or a noise floor, seeds; *: it excludes 0. p: approximate randomisation, over "
        "sentences and as many seeds as both have. params: ×10⁶, of the second; a percentage: so "
        "many more or fewer than in the first.",
        *(f"{sweep.workdir}: {line}" for sweep in sweeps for line in results.shortfalls(sweep)),
    ]


def main(first: str, second: str) -> None:
    """Prints the comparison of two folders, and writes it where --output says."""
    table, notes = compare(files.local_path(first), files.local_path(second))
    tables.show([table], notes)
    if _OUTPUT.value:
        files.write(files.local_path(_OUTPUT.value), tables.markdown([table], notes).encode())


if __name__ == "__main__":
    _OUTPUT = flags.DEFINE_string("output", "", "Markdown file to write it to as well.")
    flags_lib.run(main, "SWEEP1", "SWEEP2")
