"""Drawn mutants that change nothing that anyone could see, each with the reason why."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Equivalent(NamedTuple):
    """A line, what a mutant makes of it, and why that is the same."""

    old: str
    new: str
    why: str


EQUIVALENT: Mapping[str, Sequence[Equivalent]] = {}


def why(module: str, diff: Sequence[str]) -> str:
    """The reason why a mutant of a module is equivalent, or an empty text."""
    for each in EQUIVALENT.get(module, ()):
        if [line[1:].strip() for line in diff] == [each.old, each.new]:
            return each.why
    return ""
