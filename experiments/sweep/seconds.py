"""Training steps that take as many seconds as base's: for --match=seconds, kept in seconds.json."""

import hashlib
import json
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch import engine, local
from transformer_jax import config as config_lib
from transformer_jax import errors, files

# What a step's time does not depend on: numbers that its program takes as arguments or constants.
TIMELESS = """
    num_steps warmup_steps learning_rate_scale label_smoothing adam_beta2 seed dropout_rate
""".split()
NAME = "seconds.json"
_ENTRY = {"row": str, "ratio": float, "devices": str}


def key(config: config_lib.Config) -> str:
    """What two configurations share whose steps take equally long."""
    values = config_lib.to_dict(config)
    content = {
        section: {name: value for name, value in values[section].items() if name not in TIMELESS}
        for section in ("model", "train", "mesh")
    }
    content["data"] = {
        name: values["data"][name] for name in ("vocab_size", "source_length", "target_length")
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read(workdir: pathlib.Path, base: config_lib.Config) -> dict[str, float]:
    """By `key`, how many of base's steps a step takes, as far as it was measured.

    Raises:
      UserError: seconds.json is damaged.
    """
    start = f"{key(base)} "
    found = {
        name.removeprefix(start): entry["ratio"]
        for name, entry in entries(workdir).items()
        if name.startswith(start)
    }
    return {**found, key(base): 1.0}


def devices(workdir: pathlib.Path, base: config_lib.Config) -> list[str]:
    """What the numbers of a sweep were measured on; nothing, if there are none."""
    start = f"{key(base)} "
    found = entries(workdir).items()
    return sorted({entry["devices"] for name, entry in found if name.startswith(start)})


def require_measured_on(here: str, workdir: pathlib.Path, base: config_lib.Config) -> None:
    """Raises UserError if a sweep's numbers are of other devices than its runs would have here."""
    for there in devices(workdir, base):
        if there != here:
            raise errors.UserError(
                f"{workdir / NAME}: seconds a step were measured on {there}, and runs would have "
                f"{here} (--parallel): run them on the former, or delete that file to measure here"
            )


def measured(
    base: config_lib.Config,
    rows: Mapping[str, Mapping[str, Any]],
    workdir: pathlib.Path,
    config: Sequence[str],
    cache_dir: pathlib.Path,
    devices_here: Callable[[], local.Devices],
) -> dict[str, float]:
    """As `read`, once what is missing of some rows has been measured (`step_time`).

    A sweep's own process keeps off the devices; the one that measures has those, and the cores, of
    one of the sweep's runs.

    Args:
      base: what they are compared with.
      rows: what each changes.
      workdir: the sweep's folder.
      config: --config and its overrides.
      cache_dir: where compiled programs are kept.
      devices_here: how this machine's devices are shared out among the sweep's runs.

    Raises:
      UserError: a row cannot be measured, or not here.
    """
    known = read(workdir, base)
    missing = {
        row: dict(overrides)
        for row, overrides in rows.items()
        if key(config_lib.replace(base, overrides)) not in known
    }
    if not missing:
        return known
    share = devices_here()
    print(f"measuring the seconds a step of {', '.join(missing)}", file=sys.stderr, flush=True)
    arguments = [
        f"--workdir={workdir}",
        f"--cache_dir={cache_dir}",
        f"--rows={json.dumps(missing)}",
        f"--devices={share.described}",
    ]
    command = [sys.executable, "-m", "experiments.sweep.step_time", *config, *arguments]
    job = engine.Job("step_time", "step-time", command, workdir / "seconds.log")
    job.log.unlink(missing_ok=True)
    codes: list[int] = []
    local.run([job], share, lambda _, code: codes.append(code), lambda _: None)
    lines = job.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if codes != [0]:
        said = lines[-1].removeprefix("error: ") if lines else "no output"
        raise errors.UserError(f"--match=seconds: {said} (see {job.log})")
    return read(workdir, base)


def entries(workdir: pathlib.Path) -> dict[str, dict[str, Any]]:
    """What was measured, by the keys of base and the row.

    Raises:
      UserError: seconds.json is damaged.
    """
    path = workdir / NAME
    if not path.exists():
        return {}
    remedy = "delete it and start the sweep again, which measures anew"
    found = files.read_json(path, {str: _ENTRY}, remedy)
    if any(entry["ratio"] <= 0 for entry in found.values()):
        raise errors.UserError(f"{path} is damaged (a ratio is not above 0): {remedy}")
    return found
