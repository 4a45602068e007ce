"""Sequential operations of a compiled program: its longest chain of dependent instructions."""

from collections.abc import Sequence

from experiments.benchmarks import hlo

# They name, group, repeat or lay out anew values that are there already.
_FREE = set(
    "parameter constant iota tuple get-tuple-element after-all bitcast reshape transpose copy "
    "broadcast slice pad concatenate reverse".split()
)


def longest_chain(text: str) -> int:
    """The number of instructions that must follow one another, however many run at once.

    An instruction counts one, whatever its arrays' sizes. Fusions and calls count as if what they
    hold stood in their place, a conditional as its longest branch, and a while loop its body times
    its turns, since one begins when the one before it has ended. What only names, groups, repeats
    or moves values counts nothing: how much of that there is is the compiler's choice.

    Raises:
      ValueError: there is no entry computation, or the compiler knows no trip count of a loop.
    """
    module = hlo.read(text)

    def longest(computation: str, starts: Sequence[int]) -> int:
        """The longest chain that ends in a computation whose arguments end chains of `starts`."""
        ends: dict[str, int] = {}
        for one in module.computations[computation]:
            if one.opcode == "parameter":
                ends[one.name] = starts[int(one.arguments)] if starts else 0
            else:
                ends[one.name] = end(one, [ends[name] for name in one.operands])
        return max(ends.values(), default=0)

    def end(one: hlo.Instruction, before: Sequence[int]) -> int:
        start = max(before, default=0)
        match one.opcode:
            case "fusion" | "call":
                return longest(one.called[0], before)
            case "conditional":
                return max(longest(branch, [start]) for branch in one.called)
            case "while":
                return start + module.turns(one) * longest(one.called[0], [0])
            case opcode if opcode in _FREE or opcode.endswith("-done"):
                return start
            case _:
                return start + 1

    return longest(module.entry, [])
