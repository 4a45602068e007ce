"""PARSEVAL as EVALB counts it: labelled brackets of a parse that the treebank's tree has too.

The rules are those of EVALB's COLLINS.prm (Collins 1997): a bracket is right if label and words
are; TOP does not count; words tagged as punctuation are taken out before brackets are compared, and
a bracket without words with them; ADVP and PRT are one label. Several brackets of one label around
the same words are matched one to one.

Three things differ. A virtual root other than TOP does not count either (`virtual_root`). EVALB
leaves out sentences whose parse has other words than the tree, and those without a parse; here
every parse has its sentence's words (`trees.from_linearised`), so that every sentence counts. And
what is punctuation is decided by the tree's tags alone, where EVALB goes by each side's own: so
parses without parts of speech can be scored, and none is left out for a tag.
"""

import collections
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from transformer_jax.data import trees

COUNTED = ("matched", "gold", "test", "crossing", "words", "tags")  # of each sentence, in order
# EVALB's DELETE_LABEL, labels and words' tags that do not count: those of COLLINS.prm, and
# GreynirCorpus' root and punctuation, S0 and grm, which Penn does not have.
LEFT_OUT = {"TOP", "-NONE-", ",", ":", "``", "''", ".", "S0", "grm"}
SAME = {"PRT": "ADVP"}  # EQ_LABEL: from a label to the one that it counts as


def virtual_root(golds: Sequence[trees.Tree]) -> str | None:
    """Returns the label of a virtual root, such as (ROOT (S …)); None if the trees have none.

    It is the label of every tree's top, around a single constituent or word, and of nothing else.
    """
    label = golds[0].brackets[0].label if golds and golds[0].brackets else None
    for tree in golds:
        top, rest = tree.brackets[:1], tree.brackets[1:]
        is_unary = len(tree.words) == 1 or any(each[1:] == (0, len(tree.words)) for each in rest)
        is_top = bool(top) and top[0].label == label and tree.has_root
        if not is_unary or not is_top or any(each.label == label for each in rest):
            return None
    return label


def count(gold: trees.Tree, test: trees.Tree, root: str | None = None) -> list[int]:
    """Counts a sentence's brackets and tags, in the order of `COUNTED`.

    Args:
      gold: the treebank's tree.
      test: the parse.
      root: a label that does not count, as TOP.

    Raises:
      ValueError: the trees have different words.
    """
    if gold.words != test.words:
        raise ValueError(f"a parse of {' '.join(test.words)!r}, but {' '.join(gold.words)!r} it is")
    kept = [tag not in LEFT_OUT for tag in gold.tags]
    place = [0, *itertools.accumulate(kept)]  # of each word among those that count

    def brackets(tree: trees.Tree) -> list[tuple[str, int, int]]:
        return [
            (SAME.get(label, label), place[start], place[end])
            for label, start, end in tree.brackets
            if label not in LEFT_OUT and label != root and place[start] < place[end]
        ]

    theirs, ours = brackets(gold), brackets(test)
    matched = (collections.Counter(theirs) & collections.Counter(ours)).total()
    crossing = sum(
        any(a < start < b < end or start < a < end < b for _, a, b in theirs)
        for _, start, end in ours
    )
    tags = sum(
        SAME.get(right, right) == SAME.get(tag, tag)
        for right, tag, counts in zip(gold.tags, test.tags, kept, strict=True)
        if counts
    )
    return [matched, len(theirs), len(ours), crossing, sum(kept), tags]


def counts(
    golds: Sequence[trees.Tree], tests: Sequence[trees.Tree]
) -> Int[np.ndarray, "sentences 6"]:
    """Returns the counts that F1 sums over sentences, `COUNTED` of each.

    Args:
      golds: the treebank's trees, each with a constituent around all its words.
      tests: their parses.

    Raises:
      ValueError: the trees of a sentence have different words.
    """
    root = virtual_root(golds)
    rows = [count(gold, test, root) for gold, test in zip(golds, tests, strict=True)]
    return np.array(rows, np.int32).reshape(-1, len(COUNTED))


def from_counts(counts: Int[np.ndarray, "6"]) -> float:
    """F1 between 0 and 100 of what `counts` gives, summed over sentences."""
    matched, gold, test = counts.tolist()[:3]
    return 200 * matched / (gold + test) if gold + test else 0.0


def score(counts: Int[np.ndarray, "sentences 6"]) -> dict[str, Any]:
    """What EVALB's summary says; the tagging accuracy is None where no word has got its tag."""
    matched, gold, test, crossing, words, tags = summed = counts.sum(0)
    right = (counts[:, 0] == counts[:, 1]) & (counts[:, 0] == counts[:, 2])
    return {
        "f1": from_counts(summed),
        "recall": float(100 * matched / max(gold, 1)),
        "precision": float(100 * matched / max(test, 1)),
        "exact": float(100 * np.mean(right)),
        "crossing": float(crossing / len(counts)),
        "tagging": float(100 * tags / words) if tags else None,
    }
