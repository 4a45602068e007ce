"""Compares rows of one sweep with each other, or the same rows in several sweeps of one table.

  python -m experiments.compare runs/toy --rows=base,E
  python -m experiments.compare runs/toy runs/toy_flops [--rows=E,big] [--output=FILE.md]

For one sweep, the command prints the results of the rows, the fields in which their configurations
differ, and the parameter arrays in which their models differ. For several sweeps, it prints each
row's difference from base in each sweep, the cost of each sweep, and how well the order of the rows
in each sweep agrees with the order in the first sweep.
"""

import itertools
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence

import flax.linen as nn
import jax
import numpy as np
import pandas as pd
from absl import flags

from experiments.results import comparison, documents, frames, sensitivity, tables
from experiments.stats import differences, ranks
from experiments.sweep import cost
from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax import flags as flags_lib
from transformer_jax.data import vocabulary

Shown = tuple[list[tables.Table], list[str]]  # tables, and notes to print below the tables

_LAYER = re.compile(r"_(\d+)$")


def compare_rows(compared: comparison.Comparison, names: Sequence[str]) -> Shown:
    """Compares rows of one sweep: their results, configurations and parameter arrays.

    Args:
      compared: the sweep.
      names: the rows, which need not have run.

    Returns:
      Tables, and notes to print below the tables.

    Raises:
      UserError: the sweep has no such row.
    """
    sweep = compared.sweep
    description = sweep.description
    known = [
        name for row in description.rows for name in (row, *description.variants(row).values())
    ]
    _require_known(names, dict.fromkeys(known), sweep.folder)
    configs = [description.config(name) for name in names]
    lines = []
    for name, config in zip(names, configs, strict=True):
        score = compared.table.measure
        line = {
            "row": name,
            "params": cost.parameters(config),
            "seeds": len(sweep.of(name)),
            **comparison.mean_and_deviation("ppl", sweep.values(name, "ppl")),
            **comparison.mean_and_deviation("score", sweep.values(name, score)),
        }
        is_row = name in compared.rows.index  # False for a variant of a row for --tune
        for column in ("difference", "half_width"):
            line[column] = compared.rows.loc[name, column] if is_row else np.nan
        lines.append(line)
    columns = [
        tables.Column("row"),
        tables.Column("params", form=",d"),
        tables.Column("seeds", form="d"),
        tables.Column("PPL", "ppl", ".3f", "ppl_sd"),
        tables.Column(compared.table.score, "score", ".2f", "score_sd"),
        tables.Column("− base", "difference", "+.2f", "half_width"),
    ]
    shown = [tables.Table(pd.DataFrame(lines), columns)]
    notes = []
    fields = differing_fields(configs)
    shapes = differing_shapes(configs)
    for title, first, differing in (
        ("Configuration", "field", fields),
        ("Parameters", "array", shapes),
    ):
        if differing:
            shown.append(_texts(first, names, differing, title))
        else:
            notes.append(f"{title}: the same.")
    return shown, notes


def compare_sweeps(workdirs: Sequence[pathlib.Path], names: Sequence[str] = ()) -> Shown:
    """Compares the same rows in several sweeps of one table.

    Args:
      workdirs: the folders of the sweeps.
      names: the rows; empty for all rows that have a result in any of the sweeps.

    Returns:
      Tables, and notes to print below the tables.

    Raises:
      UserError: the sweeps are of different tables or bases, or share no row.
    """
    sweeps = [comparison.compare(frames.load(workdir)) for workdir in workdirs]
    first = sweeps[0]
    for other in sweeps[1:]:
        _require_same_table(first, other)
    known = dict.fromkeys(name for each in sweeps for name in _gaps(each))
    _require_known(names, known, *workdirs)
    chosen = list(names or known)
    shown = [
        _scores(sweeps, chosen),
        _budgets(sweeps, chosen),
    ]
    bases = [each.sweep.description.base for each in sweeps]
    if fields := differing_fields(bases):
        shown.append(_texts("field", list(map(str, workdirs)), fields, "Configuration of base"))
    notes = [
        "*: the 95% interval excludes 0. “by chance?”: not significant in all sweeps, all rows and "
        "other seeds considered. All numbers are of the development sets."
    ]
    for other in sweeps[1:]:
        notes += _agreement(first, other, chosen)
    for each in sweeps:
        notes += [f"{each.sweep.folder}: {line}" for line in _limits(each, chosen)]
    return shown, notes


def parameter_shapes(config: config_lib.Config) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the model's parameters by path, such as encoder_0/attention/key."""
    model = models.build(config.model, vocabulary.size(config), "cpu")
    params = jax.eval_shape(lambda: nn.unbox(models.init(model, jax.random.key(0))))
    return {
        jax.tree_util.keystr(path, simple=True, separator="/").removeprefix("params/"): leaf.shape
        for path, leaf in jax.tree.leaves_with_path(params)
    }


def differing_shapes(configs: Sequence[config_lib.Config]) -> dict[str, list[str]]:
    """Returns the parameter arrays whose shapes differ between configs.

    Returns:
      For each path of an array, a text with its shape in each config. Layers with equal shapes are
      joined, as in encoder_0…5/attention/key/kernel.
    """
    shapes = [parameter_shapes(config) for config in configs]
    differing = {}
    for path in dict.fromkeys(itertools.chain(*shapes)):
        of_each = [each.get(path) for each in shapes]
        if any(shape != of_each[0] for shape in of_each):
            differing[path] = list(map(_format_shape, of_each))
    return _fold_layers(differing)


def differing_fields(configs: Sequence[config_lib.Config]) -> dict[str, list[str]]:
    """Returns the fields that differ between configs.

    Returns:
      For each field, such as model.d_ff, a text with its value in each config.
    """
    sections = [config_lib.to_dict(config) for config in configs]
    differing = {}
    for section, values in sections[0].items():
        for name in values:
            of_each = [each[section][name] for each in sections]
            if any(value != of_each[0] for value in of_each):
                differing[f"{section}.{name}"] = list(map(str, of_each))
    return differing


def _texts(
    first: str, names: Sequence[str], lines: Mapping[str, Sequence[str]], title: str
) -> tables.Table:
    """Returns a table with a line for each entry of `lines` and a column for each of `names`."""
    columns = [tables.Column(first), *(tables.Column(n, str(i)) for i, n in enumerate(names))]
    rows = [
        {first: name, **{str(i): text for i, text in enumerate(texts)}}
        for name, texts in lines.items()
    ]
    return tables.Table(pd.DataFrame(rows), columns, title)


def _require_known(names: Sequence[str], known: Collection[str], *workdirs: pathlib.Path) -> None:
    for name in names:
        if name not in known:
            raise errors.UserError(
                f"{', '.join(map(str, workdirs))}: there is no row {name!r}; choose among "
                f"{', '.join(map(repr, known))}"
            )


def _require_same_table(first: comparison.Comparison, other: comparison.Comparison) -> None:
    ours, theirs = first.sweep, other.sweep
    table, base = ours.description.table, ours.description.base_row
    other_table, other_base = theirs.description.table, theirs.description.base_row
    if (table, base) != (other_table, other_base):
        raise errors.UserError(
            f"{ours.folder} holds {table} with base {base!r}, {theirs.folder} {other_table} with "
            f"base {other_base!r}: name sweeps of one table and base"
        )
    if not _shared(first, other, [*_gaps(first)]):
        raise errors.UserError(
            f"{ours.folder} and {theirs.folder} share no row that both compare with base: run "
            "the same rows in both"
        )


def _gaps(compared: comparison.Comparison) -> Mapping[str, differences.Difference]:
    """Returns the rows' differences from base on the development set."""
    return compared.dev.score.gaps if compared.dev.score else {}


def _shared(
    first: comparison.Comparison, other: comparison.Comparison, names: Sequence[str]
) -> dict[str, str]:
    """Returns the rows that have a difference, from the same reference row, in both sweeps.

    Returns:
      The reference row of each of these rows.
    """
    ours, theirs = first.rows["reference"], other.rows["reference"]
    shared: dict[str, str] = {}
    for name in names:
        in_both = name in _gaps(first) and name in _gaps(other)
        if in_both and ours[name] == theirs[name]:
            shared[name] = ours[name]
    return shared


def _scores(sweeps: Sequence[comparison.Comparison], names: Sequence[str]) -> tables.Table:
    """Returns a table of each row's score and difference from base, with columns for each sweep."""
    base = sweeps[0].sweep.description.base_row
    rows = list(dict.fromkeys([base, *names]))
    frame = pd.DataFrame({"row": rows, "sign": [_sign(name, sweeps) for name in rows]})
    columns = [tables.Column("row")]
    for number, compared in enumerate(sweeps):
        shown = ["score", "score_sd", "difference", "half_width"]
        scores = compared.rows[shown].reindex(rows).reset_index(drop=True)
        excludes_0 = scores["difference"].abs() > scores["half_width"]
        scores = scores.assign(excludes_0=np.where(excludes_0, "*", ""))
        frame = frame.join(scores.add_suffix(f" {number}"))
        group = str(compared.sweep.folder)
        columns += [
            tables.Column(
                compared.table.score, f"score {number}", ".2f", f"score_sd {number}", group
            ),
            tables.Column("− base", f"difference {number}", "+.2f", f"half_width {number}", group),
            tables.Column("*", f"excludes_0 {number}", group=group),
        ]
    title = "Scores and differences from base"
    return tables.Table(frame, [*columns, tables.Column("sign")], title)


def _sign(name: str, sweeps: Sequence[comparison.Comparison]) -> str:
    """Describes whether a row's difference from base has the same sign in all sweeps.

    Returns:
      "same" or "opposite", followed by ", by chance?" unless the difference is significant in every
      sweep; "" if fewer than two sweeps have the row.
    """
    having = [each for each in sweeps if name in _gaps(each)]
    if len(having) < 2:
        return ""
    means = [_gaps(each)[name].mean for each in having]
    word = "opposite" if min(means) < 0 < max(means) else "same"
    is_significant = all(each.rows.loc[name, "significant"] for each in having)
    return word if is_significant else f"{word}, by chance?"


def _budgets(sweeps: Sequence[comparison.Comparison], names: Sequence[str]) -> tables.Table:
    """Returns a table of the cost of base and the named rows in each sweep."""
    lines = []
    for each in sweeps:
        description = each.sweep.description
        chosen = [row for row in description.rows if row in (description.base_row, *names)]
        runs = each.sweep.runs[each.sweep.runs["row"].isin(chosen)]
        flops = sum(
            cost.training_flops(description.config(row)) * len(each.sweep.of(row)) for row in chosen
        )
        steps = runs["steps"].dropna().astype(int) if "steps" in runs else pd.Series(dtype=int)
        lines.append({
            "sweep": str(each.sweep.folder),
            "equal": description.match or "steps",
            "steps": _format_range(sorted(steps)),
            "runs": len(runs),
            "flops": flops,
            "hours": sensitivity.device_hours(runs),
        })  # fmt: skip
    columns = [
        tables.Column("sweep"),
        tables.Column("equal"),
        tables.Column("steps"),
        tables.Column("runs", form="d"),
        tables.Column("training FLOPs", "flops", ".2e"),
        tables.Column("device hours", "hours", ".2f"),
    ]
    return tables.Table(pd.DataFrame(lines), columns, "Budgets of these rows and base")


def _agreement(
    first: comparison.Comparison, other: comparison.Comparison, names: Sequence[str]
) -> list[str]:
    """Returns a note on how well two sweeps agree in the order of the rows that both have."""
    references = _shared(first, other, names)
    if not references:
        return []
    sides = [each.dev.score for each in (first, other)]
    agreement = ranks.agreement([side.means for side in sides if side], references)
    return [
        f"{other.sweep.folder} against {first.sweep.folder}: same sign in "
        f"{_interval(agreement.signs, '.0%')} of {len(references)} rows; of all "
        f"{agreement.num_pairs} pairs of rows {_interval(agreement.pairs, '.0%')} in the same "
        f"order (chance: 50%); Kendall's tau-b {_interval(agreement.tau, '.2f')}. Intervals are "
        "for other sentences, and for other seeds where their variance is known."
    ]


def _interval(estimate: ranks.Estimate, form: str) -> str:
    value, low, high = (
        tables.number(each, form) for each in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} (95%: {low} to {high})"


def _limits(compared: comparison.Comparison, names: Sequence[str]) -> list[str]:
    """Returns notes on rows with a single seed, and on failed or missing runs."""
    single = [
        name for name in names if name in _gaps(compared) if not _gaps(compared)[name].over_seeds
    ]
    notes = documents.shortfalls(compared.sweep)
    if single:
        notes.append(f"intervals over sentences alone, from one seed: {', '.join(single)}.")
    return notes


def _format_range(numbers: Sequence[int]) -> str:
    """Returns the first and the last of sorted numbers as a text, such as "4,000–12,000"."""
    if not numbers:
        return ""
    least, greatest = numbers[0], numbers[-1]
    return f"{least:,}" if least == greatest else f"{least:,}–{greatest:,}"


def _format_shape(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "—"
    return " × ".join(map(str, shape)) or "scalar"


def _fold_layers(shapes: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Joins the entries of layers with equal shapes, as in encoder_0…5/attention/key/kernel."""
    layers: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
    for path, texts in shapes.items():
        top, slash, rest = path.partition("/")
        number = _LAYER.search(top)
        key = (_LAYER.sub("", top), slash + rest, tuple(texts))
        numbers = layers.setdefault(key, [])
        if number:
            numbers.append(int(number[1]))
    return {
        f"{top}{_format_layers(numbers)}{rest}": list(texts)
        for (top, rest, texts), numbers in layers.items()
    }


def _format_layers(numbers: list[int]) -> str:
    """Returns _0…5 for consecutive numbers, _1,4 for others, and "" for no numbers."""
    if not numbers:
        return ""
    if len(numbers) > 2 and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        return f"_{numbers[0]}…{numbers[-1]}"
    return "_" + ",".join(map(str, numbers))


def main(*workdirs: str) -> None:
    """Prints the comparison, and writes it to the file of --output if that flag is set."""
    jax.config.update("jax_platforms", "cpu")  # only shapes are computed
    folders = [files.local_path(workdir) for workdir in workdirs]
    if len(folders) == 1 and len(_ROWS.value) < 2:
        raise errors.UserError(
            "one sweep needs --rows with two rows or more, such as --rows=base,E; or name a "
            "second sweep"
        )
    if len(folders) == 1:
        shown, notes = compare_rows(comparison.compare(frames.load(folders[0])), _ROWS.value)
    else:
        shown, notes = compare_sweeps(folders, _ROWS.value)
    tables.show(shown, notes)
    if _OUTPUT.value:
        files.write(files.local_path(_OUTPUT.value), tables.markdown(shown, notes).encode())


if __name__ == "__main__":
    _ROWS = flags.DEFINE_list("rows", [], "Rows to compare, such as base,E.")
    _OUTPUT = flags.DEFINE_string("output", "", "Markdown file to write it to as well.")
    flags_lib.run(main, "DIR", "[DIR] ...")
