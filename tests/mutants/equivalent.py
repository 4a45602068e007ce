"""Drawn mutants that change nothing that anyone could see, each with the reason why."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Equivalent(NamedTuple):
    """A line, what a mutant makes of it ("": nothing), and why that is the same."""

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
        Equivalent(
            "return (1 + np.count_nonzero(np.array(exchanged) >= observed - 1e-12)) / (1 + DRAWS)",
            "return (1 + np.count_nonzero(np.array(exchanged) >= observed - 1e-12)) / (1 ^ DRAWS)",
            "DRAWS is even, so that its last bit is free",
        ),
    ],
    "transformer_jax/decoding/translator.py": [
        Equivalent(
            "LONG = 1024  # tokens; a longer sentence is translated by itself, if there is memory "
            "for it",
            "LONG = 1025  # tokens; a longer sentence is translated by itself, if there is memory "
            "for it",
            "a sentence is translated as well by itself as among others; any such length would do",
        ),
    ],
    "transformer_jax/evaluation/attention_weights.py": [
        Equivalent(
            "target_length += source_length == target_length",
            "target_length += source_length <= target_length",
            "one more position of padding, where lengths differ before and after: it is cut off",
        ),
    ],
    "transformer_jax/evaluation/bleu.py": [
        Equivalent(
            "return np.array(rows, np.int32).reshape(-1, 10)",
            "return np.array(rows, np.int32).reshape(- 2, 10)",
            "to NumPy any negative size is the one to find out",
        ),
    ],
    "transformer_jax/training/metrics.py": [
        Equivalent("@final", "", "it is for those who check types; nothing happens at run time"),
    ],
}


def why(module: str, diff: Sequence[str]) -> str:
    """The reason why a mutant of a module is equivalent, or an empty text."""
    found = [line[1:].strip() for line in diff if line[1:].strip()]
    for each in EQUIVALENT.get(module, ()):
        if found == [line for line in (each.old, each.new) if line]:
            return each.why
    return ""
