"""The section of a report on --tune: the best and the worst value of the field for each row."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from experiments.results import comparison, documents, tables
from experiments.stats import differences, scores, verdicts

CHOICE = "chosen on the development set, scored on the test set"


def section(compared: comparison.Comparison) -> documents.Section:
    """Returns a section with a table of the tuned rows, and notes on the cost and the grid.

    The section is empty without --tune.
    """
    tuned, description = compared.tuned, compared.sweep.description
    if not tuned:
        return documents.Section([])
    means = _test_means(compared)
    recipe = {row: row for row, tuned_row in tuned.items() if tuned_row.tried[0].name == row}
    best = best_names(compared)
    at_recipe = _judge(compared, recipe, means)
    at_best = _judge(compared, best, means)
    lines = []
    for row, tuned_row in tuned.items():
        further = [name for name in description.variants(row).values() if name != row]
        runs = compared.sweep.runs[compared.sweep.runs["row"].isin(further)]
        losses = [tried.nats for tried in tuned_row.tried]
        lines.append({
            "row": row,
            "best_value": f"{tuned_row.best.value}{' (edge)' if tuned_row.is_at_edge else ''}",
            "best_score": tuned_row.best.score,
            "worst_value": tuned_row.worst.value,
            "worst_score": tuned_row.worst.score,
            "least_nats": min(losses),
            "most_nats": max(losses),
            **{f"recipe_{name}": value for name, value in at_recipe[row].items()},
            **{f"best_{name}": value for name, value in at_best[row].items()},
            "same": _same_verdict(at_recipe[row]["verdict"], at_best[row]["verdict"]),
            "runs": len(runs),
            "failed": int(compared.sweep.failures["row"].isin(further).sum()),
            "hours": device_hours(runs),
        })  # fmt: skip
    score, base = compared.table.score, description.base_row
    columns = [
        tables.Column("row"),
        tables.Column("value", "best_value", group="best"),
        tables.Column(score, "best_score", ".2f", group="best"),
        tables.Column("value", "worst_value", group="worst"),
        tables.Column(score, "worst_score", ".2f", group="worst"),
        tables.Column("least", "least_nats", ".3f", group="nats"),
        tables.Column("most", "most_nats", ".3f", group="nats"),
        tables.Column(f"− {base}", "recipe_difference", "+.2f", "recipe_half_width", "recipe"),
        tables.Column("verdict", "recipe_verdict", group="recipe"),
        tables.Column(f"− {base}", "best_difference", "+.2f", "best_half_width", "at best"),
        tables.Column("verdict", "best_verdict", group="at best"),
        tables.Column("same verdict", "same"),
        tables.Column("further runs", "runs", "d"),
        tables.Column("failed", form="d"),
        tables.Column("device hours", "hours", ".2f"),
    ]
    title = f"Sensitivity to {next(iter(description.tune))}: {CHOICE}"
    return documents.Section([tables.Table(pd.DataFrame(lines), columns, title)], _notes(compared))


def _same_verdict(first: str | None, second: str | None) -> str | None:
    if first is None or second is None:
        return None
    return "yes" if first == second else "no"


def device_hours(runs: pd.DataFrame) -> float:
    """Returns the device hours of runs: hours times devices, with 1 device if not recorded."""
    devices = runs["devices"].fillna(1) if "devices" in runs else 1
    return float((runs["wall_seconds"] * devices).sum() / 3600) if len(runs) else 0.0


def _test_means(compared: comparison.Comparison) -> differences.Means:
    """Returns the means on the test set of each variant of a row for --tune."""
    measure = compared.table.measure
    names = [tried.name for each in compared.tuned.values() for tried in each.tried]
    runs = {
        name: scores.from_counts(compared.sweep.counts(name, measure, "test"), measure)
        for name in names
    }
    failed = [name for name in names if name in compared.failed]
    return differences.Means(runs, compared.sweep.description.base_row, failed)


def _is_complete(compared: comparison.Comparison, row: str) -> bool:
    """Returns True if a row and its reference row have results for all values of --tune."""
    pair = (row, comparison.reference(compared.sweep.description, row))
    tuned = [compared.tuned.get(each) for each in pair]
    return all(each is not None and not each.missing for each in tuned)


def _judge(
    compared: comparison.Comparison, chosen: Mapping[str, str], means: differences.Means
) -> dict[str, dict[str, Any]]:
    """Compares one variant of each row with the chosen variant of the reference row.

    Args:
      compared: the rows.
      chosen: the variant of each row. A row without one gets NaN and no verdict.
      means: the means of the variants on the test set.

    Returns:
      For each tuned row, the "difference" from the reference row, the "half_width" of its 95%
      interval, and the "verdict".
    """
    description, table = compared.sweep.description, compared.table
    gaps, failed = {}, {}
    for row in chosen:
        other = comparison.reference(description, row)
        if row == other or other not in chosen or not compared.test or compared.test.sentences < 2:
            continue
        seeds = compared.failed.get(chosen[row])
        if seeds:
            failed[row] = verdicts.failed(len(seeds), len(means.runs[chosen[row]]))
        elif chosen[other] not in compared.failed:
            gaps[row] = means.difference(chosen[row], chosen[other])
    paper = comparison.paper_differences(table, description.base_row, "bleu")
    judged = {**verdicts.judge(gaps, verdicts.SCALES[table.measure], paper), **failed}
    return {
        row: {
            "difference": gaps[row].mean if row in gaps else np.nan,
            "half_width": gaps[row].half_width if row in gaps else np.nan,
            "verdict": judged[row].word if row in judged else None,
        }
        for row in compared.tuned
    }


def _notes(compared: comparison.Comparison) -> list[str]:
    """Returns notes on the columns, the cost of tuning, edges of the grid, and missing runs."""
    description, tuned = compared.sweep.description, compared.tuned
    ((field, values),) = description.tune.items()
    runs = compared.sweep.runs
    is_recipe = runs["row"].isin(description.rows)
    further, recipe = runs[~is_recipe], runs[is_recipe]
    paragraphs = [
        f"Best and worst {field}, for base as for all rows: {CHOICE}. recipe: the row's own value, "
        "on the test set too. nats: ln PPL of the development set. Tuning took "
        f"{len(further)} runs and {device_hours(further):.2f} device hours, beside {len(recipe)} "
        f"and {device_hours(recipe):.2f} of the recipe."
    ]
    edges = {row: each for row, each in tuned.items() if each.is_at_edge}
    if edges:
        rows = [
            f"{row} at {each.best.value} "
            + ("(none can follow)" if each.next_value is None else f"(add {each.next_value})")
            for row, each in edges.items()
        ]
        added = {each.next_value for each in edges.values() if each.next_value is not None}
        grid = ",".join(map(str, sorted({*values, *added})))
        remedy = f": start the sweep again with --tune={field}:{grid}" if added else ""
        score = compared.table.score
        paragraphs.append(f"Best {score} at the edge of the grid, {', '.join(rows)}{remedy}.")
    if lacking := {row: each.missing for row, each in tuned.items() if each.missing}:
        rows = [f"{row} at {', '.join(map(str, each))}" for row, each in lacking.items()]
        paragraphs.append(
            f"Tuning is not complete: {'; '.join(rows)}. A row's best is compared with that of "
            f"{description.base_row} only where both have run with all values."
        )
    untuned = [row for row in description.rows if len(compared.sweep.of(row)) and row not in tuned]
    if untuned:
        paragraphs.append(f"Not tuned, since they generate no text: {', '.join(untuned)}.")
    return paragraphs


def best_names(compared: comparison.Comparison) -> dict[str, str]:
    """Returns the name of the variant with the best value, for each row with all values."""
    tuned = compared.tuned
    return {row: each.best.name for row, each in tuned.items() if _is_complete(compared, row)}
