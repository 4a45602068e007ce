"""PARSEVAL scores of parses (labelled brackets), as EVALB computes them.

The rules are those of EVALB's COLLINS.prm (Collins 1997). A bracket is right if its label and its
words are right. TOP does not count. Punctuation is removed before brackets are compared, and so are
brackets that contain only punctuation. ADVP and PRT are treated as the same label. Several brackets
with the same label around the same words are matched one to one.

There are three differences to EVALB:
  * A virtual root does not count even if its label is not TOP (see `virtual_root`).
  * EVALB leaves out sentences without a parse, and sentences whose parse has other words than the
    tree. Here every parse has the words of its sentence (see `trees.from_linearised`), so that
    every sentence counts.
  * EVALB uses the tags of both trees to find punctuation. Here the treebank's tags alone are used,
    so that parses without parts of speech can be scored.
"""

import collections
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from transformer_jax.data import trees

COUNTED = ("matched", "gold", "test", "crossing", "words", "tags")  # counts of a sentence
# EVALB's DELETE_LABEL, labels and tags that do not count: those of COLLINS.prm, and the root and
# the punctuation of GreynirCorpus, S0 and grm, which are no labels of the Penn Treebank.
LEFT_OUT = {"TOP", "-NONE-", ",", ":", "``", "''", ".", "S0", "grm"}
SAME = {"PRT": "ADVP"}  # EQ_LABEL: a label and its equal


def virtual_root(golds: Sequence[trees.Tree]) -> str | None:
    """Returns the label of the trees' virtual root, such as ROOT in (ROOT (S …)).

    A virtual root is a top bracket around a single constituent or word. Returns None unless the top
    brackets of all trees are virtual roots with the same label, and no other bracket has this
    label.
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
    """Returns the counts of one sentence's brackets and tags, in the order of `COUNTED`.

    Args:
      gold: the treebank's tree.
      test: the parse.
      root: a further label whose brackets do not count, from `virtual_root`.

    Raises:
      ValueError: the trees have different words.
    """
    if gold.words != test.words:
        raise ValueError(
            f"the parse has the words {' '.join(test.words)!r}, the tree {' '.join(gold.words)!r}"
        )
    kept = [tag not in LEFT_OUT for tag in gold.tags]
    position = [0, *itertools.accumulate(kept)]  # of each word among the words that count

    def brackets(tree: trees.Tree) -> list[tuple[str, int, int]]:
        return [
            (SAME.get(label, label), position[start], position[end])
            for label, start, end in tree.brackets
            if label not in LEFT_OUT and label != root and position[start] < position[end]
        ]

    gold_brackets, test_brackets = brackets(gold), brackets(test)
    common = collections.Counter(gold_brackets) & collections.Counter(test_brackets)
    crossing = sum(
        any(a < start < b < end or start < a < end < b for _, a, b in gold_brackets)
        for _, start, end in test_brackets
    )
    tags = sum(
        SAME.get(right, right) == SAME.get(tag, tag)
        for right, tag, counts in zip(gold.tags, test.tags, kept, strict=True)
        if counts
    )
    return [common.total(), len(gold_brackets), len(test_brackets), crossing, sum(kept), tags]


def counts(
    golds: Sequence[trees.Tree], tests: Sequence[trees.Tree]
) -> Int[np.ndarray, "sentences 6"]:
    """Returns the counts of each sentence, in the order of `COUNTED`.

    Args:
      golds: the treebank's trees, each with a constituent around all its words.
      tests: the parse of each sentence.

    Raises:
      ValueError: a parse has other words than the treebank's tree.
    """
    root = virtual_root(golds)
    rows = [count(gold, test, root) for gold, test in zip(golds, tests, strict=True)]
    return np.array(rows, np.int32).reshape(-1, len(COUNTED))


def from_counts(counts: Int[np.ndarray, "*B 6"]) -> Float[Any, "*B"]:
    """Returns F1, between 0 and 100, given sums of the rows that `counts` returns."""
    matched, gold, test = np.moveaxis(counts[..., :3], -1, 0)
    # Without brackets on either side there are no matches, and F1 is 0.
    return 200 * matched / np.maximum(gold + test, 1)


def score(counts: Int[np.ndarray, "sentences 6"]) -> dict[str, Any]:
    """Returns the scores of EVALB's summary, given the counts that `counts` returns.

    "f1", "recall", "precision", "exact" and "tagging" are percentages; "crossing" is the mean
    number of crossing brackets of a sentence. "tagging" is None if no word has the right tag.
    """
    summed = counts.sum(axis=0)
    matched, gold, test, crossing, words, tags = summed
    right = (counts[:, 0] == counts[:, 1]) & (counts[:, 0] == counts[:, 2])
    return {
        "f1": from_counts(summed),
        "recall": float(100 * matched / max(gold, 1)),
        "precision": float(100 * matched / max(test, 1)),
        "exact": float(100 * np.mean(right)),
        "crossing": float(crossing / len(counts)),
        "tagging": float(100 * tags / words) if tags else None,
    }
