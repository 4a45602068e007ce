"""What each device does in a partitioned program, read from its text: collectives and products.

Both texts that XLA writes will do for collectives: that of
the compiled program, `jax.stages.Compiled.as_text()`, and that of the program as its partitioner
left it. Products stand as such only in the latter: a CPU's compiler makes other calls of them.
"""

import dataclasses
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from experiments import hlo

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

_ARRAY = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body|branch_computations)=\{?((?:%[\w.\-]+(?:, )?)+)")
_NUMBERED = re.compile(r"\[([\d,]+)\](?:<=\[([\d,]+)\])?(?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\](?:, device_ids=\((.*?\]\S*)\))? \{([^}]*)\}")


@dataclasses.dataclass(frozen=True)
class Collective:
    """One exchange among the devices of each group.

    Attributes:
      kind: one of `COLLECTIVES`.
      array_bytes: of the whole array, or arrays, that a group shares: what all-reduce sums, what
        all-gather and all-to-all result in, what reduce-scatter starts from.
      group: the devices of the first group, by number; all groups are alike.
      times: how often a step runs it.
    """

    kind: str
    array_bytes: int
    group: tuple[int, ...]
    times: int = 1

    @property
    def sent_bytes(self) -> float:
        """What each device sends in a step, by the ring algorithm.

        Of n devices, each passes on all of the array but one part of n; in an all-reduce, which is
        a reduce-scatter and an all-gather, twice; in a collective-permute it sends what it has.
        """
        if self.kind == "collective-permute":
            return self.times * self.array_bytes
        turns = 2 if self.kind == "all-reduce" else 1
        return self.times * turns * self.array_bytes * (1 - 1 / len(self.group))


@dataclasses.dataclass(frozen=True)
class Module:
    """The text of a module, taken apart.

    Attributes:
      entry: the name of the computation that a step is.
      computations: the instructions of each.
      shapes: of each instruction's result, by name.
    """

    entry: str
    computations: Mapping[str, Sequence[hlo.Instruction]]
    shapes: Mapping[str, str]


def parse(text: str) -> Module:
    """Takes a module's text apart.

    Raises:
      ValueError: there is no entry computation.
    """
    entry, computations = hlo.read(text)
    shapes = {each.name: each.shape for block in computations.values() for each in block}
    return Module(entry, computations, shapes)


def collectives(module: Module, devices: int) -> list[Collective]:
    """Those that one step runs among several devices.

    Args:
      module: from `parse`.
      devices: that run it.

    Raises:
      ValueError: one stands in a loop whose number of turns the compiler does not know, or is
        asynchronous.
    """
    wanted = [*COLLECTIVES, *(f"{kind}-start" for kind in COLLECTIVES)]
    found = [
        dataclasses.replace(_collective(instruction, devices), times=times)
        for times, instruction in _run(module, module.entry, wanted)
    ]
    return [one for one in found if len(one.group) > 1]


def matrix_flops(module: Module) -> int:
    """Operations of one device's matrix products in a step: 2 for each number multiplied and added.

    Raises:
      ValueError: one stands in a loop whose number of turns the compiler does not know.
    """
    total = 0
    for times, product in _run(module, module.entry, ["dot"]):
        left = hlo.NAME.findall(product.operands)[0]
        _, sizes = _arrays(module.shapes[left])[0]
        contracted = re.findall(r"lhs_contracting_dims=\{([\d,]*)\}", product.attributes)[0]
        _, result = _arrays(product.shape)[0]
        shared = math.prod(sizes[axis] for axis in _integers(contracted))
        total += 2 * times * math.prod(result) * shared
    return total


def total_bytes(found: Sequence[Collective], kind: str) -> int:
    """Of the arrays of all collectives of a kind in a step."""
    return sum(one.times * one.array_bytes for one in found if one.kind == kind)


def _run(
    module: Module, name: str, wanted: Collection[str]
) -> Iterator[tuple[int, hlo.Instruction]]:
    """Instructions of some opcodes, in a computation and in those it calls, with how often."""
    for instruction in module.computations[name]:
        if instruction.opcode in wanted:
            yield 1, instruction
            continue
        inside = [
            found
            for group in _CALLED.findall(instruction.attributes)
            for called in hlo.NAME.findall(group)
            for found in _run(module, called, wanted)
        ]
        turns = instruction.turns if instruction.opcode == "while" and inside else 1
        yield from ((turns * times, found) for times, found in inside)


def _collective(instruction: hlo.Instruction, devices: int) -> Collective:
    kind, rest = instruction.opcode, instruction.attributes
    if kind.endswith("-start"):
        raise ValueError(f"{kind} is asynchronous: read a program that is not yet scheduled so")
    size = sum(math.prod(sizes) * _item_bytes(dtype) for dtype, sizes in _arrays(instruction.shape))
    if kind == "collective-permute":
        pairs = rest.split("source_target_pairs=")[1].split("}}")[0]
        return Collective(kind, size, tuple(sorted(set(map(int, re.findall(r"\d+", pairs))))))
    group = _first_group(rest.split("replica_groups=")[1], devices)
    return Collective(kind, size * len(group) if kind == "reduce-scatter" else size, group)


def _arrays(shape: str) -> list[tuple[str, list[int]]]:
    """Types and sizes, of one array or of all of a tuple."""
    return [(dtype, _integers(sizes)) for dtype, sizes in _ARRAY.findall(shape)]


def _item_bytes(dtype: str) -> int:
    bits = 8 if dtype == "pred" else int(re.findall(r"\d+", dtype)[0])
    return -(-bits // 8)


def _first_group(text: str, devices: int) -> tuple[int, ...]:
    """The devices of the first group, from any of the forms in which XLA writes groups.

    Those are lists, {{0,1},{2,3}}; rows of numbered devices, [2,4]<=[8] or [4,2]<=[2,4]T(1,0); and
    axes of a mesh, mesh['a'=2,'b'=4] {'b'}, perhaps with device_ids=([4,2]T(1,0)).
    """
    if text.startswith("{}"):
        return tuple(range(devices))
    if text.startswith("{{"):
        return tuple(_integers(text[2:].split("}")[0]))
    if mesh := _MESH.match(text):
        sizes = {axis: int(size) for axis, size in re.findall(r"'(\w+)'=(\d+)", mesh[1])}
        numbers = _numbered(mesh[2] or f"[{devices}]").reshape(list(sizes.values()))
        chosen = re.findall(r"'(\w+)'", mesh[3])
        where = tuple(slice(None) if axis in chosen else 0 for axis in sizes)
        return tuple(numbers[where].ravel().tolist())
    return tuple(_numbered(text)[0].ravel().tolist())


def _numbered(text: str) -> np.ndarray:
    """Devices by number: counted in one shape, transposed, and put in another, where it stands."""
    found = _NUMBERED.match(text)
    if not found:
        raise ValueError(f"these groups of devices have an unknown form: {text[:60]}")
    shape = _integers(found[1])
    counted = np.arange(math.prod(shape)).reshape(_integers(found[2] or found[1]))
    if found[3]:
        counted = counted.transpose(_integers(found[3]))
    return counted.reshape(shape) if found[2] else counted


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]
