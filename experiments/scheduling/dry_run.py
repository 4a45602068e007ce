"""The output of --dry_run: the rows of a table, and the cost of running them."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.results import tables
from experiments.sweep import cost
from transformer_jax import config as config_lib
from transformer_jax import paper
from transformer_jax.training import step as step_lib

Rows = Mapping[str, Mapping[str, Any]]  # the overrides of each row


def print_rows(base: config_lib.Config, rows: Rows, reported: Mapping[str, paper.Reported]) -> None:
    """Prints a table of the rows: parameters, peak learning rate, training FLOPs and overrides.

    Args:
      base: the configuration that the rows change.
      rows: the overrides of each row.
      reported: the paper's numbers by row. If there are any, the table has a column with the
        paper's numbers of parameters.
    """
    base_params = cost.parameters(base)
    lines = []
    for row, overrides in rows.items():
        config = config_lib.replace(base, overrides)
        params = cost.parameters(config)
        warmup = min(config.train.warmup_steps, config.train.num_steps)
        peak = step_lib.learning_rate(warmup, config.train, config.model.d_model)
        line = {
            "row": row,
            "params": params / 1e6,
            "difference": cost.relative_difference(params, base_params),
            "peak_rate": float(peak),
            "flops": cost.training_flops(config),
            "overrides": " ".join(f"{name}={value}" for name, value in overrides.items()),
        }
        if row in reported:
            line["paper_params"] = reported[row].params
        lines.append(line)
    columns = [
        tables.Column("row", "row"),
        tables.Column("params ×10⁶", "params", ".3f"),
        tables.Column("of base", "difference"),
        tables.Column("peak rate", "peak_rate", ".2e"),
        tables.Column("FLOPs", "flops", ".1e"),
        tables.Column("overrides", "overrides"),
    ]
    if reported:
        columns.insert(3, tables.Column("paper: params", "paper_params", ".0f"))
    tables.show([tables.Table(pd.DataFrame(lines), columns)], [])


def print_prices(
    base: config_lib.Config, rows: Rows, seeds: Mapping[str, int], devices: cost.Chips
) -> None:
    """Prints the training hours and the price of one run of each row, and of all runs.

    hours = training FLOPs / (peak FLOPs per hour of the devices × utilisation), where devices.json
    has the peak rates, the utilisation and the prices.

    Args:
      base: the configuration that the rows change.
      rows: the overrides of each row.
      seeds: the number of runs of each row.
      devices: the chips that train one run together.
    """
    data = cost.read_devices()
    rate = devices.chips * devices.tflops * 1e12 * data["utilisation"]
    lines = []
    for row, overrides in rows.items():
        hours = cost.training_flops(config_lib.replace(base, overrides)) / rate / 3600
        lines.append({"row": row, "hours": hours, "dollars": devices.dollars_for(hours)})
    columns = [
        tables.Column("row", "row"),
        tables.Column("hours a run", "hours", ".2f"),
        tables.Column("dollars a run", "dollars", ",.2f"),
    ]
    runs = sum(seeds[row] for row in rows)
    total = sum(seeds[line["row"]] * line["hours"] for line in lines)
    notes = [
        f"{runs} runs of {len(rows)} rows: {total:,.1f} hours of {devices.kind}-{devices.chips}, "
        f"{devices.dollars_for(total):,.0f} dollars, one run after another.",
        f"Training only, at {data['utilisation']:.0%} of the peak rate; evaluation adds to it.",
        f"Data of {data['date']}. {data['note']}",
    ]
    if base.model.compute_dtype == "float32":
        notes.append(
            "This configuration computes in float32, which is slower than the rates of bfloat16: "
            "plan and run with --config.model.compute_dtype=bfloat16."
        )
    tables.show([tables.Table(pd.DataFrame(lines), columns)], notes)
