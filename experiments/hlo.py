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


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    shape: str
    opcode: str
    operands: str
    attributes: str

    @property
    def turns(self) -> int:
        """How often a while loop runs its body.

        Raises:
          ValueError: the compiler does not know it.
        """
        if found := _TRIP_COUNT.search(self.attributes):
            return int(found[1])
        raise ValueError(f"the compiler does not know how often {self.name} turns")


def read(text: str) -> tuple[str, Mapping[str, Sequence[Instruction]]]:
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
