"""F1 against the published sample of EVALB and loops of its rules."""

import random
import re
from unittest import mock

import numpy as np
import pytest

from transformer_jax.data import treebank, trees
from transformer_jax.evaluation import measures, parseval

# EVALB's sample/sample.gld, .tst, .prm and .rsl, which are in the public domain: of each sentence
# the parse, then length, status (0: valid, 1: other words, 2: no words), matched brackets, gold
# ones, those of the parse, crossing ones, words that count, and right tags.
GOLD = "(S (A (P this)) (B (Q is) (A (R a) (T test))))"
LONG = "(A (P this)) (B (Q is) (A (R a) (T test))) " * 11
SAMPLE = [
    ("(S (A (P this)) (B (Q is) (A (R a) (T test))))", 4, 0, 4, 4, 4, 0, 4, 4),
    ("(S (A (P this)) (B (Q is) (C (R a) (T test))))", 4, 0, 3, 4, 4, 0, 4, 4),
    ("(S (A (P this)) (B (Q is) (A (R a) (U test))))", 4, 0, 4, 4, 4, 0, 4, 3),
    ("(S (C (P this)) (B (Q is) (A (R a) (U test))))", 4, 0, 3, 4, 4, 0, 4, 3),
    ("(S (A (P this)) (B (Q is) (R a) (A (T test))))", 4, 0, 3, 4, 4, 0, 4, 4),
    ("(S (A (P this) (Q is)) (A (R a) (T test)))", 4, 0, 2, 4, 3, 1, 4, 4),
    ("(S (P this) (Q is) (R a) (T test))", 4, 0, 1, 4, 1, 0, 4, 4),
    ("(P this) (Q is) (R a) (T test)", 4, 0, 0, 4, 0, 0, 4, 4),
    ("(S (A (P this)) (B (Q is) (A (A (R a) (T test)))))", 4, 0, 4, 4, 5, 0, 4, 4),
    ("(S (A (P this)) (B (Q is) (A (A (A (A (A (R a) (T test))))))))", 4, 0, 4, 4, 8, 0, 4, 4),
    ("", 4, 2, 0, 0, 0, 0, 4, 0),
    ("(S (A (P this)) (B (Q was) (A (A (R a) (T test)))))", 4, 1, 0, 0, 0, 0, 4, 0),
    ("(S (A (P this)) (B (Q is) (U not) (A (A (R a) (T test)))))", 4, 1, 0, 0, 0, 0, 4, 0),
    ("", 4, 2, 0, 0, 0, 0, 4, 0),
    ("(TOP (S (A (P this)) (B (Q is) (A (R a) (T test)))))", 4, 0, 4, 4, 4, 0, 4, 4),
    ("(S (A (P this)) (NONE *) (B (Q is) (A (R a) (T test))))", 4, 1, 0, 0, 0, 0, 4, 0),
    (
        "(S (A (P this)) (S (NONE abc) (A (NONE *))) (B (Q is) (A (R a) (T test))))",
        *(4, 1, 0, 0, 0, 0, 4, 0),
    ),
    ("(S (A (P this)) (B (Q is) (A (R a) (TT test))))", 4, 0, 4, 4, 4, 0, 4, 4),
    ("(S (A (P This)) (B (Q is) (A (R a) (T test))))", 4, 0, 4, 4, 4, 0, 4, 4),
    ("(S (A (P That)) (B (Q is) (A (R a) (T test))))", 4, 1, 0, 0, 0, 0, 4, 0),
    ("(S (A (P this)) (B (Q is) (A (R a) (T test))))", 4, 0, 4, 4, 4, 0, 4, 4),
    (f"(S {LONG})", 44, 0, 34, 34, 34, 0, 44, 44),
    ("(S (A (P this)) (B (Q is) (A (R a) (T test))) (-NONE- *))", 4, 0, 4, 4, 4, 0, 4, 4),
    ("(S (A (P this)) (B (Q is) (A (R a) (T test))) (: *))", 5, 0, 4, 4, 4, 0, 4, 4),
]
OTHER_GOLD = {
    20: "(S (A-SBJ-1 (P this)) (B-WHATEVER (Q is) (A (R a) (T test))))",
    21: f"(S {LONG})",
    22: "(S (A (P this)) (B (Q is) (A (R a) (T test))) (-NONE- *))",
    23: "(S (A (P this)) (B (Q is) (A (R a) (T test))) (: *))",
}
# The sample's own rules, SAMPLE.prm.
RULES = {"LEFT_OUT": {"TOP", "-NONE-", ",", ":", "``", "''"}, "SAME": {"TT": "T"}}


def tree(line):
    """A line of EVALB's, which may hold several trees; it takes This and this for the same."""
    return trees.beside(treebank.parse([line.replace("This", "this")], "the sample"))


@mock.patch.multiple(parseval, **RULES)
def sample(longest=1000):
    """Returns the counts of valid sentences, ours and those that EVALB printed."""
    ours, theirs = [], []
    for number, (test, length, status, *printed) in enumerate(SAMPLE):
        gold, parse = tree(OTHER_GOLD.get(number, GOLD)), tree(test)
        assert len(gold.words) == length
        assert (len(parse.words) == 0) == (status == 2)
        if status:
            with pytest.raises(ValueError, match="the parse has the words"):
                parseval.count(gold, parse)
        elif length <= longest:
            ours.append(parseval.count(gold, parse))
            theirs.append(printed)
    return np.array(ours), np.array(theirs)


def test_every_sentence_of_evalbs_sample_counts_as_evalb_printed():
    ours, theirs = sample()
    np.testing.assert_array_equal(ours, theirs)
    assert len(ours) == 17


@pytest.mark.parametrize(
    ("longest", "printed"),
    [
        (1000, (17, 87.76, 90.53, 52.94, 0.06, 94.12, 98.15)),
        (40, (16, 81.25, 85.25, 50.00, 0.06, 93.75, 96.88)),
    ],
)
def test_the_summary_is_evalbs_to_the_printed_digit(longest, printed):
    counts, _ = sample(longest)
    found = parseval.score(counts)
    kinds = ("recall", "precision", "exact", "crossing")
    no_crossing = 100 * np.mean(counts[:, 3] == 0)
    rounded = [f"{value:.2f}" for value in (*map(found.get, kinds), no_crossing, found["tagging"])]
    assert (len(counts), *rounded) == (printed[0], *(f"{value:.2f}" for value in printed[1:]))
    recall, precision = found["recall"], found["precision"]
    assert found["f1"] == pytest.approx(2 * recall * precision / (recall + precision))


def by_length(counts, lengths, bounds):
    return measures.MEASURES[measures.F1].by_length(counts, lengths, bounds, "words", "f1")


def test_f1_by_length_is_that_of_its_sentences():
    counts, _ = sample()
    lengths = [length for _, length, status, *_ in SAMPLE if not status]
    short, long = by_length(counts, lengths, [40])
    assert (short["words"], long["words"]) == ("1-40", "41-44")
    assert (short["sentences"], long["sentences"]) == (16, 1)
    assert short["f1"] == pytest.approx(2 * 81.25 * 85.2459 / (81.25 + 85.2459), abs=1e-3)
    assert long["f1"] == 100


@pytest.mark.parametrize("bounds", [[40], [3, 4, 40], [4, 7]])
def test_a_bucket_contains_the_sentences_of_its_range(bounds):
    counts, _ = sample()
    lengths = [length for _, length, status, *_ in SAMPLE if not status]
    buckets = by_length(counts, lengths, bounds)
    held: list[int] = []
    for bucket in buckets:
        low, high = map(int, bucket["words"].split("-"))
        some = [length for length in lengths if low <= length <= high]
        assert bucket["sentences"] == len(some)
        held += some
        assert low == 1 or low - 1 in bounds
    assert sorted(held) == sorted(lengths)


def test_punctuation_top_and_equal_labels_are_as_in_collins():
    # README of EVALB, sections 6 and 7: punctuation goes first, and what it alone filled.
    gold = tree("(TOP (S (PRN (, ,)) (NP (DT the) (NN dog)) (ADVP (RB up)) (. .)))")
    test = tree("(S (NP (, ,) (DT the) (NN dog)) (PRT (RB up) (X (. .))))")
    assert parseval.count(gold, test) == [3, 3, 3, 0, 3, 3]
    # "If m > n, then the precision is n/m, recall is 100%", and the other way round.
    one, two = tree("(NP (DT the) (NN man))"), tree("(NP (NP (DT the) (NN man)))")
    assert parseval.count(one, two)[:3] == [1, 1, 2]
    assert parseval.count(two, one)[:3] == [1, 2, 1]


@pytest.mark.parametrize("root", ["{}", "(ROOT {})", "(VROOT {})", "(TOP {})", "({})"])
def test_a_virtual_root_is_no_bracket(root):
    """Every tree has the label around its only constituent, and nowhere else."""
    texts = [
        "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))))",
        "(S (NP (DT the) (NN dog) (VBZ sees)) (NP (DT a) (NN cat)))",
    ]
    gold, test = (tree(root.format(text)) for text in texts)
    counts = parseval.counts([gold], [test])
    assert counts[0, :3].tolist() == [2, 4, 3]
    assert parseval.score(counts)["f1"] == pytest.approx(100 * 2 * 2 / (4 + 3))  # 57.14


def test_a_label_that_some_tree_lacks_at_its_top_is_a_bracket():
    gold, other = tree("(ROOT (S (NN dog)))"), tree("(S (NN dog))")
    assert parseval.counts([gold, other], [gold, other])[:, :3].tolist() == [[2] * 3, [1] * 3]
    assert parseval.counts([gold, gold], [gold, other])[:, :3].tolist() == [[1] * 3, [1] * 3]


def test_gold_tags_determine_punctuation():
    gold = tree("(S (NP (DT the) (NN dog)) (. .))")
    parse, is_whole = trees.from_linearised("(S (NP XX XX )NP XX )S", gold.words)
    assert is_whole
    assert parseval.count(gold, parse) == [2, 2, 2, 0, 2, 0]
    assert parseval.score(parseval.counts([gold], [parse]))["tagging"] is None


def random_tree(words, labels, draw):
    """Returns a random tree, often a deep one."""
    if words == 1 and draw.random() < 0.5:
        return trees.leaf(draw.choice(["DT", "NN", ",", "."]), "word")
    cuts = sorted(draw.sample(range(1, words), min(words - 1, draw.randrange(3))))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, words], strict=True)]
    return trees.join(draw.choice(labels), *(random_tree(n, labels, draw) for n in sizes))


def counted_by_loops(gold, test):
    """Counts by EVALB's algorithm over strings."""
    deleted = ("TOP", ",", ":", "``", "''", ".")
    equal = {frozenset(("ADVP", "PRT"))}

    def brackets(text, of_gold):
        found, is_open, words, terminals = [], [], 0, iter(of_gold)
        for part in re.findall(r"\(\S+ [^()\s]+\)|\(\S+|\)", text):
            if part == ")":
                label, start = is_open.pop()
                found.append([label, start, words])
            elif " " in part:
                words += next(terminals) not in deleted
            else:
                is_open.append((part[1:], words))
        return [each for each in found if each[1] < each[2] and each[0] not in deleted]

    ours, theirs = brackets(test, gold.tags), brackets(trees.bracketed(gold), gold.tags)
    crossing = sum(
        any(a < start < b < end or start < a < end < b for _, a, b in theirs)
        for _, start, end in ours
    )
    numbers, left = [len(theirs), len(ours)], [*ours]
    for label, start, end in theirs:
        for other in left:
            same = label == other[0] or frozenset((label, other[0])) in equal
            if same and other[1:] == [start, end]:
                left.remove(other)
                break
    return [len(ours) - len(left), *numbers, crossing]


def test_random_trees_count_as_by_loops():
    draw = random.Random(0)
    labels = ["S", "NP", "ADVP", "PRT", "TOP"]
    some = 0
    for _ in range(200):
        words = draw.randrange(1, 12)
        gold, test = (trees.join("S", random_tree(words, labels, draw)) for _ in range(2))
        found = parseval.count(gold, test)
        assert found[:4] == counted_by_loops(gold, trees.bracketed(test))
        some += found[0] > 2
    assert some > 20
