"""What the page of a sweep shows, as plain data: `page` writes it, page.html's scripts draw it."""

import statistics
from collections.abc import Mapping
from typing import Any

from experiments.analysis import comparison
from experiments.benchmarks import cost
from experiments.reporting import comparison_table, provenance
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax.training import metrics

MOST_POINTS = 200  # of a learning curve: more than a screen tells apart
_CURVES = {
    "dev_ppl": "development perplexity",
    "ppl": "training perplexity",
    "loss": "training loss (label smoothing included)",
    "learning_rate": "learning rate",
    "tokens_per_second": "target tokens per second",
}


def of_table(
    compared: comparison.Comparison, document: table_lib.Document, downloads: Mapping[str, str]
) -> dict[str, Any]:
    """Everything on the page but the translations and the maps of attention.

    Args:
      compared: what the sweep's rows come to.
      document: its tables and notes.
      downloads: the contents of the table's files, by their names.

    Returns:
      What JSON can say.
    """
    sweep = compared.sweep
    return {
        "table": sweep.table,
        "title": compared.table.title,
        "base": sweep.rows[0].name,
        "summary": summary(compared),
        "tables": [
            {"title": each.title, "heads": each.heads, "lines": each.lines}
            for each in document.on_page
        ],
        "notes": document.notes,
        "rows": [_row(row, compared) for row in sweep.rows],
        "curves": _CURVES,
        "lengths": _lengths(sweep),
        "changes": _changes(sweep),
        "provenance": provenance.of(sweep),
        "downloads": downloads,
    }


def summary(compared: comparison.Comparison) -> str:
    """The sweep in a line: how many rows, which hurts most, how near the paper's order."""
    sweep = compared.sweep
    done = [row for row in sweep.rows if row.results]
    counts = sorted({len(row.results) for row in done})
    seeds = " to ".join(map(str, {counts[0]: 0, counts[-1]: 0})) if counts else "0"
    parts = [f"{len(done)} of {len(sweep.rows)} rows, {seeds} seed{'s' * (seeds != '1')}"]
    if compared.gaps:
        name, worst = min(compared.gaps.items(), key=lambda item: item[1].mean)
        sure = "" if worst.excludes_0 else ", which is within its interval"
        if worst.mean < 0:
            gap = f"−{-worst.mean:.1f} ± {worst.half:.1f} BLEU"
            own = next(comparison_table.changed(row) for row in sweep.rows if row.name == name)
            here = "" if own in name else f" (here {own})"
            level = [
                other
                for other, each in compared.gaps.items()
                if other != name and each.mean - each.half <= worst.mean + worst.half
            ]
            as_much = f", level with {', '.join(level)}" if len(level) in (1, 2, 3) else ""
            parts.append(f"hurts most: {name}{here}, {gap}{sure}{as_much}")
    if compared.order:
        parts.append(f"Kendall's tau with the paper {compared.order[0]:.2f}".replace("-", "−"))
    return "; ".join(parts) + "."


def _row(row: results.Row, compared: comparison.Comparison) -> dict[str, Any]:
    """A row with its means, its difference, its curves, and why it has none."""
    sweep, gap = compared.sweep, compared.gaps.get(row.name)
    ppl, scores = row.of("ppl"), comparison.scores(row)
    return {
        "name": row.name,
        "reasons": reasons(row),
        "gap": gap and {"mean": gap.mean, "half": gap.half, "seeds": gap.seeds},
        "paper": comparison.paper_gap(row, compared),
        "verdict": comparison.verdict(row, compared),
        "ppl": statistics.mean(ppl) if ppl else None,
        "bleu": statistics.mean(scores) if scores else None,
        "bleu_deviation": statistics.stdev(scores) if len(scores) > 1 else None,
        "params": next(iter(row.of("params")), None),
        "flops": cost.training_flops(sweep.config(row)) if row.results else None,
        "curves": [_curve(sweep, row, seed) for seed in sorted({*row.results, *row.failures})],
        "lengths": _by_length(row),
    }


def reasons(row: results.Row) -> list[str]:
    """Why runs that lie there are not among a row's results, a line each."""
    found = [f"failed, seed {seed}: {error}" for seed, error in row.failures.items()]
    return found + [f"left out, seed {seed}: of another configuration" for seed in row.stale]


def _curve(sweep: results.Sweep, row: results.Row, seed: int) -> dict[str, Any]:
    """Steps and values of each metric that a run has logged, at most `MOST_POINTS` of each."""
    records = metrics.read(results.cell_folder(sweep.workdir, row.name, seed))
    curves: dict[str, Any] = {"seed": seed}
    for name in _CURVES:
        points = [
            (record["step"], float(f"{record[name]:.4g}"))
            for record in records
            if isinstance(record.get(name), int | float)
        ]
        if points:
            every = -(-len(points) // MOST_POINTS)
            # From the end, so that the last point stays.
            kept = points[::-1][::every][::-1]
            curves[name] = list(map(list, zip(*kept, strict=True)))
    return curves


def _lengths(sweep: results.Sweep) -> list[str]:
    """The buckets of source lengths, if all rows have the same, with their numbers of sentences."""
    found = {
        tuple(f"{bucket['tokens']} ({bucket['sentences']})" for bucket in buckets)
        for row in sweep.rows
        for buckets in row.of("bleu_by_length")
    }
    return list(found.pop()) if len(found) == 1 else []


def _by_length(row: results.Row) -> list[float]:
    """Mean BLEU of each bucket."""
    buckets = zip(*row.of("bleu_by_length"), strict=True)
    return [round(statistics.mean(bucket["score"] for bucket in runs), 2) for runs in buckets]


def _changes(sweep: results.Sweep) -> dict[str, Any]:
    """A table of what rows change: base's values, then in each row what is not base's."""
    fields = list(dict.fromkeys(field for row in sweep.rows for field in row.overrides))
    values = [
        [config_lib.get(config, field) for field in fields]
        for config in map(sweep.config, sweep.rows)
    ]
    lines = [
        [row.name, *("" if value == of_base else _written(value) for value, of_base in pairs)]
        for row, own in zip(sweep.rows[1:], values[1:], strict=True)
        for pairs in [zip(own, values[0], strict=True)]
    ]
    heads = ["row", *(comparison_table.SYMBOLS.get(field, field) for field in fields)]
    return {"heads": heads, "lines": [[sweep.rows[0].name, *map(_written, values[0])], *lines]}


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
