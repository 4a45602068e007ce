"""What each device does in a compiled program, read from its text.

A TPU's compiler writes an estimate of its cycles to each operation, and operations in the order in
which they run. To collectives, scatters and sorts it writes none.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from experiments.benchmarks import hlo

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

_NUMBERED = re.compile(r"\[([\d,]+)\](?:<=\[([\d,]+)\])?(?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\](?:, device_ids=\((.*?\]\S*)\))? \{([^}]*)\}")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_CHANNEL = re.compile(r"channel_id=(\d+)")
# A TPU's compiler lets a collective run beside products: it writes it, with the same channel, into
# the fusion that begins it, into those beside which it runs, and into the one that awaits it.
_BEGINS, _AWAITS = "AsyncCollectiveStart", "AsyncCollectiveDone"
_BESIDE = "chain_id="
# And it makes one fusion of an all-reduce of which each device needs a part.
_SCATTERED = "all-reduce-scatter"


@dataclasses.dataclass(frozen=True)
class Collective:
    """One exchange among the devices of each group.

    A group shares an array, or arrays: what all-reduce sums, what all-gather and all-to-all result
    in, what reduce-scatter starts from.
    """

    kind: str  # one of `COLLECTIVES`
    array_bytes: int  # of the whole
    group: tuple[int, ...]  # the devices of the first group, by number; all groups are alike
    times: int = 1  # how often a step runs it
    beside: bool = False  # whether other operations run beside it, until one needs its result

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


class Computing(NamedTuple):
    """An operation of so many cycles, which holds a matrix product or does not."""

    cycles: int
    product: bool


class Sending(NamedTuple):
    """A collective begins; if it is `beside`, it goes on until its key is awaited."""

    key: str
    collective: Collective


class Awaiting(NamedTuple):
    """The collective of a key has to have ended."""

    key: str


Event = Computing | Sending | Awaiting


def events(module: hlo.Module, devices: int, name: str = "") -> Iterator[Event]:
    """What one step, or a named computation, does, in the text's order; loops turn by turn.

    Raises ValueError if a loop turns as often as its data say.
    """
    name = name or module.entry
    block = module.computations[name]
    custom = "".join(one.attributes for one in block if one.opcode == "custom-call")
    for one in block:
        if estimate := _CYCLES.search(one.attributes):
            yield Computing(int(estimate[1]), _multiplies(module, one))
        if re.sub("-(start|done)$", "", one.opcode) in COLLECTIVES:
            yield from _sending(one, devices, name, custom)
            continue
        # The estimate of what calls a computation is that of all that stands in it.
        inside = [
            event
            for called in one.called
            for event in events(module, devices, called)
            if not (estimate and isinstance(event, Computing))
        ]
        turns = module.turns(one) if one.opcode == "while" and inside else 1
        yield from turns * inside


def _sending(one: hlo.Instruction, devices: int, name: str, custom: str) -> Iterator[Event]:
    """What a collective does, in a computation of a name and with such calls of the library's."""
    if one.opcode.endswith("-done"):
        yield Awaiting(one.operands[0])
    elif _BESIDE in one.attributes:
        channel = _CHANNEL.findall(one.attributes)[0]
        if _BEGINS in custom:
            yield Sending(channel, dataclasses.replace(_collective(one, devices), beside=True))
        elif _AWAITS in custom:
            yield Awaiting(channel)
    else:
        found = _collective(one, devices)
        if name.startswith(_SCATTERED):
            found = dataclasses.replace(found, kind="reduce-scatter")
        yield Sending(one.name, found)


def _multiplies(module: hlo.Module, one: hlo.Instruction) -> bool:
    return one.opcode == "convolution" or any(
        _multiplies(module, each) for called in one.called for each in module.computations[called]
    )


def collectives(module: hlo.Module, devices: int) -> list[Collective]:
    """Those that one step runs among several devices, each once, with how often it runs."""
    found = [event for event in events(module, devices) if isinstance(event, Sending)]
    times = collections.Counter(event.key for event in found)
    once = {event.key: event.collective for event in found if len(event.collective.group) > 1}
    return [dataclasses.replace(one, times=times[key]) for key, one in once.items()]


def _collective(one: hlo.Instruction, devices: int) -> Collective:
    kind, rest = one.opcode.removesuffix("-start"), one.attributes
    arrays, beside = one.arrays, one.opcode.endswith("-start")
    if beside and kind != "all-reduce":  # the others name what they take before what they result in
        arrays = [each for each in arrays if (each.dtype, each.sizes) != ("u32", ())]  # and flags
        arrays = arrays[len(arrays) // 2 :]
    size = sum(each.bytes for each in arrays)
    if kind == "collective-permute":
        pairs = rest.split("source_target_pairs=")[1].split("}}")[0]
        members = tuple(sorted(set(map(int, re.findall(r"\d+", pairs)))))
        return Collective(kind, size, members, beside=beside)
    group = _first_group(rest.split("replica_groups=")[1], devices)
    whole = size * len(group) if kind == "reduce-scatter" else size
    return Collective(kind, whole, group, beside=beside)


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
