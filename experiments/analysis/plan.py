"""What a table will cost, by row, before it is run: here, and on a device that is not here."""

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmarks import compiled, cost, network
from experiments.sweep import results
from transformer_jax import config as config_lib
from transformer_jax import errors, paper
from transformer_jax.distributed import sharding
from transformer_jax.drawing import tables
from transformer_jax.training import step as step_lib

_log = logging.getLogger("transformer_jax.plan")

# What no program depends on: arguments of a step, and what a run does besides.
_SHARED = {"model.dropout_rate": 0.1, "train.label_smoothing": 0.1, "train.num_steps": 1}
Rows = Mapping[str, Mapping[str, Any]]  # what each changes, by name


@dataclasses.dataclass(frozen=True)
class Chips:
    """Some chips of one kind, v5e, each with so many TFLOP/s of dense bfloat16, GB and $/hour."""

    kind: str
    chips: int
    tflops: float
    memory_gb: float
    dollars: float

    @property
    def name(self) -> str:
        """v5e-8."""
        return f"{self.kind}-{self.chips}"


def parse(name: str) -> Chips:
    """Devices by a kind that devices.json has and a number: v5e-8, H100-1; or UserError."""
    known = network.read_data()["devices"]
    match = re.fullmatch(r"(.+)-(\d+)", name)
    if not match or match[1] not in known or not int(match[2]):
        raise errors.UserError(
            f"--device={name} should be a kind and a number of chips, as in v5e-8; known: "
            f"{', '.join(known)}"
        )
    return Chips(match[1], int(match[2]), **known[match[1]])


def write(
    base: config_lib.Config, rows: Rows, seeds: Mapping[str, int], devices: Chips, share: float
) -> None:
    """Prints what a table's rows, so many seeds of each, take of devices that each has to itself.

    Training reaches a share of the devices' peak; 0: the one that devices.json states.
    """
    stated = network.read_data()["utilisation"]
    rate = devices.chips * devices.tflops * 1e12 * (share or stated)
    configs = {row: config_lib.replace(base, overrides) for row, overrides in rows.items()}
    hours = {row: cost.training_flops(c) / rate / 3600 for row, c in configs.items()}
    lines = []
    for row, config in configs.items():
        needed = cost.memory_bytes(config, devices.chips) / 1e9
        fits, dollars = _fits(config, needed, devices), _dollars(hours[row], devices)
        lines.append([row, f"{hours[row]:.2f}", f"{needed:.1f}", fits, f"{dollars:,.2f}"])
    notes = [
        f"All {_all(hours, seeds, devices)}.",
        f"Training only, at {share or stated:.0%} of the peak "
        f"({'as --utilisation says' if share else 'stated'}); evaluation comes on top. Memory: "
        "an estimate, which --compile replaces by the compiled program's.",
    ]
    heads = ["row", "hours a run", "GB a chip", "fits", "dollars a run"]
    tables.show([tables.Printed(heads, lines)], notes + _of_rates(base))


def write_compiled(
    base: config_lib.Config,
    rows: Rows,
    seeds: Mapping[str, int],
    devices: Chips,
    described: Sequence[Any],
) -> None:
    """As `write`, as the compiler of the devices, which `compiled.chips` describes, sees the rows.

    Rows that differ in numbers that are arguments of a step share its program.
    """
    programs: dict[config_lib.Config, compiled.Program | str] = {}
    lines, all_hours = [], {}
    for done, (row, overrides) in enumerate(rows.items(), start=1):
        config = config_lib.replace(base, overrides)
        shared = config_lib.replace(config, _SHARED)
        if shared not in programs:
            _log.info("compiling %s for %s, %d of %d", row, devices.name, done, len(rows))
            try:
                program = compiled.compile_step(shared, described)
                programs[shared] = compiled.read(program, devices.kind, devices.chips)
            except errors.UserError as error:
                programs[shared] = f"no: {error}"
        estimated = f"{cost.memory_bytes(config, devices.chips) / 1e9:.1f}"
        found = programs[shared]
        if isinstance(found, str):
            lines.append([row, found, "", estimated, *[""] * 5])
            continue
        all_hours[row] = hours = found.seconds * config.train.num_steps / 3600
        memory = [f"yes, of {devices.memory_gb:g}", f"{found.memory_bytes / 1e9:.1f}", estimated]
        times = [f"{1e3 * seconds:.1f}" for seconds in (found.computing, found.sending)]
        ends = [f"{found.sent_bytes / 1e6:,.0f}", f"{hours:.2f}"]
        lines.append([row, *memory, *times, *ends, f"{_dollars(hours, devices):,.2f}"])
    refused = [row for row in rows if row not in all_hours]
    without = f", without {', '.join(refused)}, of which there is no program" if refused else ""
    notes = [
        f"{_all(all_hours, seeds, devices)}; training only{without}.",
        "Nothing here was run: computing is the compiler's estimate of its operations' cycles, "
        "which leaves out scatters and sorts; sending is the time of collectives at published "
        "rates, less what passes beside other operations. MB are sent by each chip in a step.",
    ]
    heads = "row,fits,GB a chip,estimated,computing ms,sending ms,MB,hours a run,dollars a run"
    tables.show([tables.Printed(heads.split(","), lines)], notes + _of_rates(base))


def _all(hours: Mapping[str, float], seeds: Mapping[str, int], devices: Chips) -> str:
    """A whole table, of whose rows one seed takes so many hours, in words."""
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
    """Where rates are from, and whether they are those of a base."""
    data = network.read_data()
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


def _fits(config: config_lib.Config, needed: float, devices: Chips) -> str:
    """Whether a run fits, and if not what would."""
    if needed <= devices.memory_gb:
        return f"yes, of {devices.memory_gb:g}"
    rows = config.train.batch_tokens // config.data.target_length
    data, fsdp, _ = sharding.mesh_sizes(config.mesh, devices.chips)
    for parts in range(2, rows // (data * fsdp) + 1):
        if rows % (parts * data * fsdp):
            continue
        changed = config_lib.replace(config, {"train.accumulation_steps": parts})
        if cost.memory_bytes(changed, devices.chips) / 1e9 <= devices.memory_gb:
            return f"with train.accumulation_steps={parts}"
    return f"no, of {devices.memory_gb:g}"
