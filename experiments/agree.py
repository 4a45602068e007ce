"""Does a small sweep say what a larger one says?

  python -m experiments.agree runs/small runs/base [--output=agreement.md]

Both are of one table. Prints each row's difference from base in both, which rows have turned, and
over all rows decision accuracy and Kendall's tau-b with their intervals.
"""

import pathlib

from absl import flags

from experiments.analysis import comparison, ranks
from experiments.benchmarks import cost
from experiments.sweep import results
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.drawing import tables

SAME, TURNED, EVEN = "same", "turned", "level in one"
PERHAPS = "perhaps by chance"


def agree(first: pathlib.Path, second: pathlib.Path) -> tuple[tables.Printed, list[str]]:
    """The table of the rows that both sweeps compare with base, and what they come to.

    Raises:
      UserError: they are of two tables, or share no row that both compare.
    """
    ours, theirs = (comparison.compare(results.read(folder)) for folder in (first, second))
    if ours.sweep.table != theirs.sweep.table:
        raise errors.UserError(
            f"{first} holds {ours.sweep.table} and {second} {theirs.sweep.table}: give two sweeps "
            "of one table"
        )
    base, other = ours.sweep.rows[0].name, theirs.sweep.rows[0].name
    if base != other:
        raise errors.UserError(
            f"{first} compares with {base!r} and {second} with {other!r}: give two sweeps of one "
            "base"
        )
    names = [
        name
        for name in ours.gaps
        if name in theirs.gaps and _reference(name, ours) == _reference(name, theirs)
    ]
    if not names:
        raise errors.UserError(
            f"{first} and {second} share no row that both compare with base: run the same rows in "
            "both"
        )
    lines = [[name, *_cells(name, ours, theirs)] for name in names]
    heads = ["row", *(f"− base: {folder}" for folder in (first, second)), "sign"]
    return tables.Printed(heads, lines), _notes(ours, theirs, names)


def _cells(name: str, ours: comparison.Comparison, theirs: comparison.Comparison) -> list[str]:
    """Both differences, marked where the interval excludes 0, and whether the sign stays."""
    first, second = ours.gaps[name], theirs.gaps[name]
    product = first.mean * second.mean
    said = TURNED if product < 0 else SAME if product > 0 or first.mean == second.mean else EVEN
    perhaps = "" if _is_sure(name, ours, theirs) else f", {PERHAPS}"
    return [first.written, second.written, said + perhaps]


def _reference(name: str, side: comparison.Comparison) -> str:
    """The row that a row's difference is taken from."""
    row = next(row for row in side.sweep.rows if row.name == name)
    return results.reference(row, side.sweep).name


def _is_sure(name: str, *sides: comparison.Comparison) -> bool:
    """Whether both sweeps say surely that a row differs from base, also for other seeds."""
    return all(comparison.is_sure_over_seeds(name, side) for side in sides)


def _notes(
    ours: comparison.Comparison, theirs: comparison.Comparison, names: list[str]
) -> list[str]:
    references = {name: _reference(name, ours) for name in names}
    shared = list(dict.fromkeys([*references.values(), *names]))
    found = ranks.agreement(
        [{name: side.counts[name] for name in shared} for side in (ours, theirs)],
        references,
        (ours.table.measure, theirs.table.measure),
        (ours.floor, theirs.floor),
    )
    turned = [name for name in names if ours.gaps[name].mean * theirs.gaps[name].mean < 0]
    sure = [name for name in turned if _is_sure(name, ours, theirs)]
    many = f"{len(names)} row{'s' if len(names) > 1 else ''}"
    return [
        f"Decision accuracy over {many} against base: {found.signs.written('.0%')}; over all "
        f"{found.num_pairs} pairs of rows: {found.pairs.written('.0%')}; chance is 50%.",
        f"Kendall's tau-b between both orders: {found.tau.written('.2f')}.",
        f"Turned: {', '.join(turned) or 'none'}; surely in both: {', '.join(sure) or 'none'}.",
        f"Training of these rows took {_flops(ours, shared):.2e} FLOPs in the first and "
        f"{_flops(theirs, shared):.2e} in the second.",
        f"*: the 95% interval excludes 0. “{PERHAPS}”: not in both sweeps surely different from "
        "base, all rows together and for other seeds too. Intervals of accuracy and tau are a "
        "bootstrap's over sentences, and over seeds where their deviation is known; they lean "
        "towards no agreement.",
        *(
            f"{side.sweep.workdir}: {line}"
            for side, other in ((ours, theirs), (theirs, ours))
            for line in _lacking(side, other, shared)
        ),
    ]


def _lacking(
    side: comparison.Comparison, other: comparison.Comparison, names: list[str]
) -> list[str]:
    """Rows whose interval does not know what another seed would do, and rows left out."""
    elsewhere = {row.name for row in other.sweep.rows if row.results}
    lacks = {
        "one seed and no noise floor": [
            name for name in names if len(side.counts[name]) < 2 and not side.floor
        ],
        "left out, since the other has not run it": [
            row.name for row in side.sweep.rows if row.results and row.name not in elsewhere
        ],
        "left out, since the other compares them with another row": [
            name
            for name in side.gaps
            if name in other.gaps and _reference(name, side) != _reference(name, other)
        ],
        "left out, since they write no sentences": [
            row.name for row in side.sweep.rows if row.results and not side.counts[row.name]
        ],
    }
    return [f"{why}: {', '.join(rows)}." for why, rows in lacks.items() if rows]


def _flops(side: comparison.Comparison, names: list[str]) -> float:
    rows = [row for row in side.sweep.rows if row.name in names]
    return sum(cost.training_flops(side.sweep.config(row)) * len(row.results) for row in rows)


def main(first: str, second: str) -> None:
    """Prints what two sweeps agree on, and writes it where --output says."""
    table, notes = agree(files.local_path(first), files.local_path(second))
    tables.show([table], notes)
    if _OUTPUT.value:
        files.write(files.local_path(_OUTPUT.value), tables.markdown([table], notes).encode())


if __name__ == "__main__":
    _OUTPUT = flags.DEFINE_string("output", "", "Markdown file to write it to as well.")
    flags_lib.run(main, "SMALL", "LARGE")
