"""Table 2 beside the paper's."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmarks import cost, network
from experiments.sweep import results
from transformer_jax import config as config_lib
from transformer_jax import paper
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu

PAIRS = {"de": "EN-DE", "fr": "EN-FR"}
SIZES = {"base": "Transformer base", "big": "Transformer big"}


def all_of(sweep: results.Sweep) -> list[tables.Table]:
    """The paper's table with our rows, and more of what ours measured."""
    done = [row for row in sweep.rows if row.results]
    return [_table(sweep), *([_ours(done, sweep)] if done else [])]


def notes(sweep: results.Sweep) -> list[str]:
    """What has to be known to read the tables, a paragraph each."""
    return [
        "The paper's rows are its Table 2. BLEU: tokenised, compounds split in German, on "
        "newstest2014, from averaged checkpoints; “ours” have the variant “paper” of "
        "transformer_jax.score.",
        "FLOPs of ours: matrix products of the traced step, padding included, × steps. By the "
        "paper's formula: hours × devices × a sustained rate, for which the peak of dense bfloat16 "
        "products stands here: it is an upper bound.",
        *results.shortfalls(sweep),
    ]


def _table(sweep: results.Sweep) -> tables.Table:
    """The paper's whole table, and ours in its form."""
    heads = [
        "model",
        *(f"BLEU {p}" for p in PAIRS.values()),
        *(f"FLOPs {p}" for p in PAIRS.values()),
    ]
    lines = [
        [
            name,
            _written(row.bleu_de, ".2f"),
            _written(row.bleu_fr, ".2f"),
            _written(row.flops_de, ".1e"),
            _written(row.flops_fr, ".1e"),
        ]
        for name, row in paper.TABLE2.items()
    ]
    by_name = {row.name: row for row in sweep.rows}
    for size, name in SIZES.items():
        rows = [by_name.get(f"{size} {pair}") for pair in PAIRS.values()]
        scores = [_bleu(row) if row and row.results else None for row in rows]
        flops = [
            cost.training_flops(config_lib.replace(sweep.base, row.overrides)) if row else None
            for row in rows
        ]
        lines.append(
            [
                f"ours: {name}",
                *(_written(score, ".2f") for score in scores),
                *(_written(count, ".1e") for count in flops),
            ]
        )
    return tables.Table(heads, lines)


def _ours(rows: Sequence[results.Row], sweep: results.Sweep) -> tables.Table:
    """More of what ours measured."""
    lines = []
    for row in rows:
        for seed, result in row.results.items():
            lines.append(
                [
                    row.name,
                    str(seed),
                    *(
                        f"{result['test']['bleu'][variant]['score']:.2f}"
                        for variant in (bleu.PAPER, bleu.MAIN)
                    ),
                    f"{result['bleu'][bleu.MAIN]['score']:.2f}",
                    f"{result['ppl']:.3f}",
                    f"{cost.training_flops(config_lib.replace(sweep.base, row.overrides)):.1e}",
                    _by_formula(result),
                    f"{len(result['devices'])} × {result['devices'][0]}",
                    f"{result['wall_seconds'] / 3600:.2f}",
                ]
            )
    heads = ["row", "seed", "test, as the paper", "test, sacreBLEU 13a", "dev, sacreBLEU 13a"]
    heads += ["dev PPL", "FLOPs counted", "by the paper's formula", "devices", "hours"]
    return tables.Table(heads, lines)


def _by_formula(result: Mapping[str, Any]) -> str:
    """Hours × devices × rate."""
    data = network.read_data()
    kind = result["devices"][0].lower()
    names = [device for name, device in data["names"].items() if name.lower() in kind]
    if not names:
        return "no rate known"
    rate = data["devices"][names[0]]["tflops"] * 1e12
    return f"{result['wall_seconds'] * len(result['devices']) * rate:.1e}"


def _bleu(row: results.Row) -> float:
    """Mean over seeds of the test set's BLEU, as the paper counts."""
    scores = [result["test"]["bleu"][bleu.PAPER]["score"] for result in row.results.values()]
    return sum(scores) / len(scores)


def to_csv(sweep: results.Sweep) -> str:
    """One line a run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    table = _ours([row for row in sweep.rows if row.results], sweep)
    writer.writerow(table.heads)
    writer.writerows(table.lines)
    return text.getvalue()


def _written(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
