"""What the page of a sweep shows, as plain data: `document` writes it, page.html's scripts draw it.

That is all but the translations.
"""

import statistics
from collections.abc import Mapping
from typing import Any

from experiments.analysis import comparison, significance
from experiments.benchmarks import cost
from experiments.reporting import comparison_table, headline
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax.evaluation import measures
from transformer_jax.training import metrics

MOST_POINTS = 200  # of a learning curve: more than a screen tells apart
_CURVES = {
    "dev_ppl": "development perplexity",
    "ppl": "training perplexity",
    "loss": "training loss (label smoothing included)",
    "learning_rate": "learning rate",
    "tokens_per_second": "target tokens per second",
}
_HASH = 12  # characters of a hash that are shown


def of_table(
    compared: comparison.Comparison, document: table_lib.Document, downloads: Mapping[str, str]
) -> dict[str, Any]:
    """What JSON can say of a sweep, its tables and notes, and the table's files by their names."""
    sweep = compared.sweep
    paper = comparison.paper_gaps(compared).values()
    # The buckets of source lengths, if all rows have the same, with their numbers of sentences.
    lengths = {
        tuple(f"{length} ({sentences})" for length, sentences, _ in buckets)
        for row in sweep.rows
        for buckets in _by_length(row, compared)
        if buckets
    }
    return {
        "table": sweep.table,
        "title": compared.table.title,
        "measure": compared.table.compared_by.name,
        "base": sweep.rows[0].name,
        "tie": significance.WITHIN if any(abs(gap) < significance.SMALL for gap in paper) else None,
        "summary": headline.summary(compared),
        "on_names": headline.on_names(sweep),
        "judged": bool(comparison.verdicts(compared)),
        "tables": [
            {**vars(each), "note": "".join(headline.relabelled([each.note], sweep))}
            for each in document.on_page
        ],
        "notes": headline.relabelled(document.notes, sweep),
        "rows": [_row(row, compared) for row in sweep.rows],
        "curves": _CURVES,
        "lengths": list(lengths.pop()) if len(lengths) == 1 else [],
        "unit": "words" if compared.table.measure == measures.F1 else "tokens",
        "changes": _changes(sweep),
        "provenance": _provenance(sweep),
        "downloads": downloads,
    }


def _row(row: results.Row, compared: comparison.Comparison) -> dict[str, Any]:
    """A row with its means, its difference, its curves, and why runs are not among its results."""
    sweep = compared.sweep
    ppl, scores = row.of("ppl"), comparison.scores(row, compared.table.measure)
    buckets = zip(*_by_length(row, compared), strict=True)
    return {
        "name": row.name,
        "own": comparison_table.own_name(row, sweep.rows[0])[0],
        "label": comparison_table.label(row, sweep.rows[0]),
        "reasons": [
            *(f"failed, seed {seed}: {error}" for seed, error in row.failures.items()),
            *(f"left out, seed {seed}: of another configuration" for seed in row.stale),
        ],
        **_judged(row, compared),
        "test": compared.on_test and _judged(row, compared.on_test),
        "paper": comparison.paper_gaps(compared).get(row.name),
        "ppl": statistics.mean(ppl) if ppl else None,
        "score": statistics.mean(scores) if scores else None,
        "score_deviation": statistics.stdev(scores) if len(scores) > 1 else None,
        "params": next(iter(row.of("params")), None),
        "flops": cost.training_flops(sweep.config(row)) if row.results else None,
        "curves": [_curve(sweep, row, seed) for seed in sorted({*row.results, *row.failures})],
        "lengths": [round(statistics.mean(score for *_, score in runs), 2) for runs in buckets],
    }


def _by_length(
    row: results.Row, compared: comparison.Comparison
) -> list[list[tuple[str, int, float]]]:
    """Of each run its buckets of lengths: which, the number of sentences, and the score."""
    if compared.table.measure == measures.F1:
        return [
            [(b["words"], b["sentences"], b["f1"]) for b in parses["by_length"]]
            for parses in row.of("parses")
        ]
    return [
        [(b["tokens"], b["sentences"], b["score"]) for b in buckets]
        for buckets in row.of("bleu_by_length")
    ]


def _judged(row: results.Row, compared: comparison.Comparison) -> dict[str, Any]:
    """A row's difference on one of the sets, and its verdict."""
    gap = compared.gaps.get(row.name)
    return {
        "is_sure": comparison.is_sure(row.name, compared),
        "gap": gap and {"mean": gap.mean, "half": gap.half, "over_seeds": gap.over_seeds},
        "verdict": comparison.verdict(row.name, compared),
    }


def _curve(sweep: results.Sweep, row: results.Row, seed: int) -> dict[str, Any]:
    """Steps and values of each metric that a run has logged, at most `MOST_POINTS` of each.

    And what a step takes: target tokens, operations, and seconds, evaluation not included.
    """
    records = metrics.read(results.cell_folder(sweep.workdir, row.name, seed))
    config = sweep.config(row)
    speeds = [each["seconds_per_step"] for each in records if "seconds_per_step" in each]
    counted = [(each["tokens"], each["step"]) for each in records if "tokens" in each]
    a_step = {
        "tokens": sum(tokens for tokens, _ in counted) / counted[-1][1] if counted else None,
        "flops": cost.training_flops(config) / config.train.num_steps if records else None,
        "seconds": statistics.median(speeds) if speeds else None,
    }
    curves: dict[str, Any] = {"seed": seed, "a_step": a_step}
    for name in _CURVES:
        points = [
            (record["step"], float(f"{record[name]:.4g}")) for record in records if name in record
        ]
        if points:
            every = -(-len(points) // MOST_POINTS)
            kept = points[::-1][::every][::-1]  # from the end, so that the last point stays
            curves[name] = list(map(list, zip(*kept, strict=True)))
    return curves


def _changes(sweep: results.Sweep) -> dict[str, Any]:
    """A table of what rows change: base's values, then in each row what is not base's."""
    fields = list(dict.fromkeys(field for row in sweep.rows for field in row.overrides))
    lines = []
    for row in sweep.rows:
        pairs = [
            (config_lib.get(sweep.config(row), f), config_lib.get(sweep.config(sweep.rows[0]), f))
            for f in fields
        ]
        shown = [own if own != of_base or not lines else "" for own, of_base in pairs]
        written = [f"{value:g}" if isinstance(value, float) else str(value) for value in shown]
        lines.append([row.name, *written])
    heads = ["row", *(comparison_table.SYMBOLS.get(field, field) for field in fields)]
    return {"heads": heads, "lines": lines}


def _provenance(sweep: results.Sweep) -> dict[str, Any]:
    """Where numbers come from: what all runs share, then each run, and what it cost."""
    found = [(row, seed, result) for row in sweep.rows for seed, result in row.results.items()]
    facts = [_facts(result) for _, _, result in found]
    names = list(dict.fromkeys(name for each in facts for name in each))
    # What a run does not say, as one that writes no sentences says of BLEU, is no other value.
    values = {name: {each.get(name, "") for each in facts} - {""} for name in names}
    shared = [[name, *own] for name, own in values.items() if len(own) == 1]
    varied = [name for name in names if len(values[name]) > 1]
    flops = {row.name: cost.training_flops(sweep.config(row)) for row, _, _ in found}
    hours = [results.device_hours([result]) for _, _, result in found]
    lines = []
    for (row, seed, result), own, device_hours in zip(found, facts, hours, strict=True):
        facts_of_own = [own.get(name, "") for name in varied]
        digest, speed = str(result.get("config_hash", ""))[:_HASH], result.get("tokens_per_second")
        took = [metrics.duration(result["wall_seconds"]), f"{device_hours:.2f}"]
        rate = f"{speed:,.0f}" if isinstance(speed, int | float) else ""
        took += [f"{flops[row.name]:.2e}", rate]
        lines.append([row.name, str(seed), *facts_of_own, digest, *took])
    heads = ["config", "wall time, h:mm:ss", "device hours", "training FLOPs", "tokens/s"]
    total = sum(flops[row.name] for row, _, _ in found)
    return {
        "shared": shared,
        "heads": ["row", "seed", *varied, *heads],
        "lines": lines,
        "total": f"{len(found)} runs took {sum(hours):.2f} device hours and {total:.2e} FLOPs of "
        "training (matrix products of the traced step, padding included, × steps). Runs that "
        "share a device count it each."
        if found
        else "",
    }


def _facts(result: Mapping[str, Any]) -> dict[str, str]:
    """What may be the same in all runs, by what it is called; "" where a run does not say."""
    devices = result.get("devices") or []
    return {
        "commit": str(result.get("git_commit", "")),
        "corpus (SHA-256)": result["data_sha256"],
        "tokenizer (SHA-256)": result["tokenizer_sha256"],
        "test set (SHA-256)": result["test_sha256"],
        "direction": " to ".join(result["data"]["languages"]),
        "decoding": ", ".join(f"{name}={value}" for name, value in result["decode"].items()),
        **{f"BLEU, {variant}": score["signature"] for variant, score in result["bleu"].items()},
        "devices": f"{len(devices)} × {devices[0]}" if devices else "",
        "JAX": str((result.get("versions") or {}).get("jax", "")),
    }
