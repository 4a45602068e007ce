"""Drawn mutants that change nothing that anyone could see, each with the reason why."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Equivalent(NamedTuple):
    """A line, what a mutant makes of it, and why that is the same."""

    old: str
    new: str
    why: str


EQUIVALENT: Mapping[str, Sequence[Equivalent]] = {
    "experiments/analysis/significance.py": [
        Equivalent(
            "return (1 + np.count_nonzero(np.array(exchanged) >= observed - 1e-12)) / (1 + DRAWS)",
            "return (1 + np.count_nonzero(np.array(exchanged) >= observed - 1e-12)) / (1 | DRAWS)",
            "DRAWS is even, so that its last bit is free",
        ),
    ],
}


def why(module: str, diff: Sequence[str]) -> str:
    """The reason why a mutant of a module is equivalent, or an empty text."""
    for each in EQUIVALENT.get(module, ()):
        if [line[1:].strip() for line in diff] == [each.old, each.new]:
            return each.why
    return ""
