"""Programs as XLA writes them: computations of instructions, one to a line.

An instruction is, for instance,

  %all-reduce.1 = f32[512,8]{1,0} all-reduce(%dot.2), replica_groups=[4,2]<=[8], to_apply=%add

whose shape is the result on one device.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

NAME = re.compile(r"%([\w.\-]+)")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
# The name; its shape, which may be a tuple of shapes; the opcode; the operands; the attributes.
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(([^)]*)\)(.*)$")
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CONDITION = re.compile(r"condition=%([\w.\-]+)")
_BODY = re.compile(r"body=%([\w.\-]+)")
_INDEX = re.compile(r"index=(\d+)")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    shape: str
    opcode: str
    operands: str
    attributes: str


Computations = Mapping[str, Sequence[Instruction]]


def turns(loop: Instruction, computations: Computations) -> int:
    """How often a while loop runs its body.

    A TPU's compiler does not write it down: there a counter, which begins at 0, is compared with a
    constant, and the body adds another to it, which is more than 1 where turns were put together.

    Raises:
      ValueError: it is not known.
    """
    if found := _TRIP_COUNT.search(loop.attributes):
        return int(found[1])
    condition, body = (
        computations.get(found[1], []) if (found := which.search(loop.attributes)) else []
        for which in (_CONDITION, _BODY)
    )
    limits = [int(each.operands) for each in condition if _is_limit(each)]
    counters = [each for each in condition if each.opcode == "get-tuple-element"]
    if len(limits) == len(counters) == 1 and condition[-1].opcode == "compare":
        step = _step(body, int(_INDEX.findall(counters[0].attributes)[0]))
        if step:
            return -(-limits[0] // step)
    raise ValueError(f"the compiler does not know how often {loop.name} turns")


def _step(body: Sequence[Instruction], place: int) -> int:
    """The constant that a loop's body adds to what stands at a place; 0 if it is not known."""
    named = {each.name: each for each in body}
    if not body or body[-1].opcode != "tuple":
        return 0
    counted = named[NAME.findall(body[-1].operands)[place]]
    terms = [
        int(named[name].operands)
        for name in NAME.findall(counted.operands)
        if _is_limit(named[name])
    ]
    return terms[0] if counted.opcode == "add" and len(terms) == 1 else 0


def _is_limit(instruction: Instruction) -> bool:
    return instruction.opcode == "constant" and instruction.operands.isdigit()


def read(text: str) -> tuple[str, Computations]:
    """The entry's name, and each computation's instructions, operands before what uses them.

    Raises:
      ValueError: there is no entry computation.
    """
    entry = ""
    computations: dict[str, list[Instruction]] = {}
    block: list[Instruction] = []
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            block = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif found := _INSTRUCTION.match(line):
            block.append(Instruction(*found.groups()))
    if not entry:
        raise ValueError("this is not the text of a module: it has no ENTRY")
    return entry, computations
