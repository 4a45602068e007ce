"""Compares rows of one sweep, or the same rows of several sweeps of one table.

  python -m experiments.compare runs/toy --rows=base,E
  python -m experiments.compare runs/toy runs/toy_flops [--rows=E,big] [--output=FILE.md]

Of one sweep, it prints the results of the rows and every field and parameter array in which they
differ. Of several, it prints each row's difference from base in each sweep, the budgets of the
sweeps, and the agreement of their orders of rows with the first sweep's.
"""

import itertools
import math
import pathlib
import re
from collections.abc import Collection, Sequence

import flax.linen as nn
import jax
from absl import flags

from experiments.analysis import comparison, ranks
from experiments.benchmarks import cost
from experiments.sweep import results
from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax import flags as flags_lib
from transformer_jax.data import vocabulary
from transformer_jax.drawing import tables
from transformer_jax.evaluation import measures

Shown = tuple[list[tables.Printed], list[str]]  # tables, and notes below them

_LAYER = re.compile(r"_(\d+)$")


def compare_rows(workdir: pathlib.Path, names: Sequence[str]) -> Shown:
    """Compares rows of one sweep; none of them needs to have run.

    Raises:
      UserError: the folder holds no sweep, or the sweep has no such row.
    """
    sweep = results.read(workdir)
    known = {each.name: each for row in sweep.rows for each in (row, *row.tuned.values())}
    _require_known(names, known, workdir)
    compared = comparison.compare(sweep)
    configs = [sweep.config(known[name]) for name in names]
    shapes = [parameter_shapes(config) for config in configs]
    changed = [
        [path, *(_format_shape(each.get(path)) for each in shapes)]
        for path in dict.fromkeys(itertools.chain(*shapes))
        if len({each.get(path) for each in shapes}) > 1
    ]
    lines = [
        [name, f"{cost.parameters(config):,}", *_result_cells(known[name], compared)]
        for name, config in zip(names, configs, strict=True)
    ]
    score = measures.MEASURES[compared.table.measure].name
    heads = ["row", "params", "seeds", "PPL", score, "− base"]
    differing = [
        tables.Printed(["field", *names], differing_fields(configs), "Configuration"),
        tables.Printed(["parameters", *names], _fold_layers(changed), "Parameters"),
    ]
    shown = [tables.Printed(heads, lines), *(table for table in differing if table.lines)]
    return shown, [f"{table.title}: the same." for table in differing if not table.lines]


def compare_sweeps(workdirs: Sequence[pathlib.Path], names: Sequence[str] = ()) -> Shown:
    """Compares rows of several sweeps of one table, by default all rows that any of them has run.

    Raises:
      UserError: the sweeps are of different tables or bases, or share no row.
    """
    sweeps = [comparison.compare(results.read(workdir)) for workdir in workdirs]
    first = sweeps[0]
    for other in sweeps[1:]:
        _require_same_table(first, other)
    known = dict.fromkeys(name for each in sweeps for name in each.gaps)
    _require_known(names, known, *workdirs)
    chosen = list(names or known)
    labels = [str(workdir) for workdir in workdirs]
    heads = [head for each in sweeps for head in _heads(each)]
    lines = [
        [name, *(cell for each in sweeps for cell in _scores(name, each)), _sign(name, sweeps)]
        for name in dict.fromkeys([first.sweep.rows[0].name, *chosen])
    ]
    scores = tables.Printed(["row", *heads, "sign"], lines, "Scores and differences from base")
    budgets = tables.Printed(
        ["sweep", "equal", "steps", "runs", "training FLOPs", "device hours"],
        [_budget(each, chosen) for each in sweeps],
        "Budgets, of these rows and base",
    )
    shown = [scores, budgets]
    if fields := differing_fields([each.sweep.base for each in sweeps]):
        shown.append(tables.Printed(["field", *labels], fields, "Configuration of base"))
    notes = [
        "*: the 95% interval excludes 0. “by chance?”: not in all sweeps significantly different "
        "from base, all rows and other seeds considered."
    ]
    for other in sweeps[1:]:
        notes += _agreement(first, other, chosen)
    notes += [f"{each.sweep.workdir}: {line}" for each in sweeps for line in _limits(each, chosen)]
    return shown, notes


def parameter_shapes(config: config_lib.Config) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each parameter array by its path, such as encoder_0/attention/key."""
    model = models.build(config.model, vocabulary.size(config), "cpu")
    params = jax.eval_shape(lambda: nn.unbox(models.init(model, jax.random.key(0))))
    return {
        jax.tree_util.keystr(path, simple=True, separator="/").removeprefix("params/"): leaf.shape
        for path, leaf in jax.tree.leaves_with_path(params)
    }


def differing_fields(configs: Sequence[config_lib.Config]) -> list[list[str]]:
    """Returns lines of a field's dotted name and its value in each config, where they differ."""
    sections = [config_lib.to_dict(config) for config in configs]
    lines = []
    for section, values in sections[0].items():
        for name in values:
            found = [each[section][name] for each in sections]
            if any(value != found[0] for value in found):
                lines.append([f"{section}.{name}", *map(str, found)])
    return lines


def _require_known(names: Sequence[str], known: Collection[str], *workdirs: pathlib.Path) -> None:
    for name in names:
        if name not in known:
            raise errors.UserError(
                f"{', '.join(map(str, workdirs))}: there is no row {name!r}; choose among "
                f"{', '.join(map(repr, known))}"
            )


def _require_same_table(first: comparison.Comparison, other: comparison.Comparison) -> None:
    ours, theirs = first.sweep, other.sweep
    kinds = [(each.table, each.rows[0].name) for each in (ours, theirs)]
    if kinds[0] != kinds[1]:
        (table, base), (other_table, other_base) = kinds
        raise errors.UserError(
            f"{ours.workdir} holds {table} with base {base!r}, {theirs.workdir} {other_table} with "
            f"base {other_base!r}: name sweeps of one table and base"
        )
    if not _shared(first, other, [*first.gaps]):
        raise errors.UserError(
            f"{ours.workdir} and {theirs.workdir} share no row that both compare with base: run "
            "the same rows in both"
        )


def _shared(
    first: comparison.Comparison, other: comparison.Comparison, names: Sequence[str]
) -> dict[str, str]:
    """Returns the rows that both compare with the same reference row, and that row's name."""
    references = [
        {row.name: results.reference(row, each.sweep).name for row in each.sweep.rows}
        for each in (first, other)
    ]
    return {
        name: references[0][name]
        for name in names
        if name in first.gaps and name in other.gaps
        if references[0][name] == references[1][name]
    }


def _result_cells(row: results.Row, compared: comparison.Comparison) -> list[str]:
    scores = comparison.scores(row, compared.table.measure)
    ppl = [result["ppl"] for result in row.results.values()]
    return [
        str(len(row.results)),
        tables.mean_and_deviation(ppl, 3),
        tables.mean_and_deviation(scores, 2),
        _difference(row.name, compared),
    ]


def _heads(compared: comparison.Comparison) -> list[str]:
    score = measures.MEASURES[compared.table.measure].name
    return [f"{score}: {compared.sweep.workdir}", f"− base: {compared.sweep.workdir}"]


def _scores(name: str, compared: comparison.Comparison) -> list[str]:
    """Returns the cells of a row in one sweep, under `_heads`; empty if it has not run."""
    row = next((each for each in compared.sweep.rows if each.name == name), None)
    scores = comparison.scores(row, compared.table.measure) if row else []
    return [tables.mean_and_deviation(scores, 2), _difference(name, compared)]


def _difference(name: str, compared: comparison.Comparison) -> str:
    return compared.gaps[name].written if name in compared.gaps else ""


def _sign(name: str, sweeps: Sequence[comparison.Comparison]) -> str:
    """Returns whether a row's difference has one sign in all sweeps that have it."""
    having = [each for each in sweeps if name in each.gaps]
    if len(having) < 2:
        return ""
    signs = {math.copysign(1, each.gaps[name].mean) for each in having if each.gaps[name].mean}
    word = "same" if len(signs) < 2 else "opposite"
    is_sure = all(comparison.is_sure_over_seeds(name, each) for each in having)
    return word if is_sure else f"{word}, by chance?"


def _budget(compared: comparison.Comparison, names: Sequence[str]) -> list[str]:
    """Returns a line on what the runs of base and some rows cost."""
    sweep = compared.sweep
    rows = [row for row in sweep.rows if row.name in names or row is sweep.rows[0]]
    runs = [result for row in rows for result in row.results.values()]
    flops = sum(cost.training_flops(sweep.config(row)) * len(row.results) for row in rows)
    steps = sorted({result["steps"] for result in runs if "steps" in result})
    return [
        str(sweep.workdir),
        sweep.match or "steps",
        _format_range(steps),
        str(len(runs)),
        f"{flops:.2e}",
        f"{results.device_hours(runs):.2f}",
    ]


def _agreement(
    first: comparison.Comparison, other: comparison.Comparison, names: Sequence[str]
) -> list[str]:
    """Returns a note on how far two sweeps order the rows that they share alike."""
    references = _shared(first, other, names)
    if not references:
        return []
    rows = list(dict.fromkeys([*references.values(), *references]))
    found = ranks.agreement(
        [{name: each.counts[name] for name in rows} for each in (first, other)],
        references,
        (first.table.measure, other.table.measure),
        (first.floor, other.floor),
    )
    return [
        f"{other.sweep.workdir} against {first.sweep.workdir}: same sign in "
        f"{found.signs.written('.0%')} of {len(references)} rows; of all {found.num_pairs} pairs "
        f"of rows {found.pairs.written('.0%')} in the same order (chance: 50%); Kendall's tau-b "
        f"{found.tau.written('.2f')}. Intervals are a bootstrap's over sentences, and over seeds "
        "where their variance is known."
    ]


def _limits(compared: comparison.Comparison, names: Sequence[str]) -> list[str]:
    """Returns notes on rows whose interval leaves out seeds, and on runs that are missing."""
    single = [
        name
        for name in names
        if name in compared.gaps and len(compared.counts[name]) < 2 and not compared.floor
    ]
    notes = results.shortfalls(compared.sweep)
    if single:
        notes.append(f"intervals over sentences alone, from one seed: {', '.join(single)}.")
    return notes


def _format_range(numbers: Sequence[int]) -> str:
    """Returns the least and the greatest of sorted numbers, such as 4,000–12,000."""
    if not numbers:
        return ""
    least, greatest = numbers[0], numbers[-1]
    return f"{least:,}" if least == greatest else f"{least:,}–{greatest:,}"


def _format_shape(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "—"
    return " × ".join(map(str, shape)) or "scalar"


def _fold_layers(lines: Sequence[list[str]]) -> list[list[str]]:
    """Joins the lines of layers that differ alike: encoder_0…5/attention/key/kernel."""
    layers: dict[tuple[str, ...], list[int]] = {}
    for path, *shapes in lines:
        top, slash, rest = path.partition("/")
        number = _LAYER.search(top)
        key = (_LAYER.sub("", top), slash + rest, *shapes)
        layers.setdefault(key, []).extend([int(number[1])] if number else [])
    return [
        [f"{top}{_format_layers(numbers)}{rest}", *shapes]
        for (top, rest, *shapes), numbers in layers.items()
    ]


def _format_layers(numbers: list[int]) -> str:
    """Returns _0…5 for consecutive numbers, _1,4 for others, and nothing for none."""
    if not numbers:
        return ""
    if len(numbers) > 2 and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        return f"_{numbers[0]}…{numbers[-1]}"
    return "_" + ",".join(map(str, numbers))


def main(*workdirs: str) -> None:
    """Prints the comparison, and writes it where --output says."""
    jax.config.update("jax_platforms", "cpu")  # only shapes are computed
    folders = [files.local_path(workdir) for workdir in workdirs]
    if len(folders) == 1 and len(_ROWS.value) < 2:
        raise errors.UserError(
            "one sweep needs --rows with two rows or more, such as --rows=base,E; or name a "
            "second sweep"
        )
    if len(folders) == 1:
        shown, notes = compare_rows(folders[0], _ROWS.value)
    else:
        shown, notes = compare_sweeps(folders, _ROWS.value)
    tables.show(shown, notes)
    if _OUTPUT.value:
        files.write(files.local_path(_OUTPUT.value), tables.markdown(shown, notes).encode())


if __name__ == "__main__":
    _ROWS = flags.DEFINE_list("rows", [], "Rows to compare, such as base,E.")
    _OUTPUT = flags.DEFINE_string("output", "", "Markdown file to write it to as well.")
    flags_lib.run(main, "DIR", "[DIR] ...")
