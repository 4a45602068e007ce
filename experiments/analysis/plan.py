"""The cost of a table, by row, before it runs: operations, and hours and dollars on a device."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from experiments.benchmarks import cost
from experiments.sweep import results
from transformer_jax import config as config_lib
from transformer_jax import errors, paper
from transformer_jax.drawing import tables
from transformer_jax.training import step as step_lib

Rows = Mapping[str, Mapping[str, Any]]  # what each changes, by name


@dataclasses.dataclass(frozen=True)
class Chips:
    """Chips of one kind; each has a peak rate of dense bfloat16 and a price in dollars an hour."""

    kind: str
    chips: int
    tflops: float
    dollars: float

    @property
    def name(self) -> str:
        """The name that `parse` reads."""
        return f"{self.kind}-{self.chips}"


def parse(name: str) -> Chips:
    """Reads devices from their name, v5e-8: a kind that devices.json has, and a number of chips.

    Raises UserError if the name has another form or the kind is unknown.
    """
    known = cost.read_devices()["devices"]
    match = re.fullmatch(r"(.+)-(\d+)", name)
    if not match or match[1] not in known or not int(match[2]):
        raise errors.UserError(
            f"--device={name} should be a kind and a number of chips, as in v5e-8; known: "
            f"{', '.join(known)}"
        )
    return Chips(match[1], int(match[2]), **known[match[1]])


def write(base: config_lib.Config, rows: Rows, seeds: Mapping[str, int], devices: Chips) -> None:
    """Prints hours and dollars of each row's run, and of all seeds, one run after another.

    Training reaches the share of the devices' peak that devices.json states.
    """
    utilisation = cost.read_devices()["utilisation"]
    rate = devices.chips * devices.tflops * 1e12 * utilisation
    hours = {
        row: cost.training_flops(config_lib.replace(base, overrides)) / rate / 3600
        for row, overrides in rows.items()
    }
    lines = [[row, f"{each:.2f}", f"{_dollars(each, devices):,.2f}"] for row, each in hours.items()]
    notes = [
        f"All {_all(hours, seeds, devices)}.",
        f"Training only, at {utilisation:.0%} of the peak; evaluation comes on top.",
    ]
    heads = ["row", "hours a run", "dollars a run"]
    tables.show([tables.Printed(heads, lines)], notes + _of_rates(base))


def _all(hours: Mapping[str, float], seeds: Mapping[str, int], devices: Chips) -> str:
    """The hours and dollars of a table in words, from the hours of one run of each row."""
    total = sum(seeds[row] * each for row, each in hours.items())
    numbers = sorted({seeds[row] for row in hours}) or [0]
    at = " to ".join(map(str, dict.fromkeys([numbers[0], numbers[-1]])))
    return (
        f"{len(hours)} rows at {at} seed{'s' if numbers[-1] > 1 else ''}: {total:,.1f} hours of "
        f"{devices.name}, {_dollars(total, devices):,.0f} dollars, one run after another"
    )


def _dollars(hours: float, devices: Chips) -> float:
    return hours * devices.chips * devices.dollars


def _of_rates(base: config_lib.Config) -> list[str]:
    """Notes on the source of the rates, and on a base to which they do not apply."""
    data = cost.read_devices()
    notes = [f"Data of {data['date']}. {data['note']}"]
    if base.model.compute_dtype == "float32":
        notes.append(
            "This config computes in float32, for which the rates of bfloat16 are too high: plan "
            "and run with --config.model.compute_dtype=bfloat16."
        )
    return notes


def list_rows(base: config_lib.Config, rows: Rows, reported: Mapping[str, paper.Reported]) -> None:
    """Prints each row's overrides, parameters beside the paper's, peak rate and operations."""
    base_params, lines = cost.parameters(base), []
    for row, overrides in rows.items():
        config = config_lib.replace(base, overrides)
        params = cost.parameters(config)
        warmup = min(config.train.warmup_steps, config.train.num_steps)
        peak = float(step_lib.learning_rate(warmup, config.train, config.model.d_model))
        flops = cost.training_flops(config)
        in_paper = reported[row].params if row in reported else None
        theirs = [str(in_paper or "")] if reported else []
        size = f"{params / 1e6:.3f} {results.unequal(params, base_params)}".strip()
        changed = " ".join(f"{name}={value}" for name, value in overrides.items())
        lines.append([row, size, *theirs, f"{peak:.2e}", f"{flops:.1e}", changed])
    papers = ["paper: params"] if reported else []
    heads = ["row", "params ×10⁶", *papers, "peak rate", "FLOPs", "overrides"]
    tables.show([tables.Printed(heads, lines)], [results.UNEQUAL_NOTE])
