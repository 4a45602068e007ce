"""How much memory training will take, known from the compiled step before any is taken."""

import contextlib
import logging
import math
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax

from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)

# A TPU's compiler refuses what does not fit, and says what it takes and what there is:
# "… HLO temporaries (473.08G) exceeds available HBM (15.75G)", "Used 18.20G of 15.75G hbm".
_REFUSAL = re.compile(
    r"RESOURCE_EXHAUSTED.*?([\d.]+)([KMGT])\)? (?:exceeds available HBM \(|of )([\d.]+)([KMGT])",
    re.DOTALL,
)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def of_program(program: jax.stages.Compiled) -> int | None:
    """Bytes that a program holds on each device while it runs: arguments, results, temporaries.

    None where the device's compiler does not say.
    """
    analysis = program.memory_analysis()
    if analysis is None:
        return None
    return (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes  # results that take the place of arguments
        + analysis.temp_size_in_bytes
    )


def of_device(mesh: jax.sharding.Mesh) -> int | None:
    """Bytes that each device of a mesh may use.

    CPU devices share out what the machine, or the container, has. None where an accelerator does
    not say.
    """
    device = mesh.local_devices[0]
    stats = device.memory_stats() or {}
    if device.platform != "cpu":
        return stats.get("bytes_limit")
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    container = pathlib.Path("/sys/fs/cgroup/memory.max")
    if container.exists() and (text := container.read_text().strip()).isdigit():
        limits.append(int(text))
    return min(limits) // len(mesh.local_devices)


def check(
    program: jax.stages.Compiled, config: config_lib.Config, mesh: jax.sharding.Mesh, runs: int
) -> None:
    """Prints how much memory training takes.

    Args:
      program: from `step.compile_step`.
      config: the run.
      mesh: the devices.
      runs: as given to `compile_step`.

    Raises:
      UserError: it is more than there is; the message says what would fit.
    """
    needed, there = _needed(program, runs), of_device(mesh)
    if needed is None or there is None:
        _log.info("this device does not say how much memory a step takes, or how much there is")
        return
    _log.info("a step takes %s of memory, of %s on each device", _written(needed), _written(there))
    if needed > there:
        raise _too_little(config, mesh, runs, needed, there)


@contextlib.contextmanager
def refusals_explained(
    config: config_lib.Config, mesh: jax.sharding.Mesh, runs: int
) -> Iterator[None]:
    """A compiler that refuses, in here, what does not fit says so as `check` would.

    Args:
      config: the run.
      mesh: the devices.
      runs: as given to `compile_step`.

    Raises:
      UserError: the compiler refused; the message says what would fit.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        found = _REFUSAL.search(str(error))
        if not found:
            raise
        needed, there = (round(float(found[place]) * _UNITS[found[place + 1]]) for place in (1, 3))
        raise _too_little(config, mesh, runs, needed, there) from error


def _too_little(
    config: config_lib.Config, mesh: jax.sharding.Mesh, runs: int, needed: int, there: int
) -> errors.UserError:
    return errors.UserError(
        f"a step takes {_written(needed)} of memory, but the device has {_written(there)}: "
        f"{_remedy(config, mesh, runs, needed, there)}"
    )


def _needed(program: jax.stages.Compiled, runs: int) -> int | None:
    """At its peak: in a step, or when runs' states stand beside their stacked copy."""
    step, analysis = of_program(program), program.memory_analysis()
    if step is None or analysis is None or runs == 1:
        return step
    return max(step, 2 * analysis.alias_size_in_bytes)  # what is given in place is the state


def _remedy(
    config: config_lib.Config, mesh: jax.sharding.Mesh, runs: int, needed: int, there: int
) -> str:
    """The first of a few changes of a config that lets it fit.

    Args:
      config: the run.
      mesh: the devices.
      runs: that are trained together.
      needed: bytes that it takes on each device.
      there: bytes that each has.
    """
    if runs > 1:
        return "train fewer seeds together"
    rows = config.train.batch_tokens // config.data.target_length
    least = 2 ** math.ceil(math.log2(needed / there))
    tried: list[dict[str, Any]] = [
        {"train.accumulation_steps": parts * config.train.accumulation_steps}
        for parts in (least, 2 * least, 4 * least)
        if parts <= rows
    ]
    if mesh.local_devices[0].platform != "cpu":  # whose compiler keeps what it should forget
        tried.insert(0, {"model.rematerialise": True})
    for changes in tried:
        try:
            changed = config_lib.replace(config, changes)
            model: nn.Module = models.build(changed.model, changed.data.vocab_size)
            takes = of_program(step_lib.compile_step(model, changed, mesh))
        except errors.UserError:  # that many parts do not divide the batch, for one
            continue
        except jax.errors.JaxRuntimeError as error:
            if _REFUSAL.search(str(error)):
                continue
            raise
        if takes is not None and takes <= there:
            flags = " ".join(f"--config.{field}={value}" for field, value in changes.items())
            return f"with {flags} it takes {_written(takes)}"
    return "take a smaller train.batch_tokens, or share it out over more devices"


def _written(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
