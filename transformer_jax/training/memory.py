"""How much memory training will take, known from the compiled step before any is taken."""

import itertools
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import flax.linen as nn
import jax

from transformer_jax import config as config_lib
from transformer_jax import models
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)


def of_program(program: jax.stages.Compiled) -> int:
    """Bytes that a program holds on each device while it runs: arguments, results, temporaries."""
    analysis = program.memory_analysis()
    if analysis is None:
        raise config_lib.RunError("the compiler of this device does not say what memory it plans")
    return (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes  # results that take the place of arguments
        + analysis.temp_size_in_bytes
    )


def of_device(device: Any) -> int:
    """Bytes that programs may use on an accelerator; on a CPU, all that the machine has."""
    stats = device.memory_stats()
    if stats:
        return stats["bytes_limit"]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check(
    program: jax.stages.Compiled, config: config_lib.Config, mesh: jax.sharding.Mesh, runs: int
) -> None:
    """Prints how much memory a compiled step takes.

    Args:
      program: from `step.compile_step`.
      config: the run.
      mesh: the devices.
      runs: as given to `compile_step`.

    Raises:
      UserError: it is more than there is; the message says what would fit.
    """
    needed, there = of_program(program), of_device(mesh.local_devices[0])
    _log.info(
        "the step takes %s of memory, of %s on each device", _written(needed), _written(there)
    )
    if needed > there:
        fitting = _describe(config, mesh, runs, there)
        raise config_lib.UserError(
            f"the step takes {_written(needed)} of memory, but the device has {_written(there)}: "
            f"{fitting or 'take a smaller train.batch_tokens, or share it out over more devices'}"
        )


def _describe(config: config_lib.Config, mesh: jax.sharding.Mesh, runs: int, there: int) -> str:
    """The smallest of some changes of a config that let it fit, or nothing."""
    for changes in _smaller(config):
        try:
            changed = config_lib.replace(config, changes)
            model: nn.Module = models.build(changed.model, changed.data.vocab_size)
            needed = of_program(step_lib.compile_step(model, changed, mesh, runs))
        except config_lib.UserError:  # that many parts do not divide the batch, for one
            continue
        if needed <= there:
            flags = " ".join(f"--config.{field}={value}" for field, value in changes.items())
            return f"with {flags} it takes {_written(needed)}"
    return ""


def _smaller(config: config_lib.Config) -> Iterator[Mapping[str, Any]]:
    """Configs of the same result that take less and less memory."""
    remat = [] if config.model.rematerialise else [{"model.rematerialise": True}]
    yield from remat
    rows = config.train.batch_tokens // config.data.target_length
    for factor in itertools.takewhile(lambda n: n <= rows, (2**n for n in itertools.count(1))):
        parts = {"train.accumulation_steps": factor * config.train.accumulation_steps}
        yield parts
        yield from ({**parts, **each} for each in remat)


def _written(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
