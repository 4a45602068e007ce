"""Whether training fits into the devices' memory, known before any is taken."""

import contextlib
import logging
import math
import re
from collections.abc import Iterator
from typing import Any

import jax

from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import vocabulary
from transformer_jax.distributed import memory
from transformer_jax.models import interface
from transformer_jax.training import step as step_lib

_log = logging.getLogger(__name__)

# A TPU's compiler refuses what does not fit, and says what it takes and what there is:
# "… HLO temporaries (473.08G) exceeds available HBM (15.75G)", "Used 18.20G of 15.75G hbm".
_REFUSAL = re.compile(
    r"RESOURCE_EXHAUSTED.*?([\d.]+)([KMGT])\)? (?:exceeds available HBM \(|of )([\d.]+)([KMGT])",
    re.DOTALL,
)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class TooLittleMemoryError(errors.UserError):
    """A step takes more memory than the devices have."""


def compile_step(
    model: interface.Architecture, config: config_lib.Config, mesh: jax.sharding.Mesh
) -> jax.stages.Compiled:
    """`step.compile_step`'s step, having said how much memory it takes.

    Raises:
      TooLittleMemoryError: it is more than there is; the message says what would fit.
    """
    with refusals_explained(config, mesh):
        program = step_lib.compile_step(model, config, mesh)
    needed, there = memory.of_program(program), memory.of_device(mesh)
    if needed is None or there is None:
        _log.info("this device does not say how much memory a step takes, or how much there is")
        return program
    _log.info("a step takes %s of memory, of %s on each device", _written(needed), _written(there))
    if needed > there:
        raise _too_little(config, mesh, needed, there)
    return program


@contextlib.contextmanager
def refusals_explained(config: config_lib.Config, mesh: jax.sharding.Mesh) -> Iterator[None]:
    """A compiler that refuses, in here, what does not fit says so as `compile_step` does.

    Raises:
      TooLittleMemoryError: the compiler refused; the message says what would fit.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        found = _REFUSAL.search(str(error))
        if not found:
            raise
        needed, there = (round(float(found[group]) * _UNITS[found[group + 1]]) for group in (1, 3))
        raise _too_little(config, mesh, needed, there) from error


def _too_little(
    config: config_lib.Config, mesh: jax.sharding.Mesh, needed: int, there: int
) -> TooLittleMemoryError:
    return TooLittleMemoryError(
        f"a step takes {_written(needed)} of memory, but the device has {_written(there)}: "
        f"{_remedy(config, mesh, needed, there)}"
    )


def _remedy(config: config_lib.Config, mesh: jax.sharding.Mesh, needed: int, there: int) -> str:
    """The first of a few changes of a config that lets it fit into the bytes that are there."""
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
            model = models.build(changed.model, vocabulary.size(changed))
            takes = memory.of_program(step_lib.compile_step(model, changed, mesh))
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
