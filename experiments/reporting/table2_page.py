"""Table 2 beside the paper's."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.analysis import comparison
from experiments.benchmarks import cost
from experiments.reporting import latex
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import paper
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu

PAIRS = ("EN-DE", "EN-FR")
_VARIANTS = (bleu.PAPER, bleu.MAIN)  # of the test set
READ = {"test": dict, "devices": list}
SIZES = {"base": "Transformer base", "big": "Transformer big"}
_NOTES = (
    "The paper's rows are its Table 2. BLEU: tokenised, compounds split in German, on "
    "newstest2014, from averaged checkpoints; “ours” have the variant “paper” of "
    "transformer_jax.score.",
    "FLOPs of ours: matrix products of the traced step, padding included, × steps. By the "
    "paper's formula: hours × devices × a sustained rate, for which the peak of dense bfloat16 "
    "products stands here: it is an upper bound.",
)


def document(compared: comparison.Comparison) -> table_lib.Document:
    """The paper's table with our rows, and more of what ours measured."""
    whole, ours = _table(compared.sweep), _ours(compared.sweep)
    shown = [whole, *([ours] if ours.lines else [])]
    return table_lib.Document(
        shown=shown,
        on_page=shown,
        notes=[*_NOTES, *results.shortfalls(compared.sweep)],
        csv=tables.csv_of(ours.heads, ours.lines),
        latex=latex.plain(whole),
    )


def _table(sweep: results.Sweep) -> tables.Printed:
    """The paper's whole table, and ours in its form."""
    lines = [
        _line(name, [row.bleu_de, row.bleu_fr], [row.flops_de, row.flops_fr])
        for name, row in paper.TABLE2.items()
    ]
    by_name = {row.name: row for row in sweep.rows}
    for size, name in SIZES.items():
        rows = [by_name.get(f"{size} {pair}") for pair in PAIRS]
        scores = [  # means over seeds, as the paper counts
            statistics.mean(test["bleu"][bleu.PAPER]["score"] for test in row.of("test"))
            if row and row.results
            else None
            for row in rows
        ]
        flops = [cost.training_flops(sweep.config(row)) if row else None for row in rows]
        lines.append(_line(f"ours: {name}", scores, flops))
    heads = [f"{what} {pair}" for what in ("BLEU", "FLOPs") for pair in PAIRS]
    return tables.Printed(["model", *heads], lines)


def _line(name: str, scores: Sequence[float | None], flops: Sequence[float | None]) -> list[str]:
    cells = [("" if score is None else f"{score:.2f}") for score in scores]
    return [name, *cells, *("" if count is None else f"{count:.1e}" for count in flops)]


def _ours(sweep: results.Sweep) -> tables.Printed:
    """More of what ours measured, a line a run."""
    lines = []
    for row in sweep.rows:
        for seed, result in row.results.items():
            test = [result["test"]["bleu"][kind]["score"] for kind in _VARIANTS]
            scores = [f"{score:.2f}" for score in (*test, result["bleu"][bleu.MAIN]["score"])]
            lines.append([
                *(row.name, str(seed), *scores, f"{result['ppl']:.3f}"),
                f"{cost.training_flops(sweep.config(row)):.1e}",
                _by_formula(result),
                f"{len(result['devices'])} × {result['devices'][0]}",
                f"{result['wall_seconds'] / 3600:.2f}",
            ])  # fmt: skip
    heads = ["row", "seed", "test, as the paper", "test, sacreBLEU 13a", "dev, sacreBLEU 13a"]
    heads += ["dev PPL", "FLOPs counted", "by the paper's formula", "devices", "hours"]
    return tables.Printed(heads, lines)


def _by_formula(result: Mapping[str, Any]) -> str:
    data = cost.read_devices()
    kind = result["devices"][0].lower()
    names = [device for name, device in data["names"].items() if name.lower() in kind]
    if not names:
        return "no rate known"
    rate = data["devices"][names[0]]["tflops"] * 1e12
    return f"{result['wall_seconds'] * len(result['devices']) * rate:.1e}"
