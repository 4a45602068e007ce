"""Steps to compile, and what is read from what was compiled."""

import collections
import dataclasses
from typing import Any

import jax

from configs import base, toy
from experiments.benchmarks import compiled, hlo, partitioned
from transformer_jax import config as config_lib

CONFIGS = {"base": base.get_config, "toy": toy.get_config}
# One layer, and rows for eight devices.
SMALL = {
    "model__num_layers": 1,
    "data__source_length": 40,
    "data__target_length": 40,
    "train__batch_tokens": 640,
}


def config(name: str, **overrides: Any) -> config_lib.Config:
    """A config in bfloat16; fields with two underscores for the dot."""
    found = CONFIGS[name]()
    fields = {field.replace("__", "."): value for field, value in overrides.items()}
    found.update_from_flattened_dict({"model.compute_dtype": "bfloat16", **fields})
    return config_lib.from_mapping(found.to_dict())


def small(**overrides: Any) -> config_lib.Config:
    """The toy's config, of one layer."""
    return config("toy", **{**SMALL, **overrides})


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A program, and the text of it taken apart."""

    program: jax.stages.Compiled
    module: hlo.Module

    def collectives(self) -> collections.Counter[str]:
        """How many of each kind a step runs."""
        found = collections.Counter()
        for one in partitioned.collectives(self.module, 8):
            found[one.kind] += one.times
        return found


def step(config: config_lib.Config, devices: Any) -> Compiled:
    """A run's step, compiled."""
    program = compiled.compile_step(config, devices)
    return Compiled(program, hlo.read(program.as_text() or ""))


def require_donated(program: jax.stages.Compiled) -> None:
    """The whole state is given in place: what else comes out are four numbers."""
    analysis = program.memory_analysis()
    assert analysis is not None
    assert analysis.alias_size_in_bytes > 0
    others = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    assert 0 <= others < 16_384  # four numbers and the tuple's table, each padded
