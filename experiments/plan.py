"""What a table will cost, by row, before it is run: here, and on a device that is not here."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from experiments import cost, paper, results, tables
from transformer_jax import config as config_lib
from transformer_jax.training import optimizer

_DEVICES = pathlib.Path(__file__).with_name("devices.json")


@dataclasses.dataclass(frozen=True)
class Devices:
    """Some chips of one kind.

    Attributes:
      name: kind and number, v5e-8.
      chips: how many.
      tflops: each one's peak of dense bfloat16 products, 10¹² operations a second.
      memory_gb: each one's.
      dollars: for each one and hour.
    """

    name: str
    chips: int
    tflops: float
    memory_gb: float
    dollars: float


def parse(name: str) -> Devices:
    """Devices by kind and number: v5e-8, H100-1.

    Raises:
      UserError: the kind is not in devices.json, or there is no number.
    """
    known = _data()["devices"]
    match = re.fullmatch(r"(.+)-(\d+)", name)
    if not match or match[1] not in known or not int(match[2]):
        raise config_lib.UserError(
            f"--device={name} should be a kind and a number of chips, as in v5e-8; known: "
            f"{', '.join(known)}"
        )
    return Devices(name, int(match[2]), **known[match[1]])


def write(
    base: config_lib.Config,
    rows: Mapping[str, Mapping[str, Any]],
    seeds: int,
    devices: Devices,
    utilisation: float,
) -> None:
    """Prints the plan of a table.

    Args:
      base: its base.
      rows: what each changes, by name.
      seeds: runs of each row.
      devices: what each run has to itself.
      utilisation: share of the peak that training reaches; 0 for the data file's.
    """
    data = _data()
    share = utilisation or data["utilisation"]
    rate = devices.chips * devices.tflops * 1e12 * share
    lines, total = [], 0.0
    for row, overrides in rows.items():
        config = config_lib.replace(base, overrides)
        hours = cost.training_flops(config) / rate / 3600
        total += hours * seeds
        needed = cost.memory_bytes(config, devices.chips) / 1e9
        lines.append(
            [
                row,
                f"{hours:.2f}",
                f"{needed:.1f}",
                _fits(config, needed, devices),
                f"{hours * devices.chips * devices.dollars:,.2f}",
            ]
        )
    everything = total * devices.chips * devices.dollars
    stated = "stated" if not utilisation else "as --utilisation says"
    notes = [
        f"All {len(rows)} rows at {seeds} seed{'s' if seeds > 1 else ''}: {total:,.1f} hours of "
        f"{devices.name}, {everything:,.0f} dollars, one run after another.",
        f"Training only, at {share:.0%} of the peak ({stated}); evaluation comes on top. Memory: "
        "state and what the backward pass keeps, before the compiler saves some of it.",
        f"Data of {data['date']}. {data['note']}",
    ]
    if base.model.compute_dtype == "float32":
        notes.append(
            "This config computes in float32, for which the rates of bfloat16 are too high: plan "
            "and run with --config.model.compute_dtype=bfloat16."
        )
    heads = ["row", "hours a run", "GB a chip", "fits", "dollars a run"]
    tables.show([tables.Table(heads, lines)], notes)


def list_rows(
    base: config_lib.Config,
    rows: Mapping[str, Mapping[str, Any]],
    reported: Mapping[str, paper.Result],
) -> None:
    """Prints each row's overrides, parameters beside the paper's, peak rate and operations.

    Args:
      base: the table's base.
      rows: what each changes, by name.
      reported: the paper's rows.
    """
    print(
        f"{'row':22} {'params':>8} {'− base':>7} {'paper':>6} {'peak rate':>10} {'FLOPs':>8}  "
        f"overrides\n{'':22} {'×10⁶':>8} {'':>7} {'×10⁶':>6}"
    )
    base_params = cost.parameters(base)
    for row, overrides in rows.items():
        config = config_lib.replace(base, overrides)
        params = cost.parameters(config)
        warmup = config.train.warmup_steps
        peak = float(optimizer.learning_rate(warmup, config.train, config.model.d_model))
        flops = cost.training_flops(config)
        in_paper = reported[row].params if row in reported else None
        print(
            f"{row:22} {params / 1e6:8.3f} {results.unequal(params, base_params):>7} "
            f"{in_paper or '':>6} {peak:10.2e} {flops:8.1e}  "
            + " ".join(f"{name}={value}" for name, value in overrides.items())
        )
    print(results.UNEQUAL_NOTE)


def _fits(config: config_lib.Config, needed: float, devices: Devices) -> str:
    """Whether a run fits, and if not what would."""
    if needed <= devices.memory_gb:
        return f"yes, of {devices.memory_gb:g}"
    parts = 2
    rows = config.train.batch_tokens // config.data.target_length
    while rows // parts >= devices.chips:
        changed = dataclasses.replace(
            config, train=dataclasses.replace(config.train, accumulation_steps=parts)
        )
        if cost.memory_bytes(changed, devices.chips) / 1e9 <= devices.memory_gb:
            return f"with train.accumulation_steps={parts}"
        parts *= 2
    return f"no, of {devices.memory_gb:g}"


def _data() -> dict[str, Any]:
    return json.loads(_DEVICES.read_text(encoding="utf-8"))
