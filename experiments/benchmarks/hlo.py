"""A parser for the text of compiled XLA programs (HLO).

A program is a set of computations. A computation is a list of instructions, one per line, such as

  %all-reduce.1 = f32[512,8]{1,0} all-reduce(%dot.2), replica_groups=[4,2]<=[8], to_apply=%add

Here all-reduce is the opcode, and f32[512,8] is the shape of the result on one device.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

_NAME = re.compile(r"%([\w.\-]+)")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
# The name; its shape, which may be a tuple of shapes; the opcode; the operands; the attributes.
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(([^)]*)\)(.*)$")
_CALLED = re.compile(r"(?:calls|to_apply|body|branch_computations)=\{?((?:%[\w.\-]+(?:, )?)+)")
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CONDITION = re.compile(r"condition=%([\w.\-]+)")
_INDEX = re.compile(r"index=(\d+)")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation, as in the example of this module."""

    name: str  # all-reduce.1
    shape: str  # f32[512,8]{1,0}
    opcode: str  # all-reduce
    arguments: str  # %dot.2
    attributes: str  # the text after the arguments

    @property
    def operands(self) -> list[str]:
        """The names of the instructions whose results are this instruction's arguments."""
        return _NAME.findall(self.arguments)

    @property
    def called(self) -> list[str]:
        """The names of the computations that this instruction calls, such as a loop's body."""
        return _NAME.findall(" ".join(_CALLED.findall(self.attributes)))

    @property
    def number(self) -> int | None:
        """The value of an integer constant; None for any other instruction."""
        is_number = self.opcode == "constant" and self.arguments.isdigit()
        return int(self.arguments) if is_number else None


@dataclasses.dataclass(frozen=True)
class Module:
    """A program."""

    entry: str  # the name of the computation at which the program starts
    # Computations by name. An instruction follows the instructions whose results it takes.
    computations: Mapping[str, Sequence[Instruction]]

    def turns(self, loop: Instruction) -> int:
        """Returns the trip count of a while loop.

        If the program does not record the trip count, as on TPUs, it is derived from the limit and
        the increment of the loop's counter. The increment of an unrolled loop is above 1.

        Raises:
          ValueError: the trip count is neither recorded nor derivable.
        """
        if found := _TRIP_COUNT.search(loop.attributes):
            return int(found[1])
        found = _CONDITION.search(loop.attributes)
        condition = self.computations.get(found[1], []) if found else []
        limits = [each.number for each in condition if each.number is not None]
        counters = [each for each in condition if each.opcode == "get-tuple-element"]
        step = 0
        if len(limits) == len(counters) == 1 and condition[-1].opcode == "compare":
            step = self._step(loop, int(_INDEX.findall(counters[0].attributes)[0]))
        if not step:
            raise ValueError(f"the compiler does not know how often {loop.name} turns")
        return -(-limits[0] // step)

    def _step(self, loop: Instruction, place: int) -> int:
        """Returns the increment of a loop's counter, element `place` of its state; 0 if unknown."""
        body = [each for name in loop.called for each in self.computations[name]]
        if not body or body[-1].opcode != "tuple":
            return 0
        named = {each.name: each for each in body}
        counter = named[body[-1].operands[place]]
        numbers = [named[name].number for name in counter.operands]
        terms = [number for number in numbers if number is not None]
        return terms[0] if counter.opcode == "add" and len(terms) == 1 else 0


def read(text: str) -> Module:
    """Parses the text of a program, as `jax.stages.Compiled.as_text()` returns it.

    Raises:
      ValueError: the text has no entry computation.
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
    return Module(entry, computations)
