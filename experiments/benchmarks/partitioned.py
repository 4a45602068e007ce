"""What each device does in a compiled program, read from its text, `Compiled.as_text()`.

A TPU's compiler writes an estimate of its cycles to each operation, and operations in the order in
which they run. To collectives, scatters and sorts it writes none.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from experiments.benchmarks import hlo

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

_ARRAY = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body|branch_computations)=\{?((?:%[\w.\-]+(?:, )?)+)")
_NUMBERED = re.compile(r"\[([\d,]+)\](?:<=\[([\d,]+)\])?(?:T\(([\d,]+)\))?")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_CHANNEL = re.compile(r"channel_id=(\d+)")
# A TPU's compiler lets a collective run beside products: it writes it, with the same channel, into
# the fusion that begins it, into those beside which it runs, and into the one that awaits it.
_BEGINS, _AWAITS = "AsyncCollectiveStart", "AsyncCollectiveDone"
_BESIDE = "chain_id="
# And it makes one fusion of an all-reduce of which each device needs a part.
_SCATTERED = "all-reduce-scatter"
# How a GPU's compiler calls cuBLAS, and what else it makes kernels of.
_LIBRARY = "__cublas"
_KERNELS = ("fusion", "custom-call", "copy", "dot", "convolution", "reduce", "sort", "scatter")
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
      beside: whether it runs beside other operations, which wait for its end only where they need
        its result.
    """

    kind: str
    array_bytes: int
    group: tuple[int, ...]
    times: int = 1
    beside: bool = False

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
class Computing:
    """An operation.

    Attributes:
      cycles: that it takes.
      product: whether it is a matrix product, with what is fused with it.
    """

    cycles: int
    product: bool


@dataclasses.dataclass(frozen=True)
class Sending:
    """A collective begins, and goes on beside operations until it is awaited, if it is `beside`.

    Attributes:
      name: its instruction's.
      collective: it.
      key: what `Awaiting` says.
    """

    name: str
    collective: Collective
    key: str


@dataclasses.dataclass(frozen=True)
class Awaiting:
    """A collective has to have ended."""

    key: str


Event = Computing | Sending | Awaiting


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
      ValueError: a loop turns as often as its data say.
    """
    found = [event for event in events(module, devices) if isinstance(event, Sending)]
    times = collections.Counter(event.name for event in found)
    once = {event.name: event.collective for event in found if len(event.collective.group) > 1}
    return [dataclasses.replace(one, times=times[name]) for name, one in once.items()]


def cycles(module: Module) -> int:
    """A TPU compiler's estimate of a step, which has none for collectives, scatters and sorts.

    Raises:
      ValueError: a loop turns as often as its data say.
    """
    return sum(event.cycles for event in events(module, 0) if isinstance(event, Computing))


def events(module: Module, devices: int, name: str = "") -> Iterator[Event]:
    """What one step does, in the order in which the text has it; loops turn by turn.

    Args:
      module: from `parse`.
      devices: that run it; 0: whatever their number, without what they send.
      name: of a computation, in place of the entry.

    Raises:
      ValueError: a loop turns as often as its data say.
    """
    name = name or module.entry
    block = module.computations[name]
    custom = "".join(one.attributes for one in block if one.opcode == "custom-call")
    for one in block:
        kind = re.sub("-(start|done)$", "", one.opcode)
        if estimate := _CYCLES.search(one.attributes):
            yield Computing(int(estimate[1]), _multiplies(module, one))
        if kind in COLLECTIVES:
            yield from _sending(one, kind, devices, name, custom) if devices else ()
            continue
        # The estimate of what calls a computation is that of all that stands in it.
        inside = [
            event
            for called in _called(one)
            for event in events(module, devices, called)
            if not (estimate and isinstance(event, Computing))
        ]
        turns = hlo.turns(one, module.computations) if one.opcode == "while" and inside else 1
        for _ in range(turns):
            yield from inside


def _sending(
    one: hlo.Instruction, kind: str, devices: int, name: str, custom: str
) -> Iterator[Event]:
    """What a collective does, in a computation of a name and with such calls of the library's."""
    if one.opcode == f"{kind}-done":
        yield Awaiting(hlo.NAME.findall(one.operands)[0])
    elif _BESIDE in one.attributes:
        channel = _CHANNEL.findall(one.attributes)[0]
        if _BEGINS in custom:
            found = dataclasses.replace(_collective(one, devices), beside=True)
            yield Sending(one.name, found, channel)
        elif _AWAITS in custom:
            yield Awaiting(channel)
    else:
        found = _collective(one, devices)
        if name.startswith(_SCATTERED):
            found = dataclasses.replace(found, kind="reduce-scatter")
        yield Sending(one.name, found, one.name)


def _multiplies(module: Module, instruction: hlo.Instruction) -> bool:
    return instruction.opcode == "convolution" or any(
        _multiplies(module, each)
        for called in _called(instruction)
        for each in module.computations[called]
    )


def wide_products(module: Module) -> list[str]:
    """Names of the products of two float32 operands, in all of a module's computations."""

    def is_wide(product: hlo.Instruction) -> bool:
        operands = hlo.NAME.findall(product.operands)[:2]
        return all(module.shapes.get(name, "").startswith("f32[") for name in operands)

    return [
        each.name
        for block in module.computations.values()
        for each in block
        if (each.opcode in ("dot", "convolution") or _LIBRARY in each.attributes) and is_wide(each)
    ]


def moved_bytes(module: Module, name: str = "") -> int:
    """What the kernels of a step read and write, as if none were read twice.

    Args:
      module: from `parse`.
      name: of a computation, in place of the entry.

    Raises:
      ValueError: a loop turns as often as its data say.
    """
    total = 0
    for one in module.computations[name or module.entry]:
        if one.opcode in _KERNELS:
            operands = [module.shapes[operand] for operand in hlo.NAME.findall(one.operands)]
            total += sum(map(_size, (one.shape, *operands)))
        elif inside := sum(moved_bytes(module, called) for called in _called(one)):
            turns = hlo.turns(one, module.computations) if one.opcode == "while" else 1
            total += turns * inside
    return total


def _size(shape: str) -> int:
    """Bytes of an array, or of all of a tuple, but for a library's room for work."""
    return sum(
        math.prod(sizes) * _item_bytes(dtype) for dtype, sizes in _arrays(shape) if dtype != "s8"
    )


def _called(instruction: hlo.Instruction) -> list[str]:
    """Names of the computations that it calls."""
    groups = _CALLED.findall(instruction.attributes)
    return [name for group in groups for name in hlo.NAME.findall(group)]


def total_bytes(found: Sequence[Collective], kind: str) -> int:
    """Of the arrays of all collectives of a kind in a step."""
    return sum(one.times * one.array_bytes for one in found if one.kind == kind)


def _collective(instruction: hlo.Instruction, devices: int) -> Collective:
    kind, rest = instruction.opcode, instruction.attributes
    arrays = _arrays(instruction.shape)
    beside = kind.endswith("-start")
    if beside:
        kind = kind.removesuffix("-start")
        if kind != "all-reduce":  # the others name what they take before what they result in
            arrays = [each for each in arrays if each != ("u32", [])]  # and then flags
            arrays = arrays[len(arrays) // 2 :]
    size = sum(math.prod(sizes) * _item_bytes(dtype) for dtype, sizes in arrays)
    if kind == "collective-permute":
        pairs = rest.split("source_target_pairs=")[1].split("}}")[0]
        members = tuple(sorted(set(map(int, re.findall(r"\d+", pairs)))))
        return Collective(kind, size, members, beside=beside)
    group = _first_group(rest.split("replica_groups=")[1], devices)
    whole = size * len(group) if kind == "reduce-scatter" else size
    return Collective(kind, whole, group, beside=beside)


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
