"""The report of experiments.table2: the results of a sweep beside the paper's Table 2."""

import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from experiments.results import comparison, documents, tables
from experiments.sweep import cost
from transformer_jax import paper

PAIRS = ("EN-DE", "EN-FR")
SIZES = {"base": "Transformer base", "big": "Transformer big"}
_NOTES = (
    "The paper's rows are its Table 2. BLEU: tokenised, compounds split in German, on "
    "newstest2014, from averaged checkpoints; “ours” have the variant “paper” of "
    "transformer_jax.score.",
    "FLOPs of ours: matrix products of the traced step, padding included, × steps. By the paper's "
    "formula: hours × devices × a sustained rate, for which the peak of dense bfloat16 products "
    "stands here: it is an upper bound.",
)


def document(compared: comparison.Comparison) -> documents.Document:
    """Returns the report: the paper's Table 2 with our results, and a table of all runs."""
    whole, runs = _paper_table(compared), _runs(compared)
    shown = [whole]
    if len(runs.frame):
        shown.append(runs)
    return documents.Document(
        tables=shown,
        notes=[*_NOTES, *documents.shortfalls(compared.sweep)],
        data=runs.frame,
        latex=tables.latex(whole),
    )


def _paper_table(compared: comparison.Comparison) -> tables.Table:
    names = [f"{what} {pair}" for what in ("BLEU", "FLOPs") for pair in PAIRS]
    lines: list[dict[str, Any]] = []
    for model, row in paper.TABLE2.items():
        numbers = (row.bleu_de, row.bleu_fr, row.flops_de, row.flops_fr)
        lines.append({"model": model, **dict(zip(names, numbers, strict=True))})
    sweep = compared.sweep
    for size, model in SIZES.items():
        line: dict[str, Any] = {"model": f"ours: {model}"}
        for pair in PAIRS:
            row = f"{size} {pair}"
            if row in sweep.description.rows:
                scores = sweep.values(row, "test_bleu_paper")
                line[f"BLEU {pair}"] = statistics.mean(scores) if scores else np.nan
                line[f"FLOPs {pair}"] = cost.training_flops(sweep.description.config(row))
        lines.append(line)
    forms = {name: ".2f" if name.startswith("BLEU") else ".1e" for name in names}
    columns = [tables.Column(name, form=form) for name, form in forms.items()]
    frame = pd.DataFrame(lines, columns=["model", *names]).astype(dict.fromkeys(names, float))
    return tables.Table(frame, [tables.Column("model"), *columns])


def _runs(compared: comparison.Comparison) -> tables.Table:
    columns = [
        tables.Column("row"),
        tables.Column("seed", form="d"),
        tables.Column("as the paper", "test_bleu_paper", ".2f", group="test BLEU"),
        tables.Column("sacreBLEU 13a", "test_bleu", ".2f", group="test BLEU"),
        tables.Column("sacreBLEU 13a", "bleu", ".2f", group="dev"),
        tables.Column("PPL", "ppl", ".3f", group="dev"),
        tables.Column("counted", "flops", ".1e", group="FLOPs"),
        tables.Column("by the paper's formula", "flops_by_formula", ".1e", group="FLOPs"),
        tables.Column("devices", form="d"),
        tables.Column("of kind", "device_kind"),
        tables.Column("hours", form=".2f"),
    ]
    description, lines = compared.sweep.description, []
    for run in compared.sweep.runs.to_dict("records"):
        if run["row"] in description.rows:
            flops = cost.training_flops(description.config(run["row"]))
            hours = run["wall_seconds"] / 3600
            lines.append(
                {**run, "flops": flops, "flops_by_formula": _by_formula(run), "hours": hours}
            )
    frame = pd.DataFrame(lines).reindex(columns=[column.source for column in columns])
    return tables.Table(frame, columns)


def _by_formula(run: Mapping[Any, Any]) -> float:
    """Returns the training FLOPs of a run by the paper's formula.

    FLOPs = seconds × devices × peak FLOPs per second of a device. The result is NaN if devices.json
    does not list the device.
    """
    data, kind = cost.read_devices(), str(run.get("device_kind", "")).lower()
    names = [device for name, device in data["names"].items() if name.lower() in kind]
    if not names:
        return np.nan
    rate = data["devices"][names[0]]["tflops"] * 1e12
    return run["wall_seconds"] * run["devices"] * rate
