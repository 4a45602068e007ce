"""Sequential operations of a compiled program: its longest chain of dependent instructions.

Reads the text of XLA's optimised HLO, `jax.stages.Compiled.as_text()`, in which each computation is
a block of instructions such as

  %dot.2 = f32[1,32]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

# They name, group, repeat or lay out anew values that are there already.
_FREE = set(
    "parameter constant iota tuple get-tuple-element after-all bitcast reshape transpose copy "
    "broadcast slice pad concatenate reverse".split()
)

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
# The name; its shape, which may be a tuple of shapes; the opcode; the operands; the attributes.
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = .*? ([a-z][\w\-]*)\(([^)]*)\)(.*)$")
_NOT_CALLS = re.compile(r"control-predecessors=|metadata=|backend_config=")
_NAME = re.compile(r"%([\w.\-]+)")
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    opcode: str
    operands: str
    attributes: str

    @property
    def called(self) -> Sequence[str]:
        """The computations that it names."""
        return _NAME.findall(_NOT_CALLS.split(self.attributes)[0])


def longest_chain(hlo: str) -> int:
    """The number of instructions that must follow one another, however many run at once.

    An instruction counts one, whatever the size of its arrays: so does a matrix product, and a
    reduction. Fusions and calls count as if what they hold stood in their place, a conditional
    counts its longest branch, and a while loop its body times its trip count, since a turn begins
    when the one before it has ended. What only names, groups, repeats or moves values counts
    nothing: how much of that there is, and what is fused, is the compiler's choice and changes with
    the sizes.

    Args:
      hlo: a compiled module's text.

    Raises:
      ValueError: there is no entry computation, or the compiler knows no trip count of a loop.
    """
    entry, computations = _read(hlo)

    def longest(computation: str, starts: Sequence[int]) -> int:
        """The longest chain that ends in a computation whose arguments end chains of `starts`."""
        ends: dict[str, int] = {}
        for instruction in computations[computation]:
            if instruction.opcode == "parameter":
                ends[instruction.name] = starts[int(instruction.operands)] if starts else 0
            else:
                before = [ends[name] for name in _NAME.findall(instruction.operands)]
                ends[instruction.name] = end(instruction, before)
        return max(ends.values(), default=0)

    def end(instruction: _Instruction, before: Sequence[int]) -> int:
        start = max(before, default=0)
        match instruction.opcode:
            case "fusion" | "call":
                return longest(instruction.called[0], before)
            case "conditional":
                return max(longest(branch, [start]) for branch in instruction.called)
            case "while":
                return start + _trip_count(instruction) * longest(_body(instruction), [0])
            case opcode if opcode in _FREE or opcode.endswith("-done"):
                return start
            case _:
                return start + 1

    return longest(entry, [])


def _read(hlo: str) -> tuple[str, Mapping[str, Sequence[_Instruction]]]:
    """The entry's name, and each computation's instructions, operands before what uses them."""
    entry = ""
    computations: dict[str, list[_Instruction]] = {}
    block: list[_Instruction] = []
    for line in hlo.splitlines():
        if head := _COMPUTATION.match(line):
            block = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif found := _INSTRUCTION.match(line):
            block.append(_Instruction(*found.groups()))
    if not entry:
        raise ValueError("this is not the text of a compiled module: it has no ENTRY")
    return entry, computations


def _trip_count(loop: _Instruction) -> int:
    if found := _TRIP_COUNT.search(loop.attributes):
        return int(found[1])
    raise ValueError(f"the compiler does not know how often {loop.name} turns")


def _body(loop: _Instruction) -> str:
    found = re.search(r"body=%([\w.\-]+)", loop.attributes)
    assert found, loop
    return found[1]
