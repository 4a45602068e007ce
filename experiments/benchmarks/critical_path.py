"""Sequential operations of a compiled program: its longest chain of dependent instructions.

Reads the text of XLA's optimised HLO, `jax.stages.Compiled.as_text()`.
"""

import re
from collections.abc import Sequence

from experiments.benchmarks import hlo

# They name, group, repeat or lay out anew values that are there already.
_FREE = set(
    "parameter constant iota tuple get-tuple-element after-all bitcast reshape transpose copy "
    "broadcast slice pad concatenate reverse".split()
)

_NOT_CALLS = re.compile(r"control-predecessors=|metadata=|backend_config=")


def longest_chain(text: str) -> int:
    """The number of instructions that must follow one another, however many run at once.

    An instruction counts one, whatever the size of its arrays: so does a matrix product, and a
    reduction. Fusions and calls count as if what they hold stood in their place, a conditional
    counts its longest branch, and a while loop its body times its trip count, since a turn begins
    when the one before it has ended. What only names, groups, repeats or moves values counts
    nothing: how much of that there is, and what is fused, is the compiler's choice and changes with
    the sizes.

    Args:
      text: a compiled module's.

    Raises:
      ValueError: there is no entry computation, or the compiler knows no trip count of a loop.
    """
    entry, computations = hlo.read(text)

    def longest(computation: str, starts: Sequence[int]) -> int:
        """The longest chain that ends in a computation whose arguments end chains of `starts`."""
        ends: dict[str, int] = {}
        for instruction in computations[computation]:
            if instruction.opcode == "parameter":
                ends[instruction.name] = starts[int(instruction.operands)] if starts else 0
            else:
                before = [ends[name] for name in hlo.NAME.findall(instruction.operands)]
                ends[instruction.name] = end(instruction, before)
        return max(ends.values(), default=0)

    def end(instruction: hlo.Instruction, before: Sequence[int]) -> int:
        start = max(before, default=0)
        match instruction.opcode:
            case "fusion" | "call":
                return longest(_called(instruction)[0], before)
            case "conditional":
                return max(longest(branch, [start]) for branch in _called(instruction))
            case "while":
                return start + hlo.turns(instruction, computations) * longest(
                    _body(instruction), [0]
                )
            case opcode if opcode in _FREE or opcode.endswith("-done"):
                return start
            case _:
                return start + 1

    return longest(entry, [])


def _called(instruction: hlo.Instruction) -> Sequence[str]:
    """The computations that it names."""
    return hlo.NAME.findall(_NOT_CALLS.split(instruction.attributes)[0])


def _body(loop: hlo.Instruction) -> str:
    found = re.search(r"body=%([\w.\-]+)", loop.attributes)
    assert found, loop
    return found[1]
