r"""Training steps that take as many seconds as base's: for --match=seconds, kept in seconds.json.

  python -m experiments.sweep.seconds --config=configs/toy.py --workdir=DIR \
      --cache_dir=DIR/cache --rows='{"A h=1": {"model.num_heads": 1}}'

measures what DIR/seconds.json does not have yet, and adds it; a sweep starts it.
"""

import hashlib
import json
import logging
import math
import pathlib
import statistics
import sys
import timeit
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from absl import flags

from experiments.benchmarks import measuring, ours
from experiments.sweep import cells
from launch import engine, local
from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files, models, sequences
from transformer_jax import flags as flags_lib
from transformer_jax.data import objectives, vocabulary
from transformer_jax.distributed import sharding
from transformer_jax.training import step as step_lib

_log = logging.getLogger("transformer_jax.step_time")

# What a step's time does not depend on: numbers that its program takes as arguments or constants.
TIMELESS = """
    num_steps warmup_steps learning_rate_scale label_smoothing adam_beta2 seed dropout_rate
    objective objective_steps start_from
""".split()
NAME = "seconds.json"
_ENTRY = {"row": str, "ratio": fields.Above0, "devices": str}
SECONDS_A_ROW = 5  # of measuring, where rounds are quick
ROUNDS = (5, 50)  # in which base and the row take turns: at least, at most


def key(config: config_lib.Config) -> str:
    """What two configurations share whose steps take equally long."""
    values = config_lib.to_dict(config)
    content: dict[str, Any] = {
        section: {name: value for name, value in values[section].items() if name not in TIMELESS}
        for section in ("model", "train", "mesh")
    }
    content["data"] = {
        name: values["data"][name] for name in ("vocab_size", "source_length", "target_length")
    }
    content["asks_few"] = objectives.asks_few(config)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _entries(workdir: pathlib.Path) -> dict[str, dict[str, Any]]:
    """What was measured, by the keys of base and the row."""
    path = workdir / NAME
    if not path.exists():
        return {}
    remedy = "delete it and start the sweep again, which measures anew"
    return files.read_json(path, {str: _ENTRY}, remedy)


def _of_base(workdir: pathlib.Path, base: config_lib.Config, field: str) -> dict[str, Any]:
    """A field of what was measured of rows beside this base, by `key`."""
    start, found = f"{key(base)} ", _entries(workdir).items()
    return {name.removeprefix(start): e[field] for name, e in found if name.startswith(start)}


def read(workdir: pathlib.Path, base: config_lib.Config) -> dict[str, float]:
    """By `key`, how many of base's steps a step takes, as far as it was measured."""
    return {**_of_base(workdir, base, "ratio"), key(base): 1.0}


def devices(workdir: pathlib.Path, base: config_lib.Config) -> list[str]:
    """What the numbers of a sweep were measured on; nothing, if there are none."""
    return sorted({*_of_base(workdir, base, "devices").values()})


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
    cache_dir: pathlib.Path,
    devices_here: Callable[[], local.Devices],
) -> dict[str, float]:
    """As `read`, once what is missing of some rows has been measured.

    A process of its own measures, on the devices and cores that `devices_here` gives one run; the
    sweep's process touches none. UserError names a row that cannot be measured, or not here.
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
    require_measured_on(share.described, workdir, base)
    print(f"measuring the seconds a step of {', '.join(missing)}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "experiments.sweep.seconds", f"--rows={json.dumps(missing)}"]
    command += [f"--workdir={workdir}", f"--cache_dir={cache_dir}", f"--devices={share.described}"]
    command += cells.config_arguments(flags_lib.overrides())
    job = engine.Job("step_time", "step-time", command, workdir / "seconds.log")
    job.log.unlink(missing_ok=True)
    codes: list[int] = []
    local.run([job], share, lambda _, code: codes.append(code), lambda _: None)
    if codes != [0]:
        said = cells.last_line(job.log).removeprefix("error: ")
        raise errors.UserError(f"--match=seconds: {said} (see {job.log})")
    return read(workdir, base)


def _training(config: config_lib.Config) -> Callable[[], object]:
    """Steps of a configuration, on random words that fill all rows; a call is one, to its end."""
    mesh, data = sharding.make_mesh(config.mesh), config.data
    model = models.build(config.model, vocabulary.size(config))
    program = step_lib.compile_step(model, config, mesh)
    rows, random = sharding.rows_of(config, mesh), np.random.default_rng(0)
    source, target = (
        sequences.Sequences(  # rows of one sentence each
            random.integers(0, data.vocab_size, (rows, length), np.int32),
            np.ones((rows, length), np.int32),
            np.tile(np.arange(length, dtype=np.int32), (rows, 1)),
        )
        for length in (data.source_length, data.target_length)
    )
    batch = sequences.Batch(source, target, target.tokens)
    step = ours.stepping(config, mesh, program, [batch])
    return lambda: jax.block_until_ready(step())


def _compare(base: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Median seconds a step of base, and the median over rounds of how many such another takes."""
    for each in (base, other):
        each()  # the first is slower
    once = timeit.timeit(base, number=1) + timeit.timeit(other, number=1)
    rounds = np.clip(math.ceil(SECONDS_A_ROW / once), *ROUNDS)
    samples = measuring.time_interleaved([base, other], int(rounds), lambda _: None)
    ratios = [row / of_base for of_base, row in zip(*samples, strict=True)]
    return statistics.median(samples[0]), statistics.median(ratios)


def main() -> None:
    """Measures what --rows names and is not known yet."""
    workdir = files.local_path(_WORKDIR.value)
    cache_dir = flags_lib.cache_dir(_CACHE_DIR.value, workdir)
    jax.config.update("jax_compilation_cache_dir", str((cache_dir / "xla").absolute()))
    base = flags_lib.read_config(_CONFIG)
    of_base: Callable[[], object] | None = None
    for row, overrides in files.parse_json(_ROWS.value.encode(), {str: dict}).items():
        try:
            config = config_lib.replace(base, overrides)
            if key(config) in read(workdir, base):
                continue  # another row's steps are the same
            of_base = of_base or _training(base)
            of_step, ratio = _compare(of_base, _training(config))
        except errors.UserError as error:
            raise errors.UserError(f"row {row!r}: {error}") from error
        where = {"devices": _DEVICES.value, "measured": measuring.describe_machine()}
        entry = {"row": row, "ratio": ratio, "base_seconds": of_step, **where}
        name = f"{key(base)} {key(config)}"
        files.write_json(workdir / NAME, {**_entries(workdir), name: entry})
        _log.info("%s: a step takes %.3f times base's %.4f seconds", row, ratio, of_step)


if __name__ == "__main__":
    _CONFIG = flags_lib.define_config()
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder.", required=True)
    _CACHE_DIR = flags.DEFINE_string("cache_dir", "", "The sweep's cache; default WORKDIR/cache.")
    _ROWS = flags.DEFINE_string("rows", "{}", "What to measure: rows and overrides, as JSON.")
    _DEVICES = flags.DEFINE_string("devices", "", "What they are measured on, for seconds.json.")
    flags_lib.run(main)
