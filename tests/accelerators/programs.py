"""Steps to compile, and what is read from what was compiled."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from configs import base, toy
from experiments.benchmarks import compiled, hlo, partitioned
from transformer_jax import config as config_lib

# How a GPU's compiler calls cuBLAS, and what else it makes kernels of.
LIBRARY = "__cublas"
KERNELS = ("fusion", "custom-call", "copy", "dot", "convolution", "reduce", "sort", "scatter")
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


def total_bytes(found: Sequence[partitioned.Collective], kind: str) -> int:
    """Of the arrays of all collectives of a kind in a step."""
    return sum(one.times * one.array_bytes for one in found if one.kind == kind)


def cycles(module: hlo.Module) -> int:
    """A TPU compiler's estimate of a step, which has none for collectives, scatters and sorts."""
    events = partitioned.events(module, 8)
    return sum(event.cycles for event in events if isinstance(event, partitioned.Computing))


def wide_products(module: hlo.Module) -> list[str]:
    """Names of the products of two float32 operands, in all of a module's computations.

    Raises:
      ValueError: no product at all is found.
    """
    named = by_name(module)

    def is_product(one: hlo.Instruction) -> bool:
        return one.opcode in ("dot", "convolution") or LIBRARY in one.attributes

    def is_wide(operand: str) -> bool:
        return operand in named and named[operand].shape.startswith("f32[")

    products = {name: one for name, one in named.items() if is_product(one)}
    if not products:
        raise ValueError("the module has no products")
    return [name for name, one in products.items() if all(map(is_wide, one.operands[:2]))]


def moved_bytes(module: hlo.Module) -> int:
    """What the kernels of a step on a GPU read and write, as if none were read twice.

    Raises:
      ValueError: a loop turns as often as its data say.
    """
    named = by_name(module)

    def size(one: hlo.Instruction) -> int:
        """But for a library's room for work."""
        return sum(array.bytes for array in one.arrays if array.dtype != "s8")

    def moved(one: hlo.Instruction) -> int:
        if one.opcode in KERNELS:
            return size(one) + sum(size(named[operand]) for operand in one.operands)
        inside = sum(moved(each) for name in one.called for each in module.computations[name])
        return inside * (module.turns(one) if one.opcode == "while" and inside else 1)

    return sum(map(moved, module.computations[module.entry]))


def by_name(module: hlo.Module) -> dict[str, hlo.Instruction]:
    """All instructions."""
    return {one.name: one for block in module.computations.values() for one in block}
