"""Trees as sequences and back: exact where nothing is damaged, repaired and told where it is.

Round trips of GreynirCorpus run where $GREYNIR is the folder of its .psd files.
"""

import collections
import gzip
import os
import pathlib
import random
import re

import pytest

from tests import parseval_test, tiny
from transformer_jax import errors
from transformer_jax.data import toy, treebank, trees

GREYNIR = os.environ.get("GREYNIR", "")


@pytest.fixture(scope="module")
def sentences():
    train, held_out = toy.sentences(500, 100, 0)
    return train + held_out


def nested(text):
    """A tree by recursion: a label and its parts, or a tag and a word."""
    parts = re.findall(r"\(|\)|[^\s()]+", text)

    def read(place):
        label, place, children = parts[place + 1], place + 2, []
        while parts[place] != ")":
            if parts[place] == "(":
                child, place = read(place)
                children.append(child)
            else:
                children.append(parts[place])
                place += 1
        return (label, children), place + 1

    return read(0)[0]


def written(node, terminals):
    """Vinyals et al.'s linearisation of such a tree, by recursion."""
    label, children = node
    if isinstance(children[0], str):
        return {"xx": "XX", "pos": label}[terminals]
    return f"({label} {' '.join(written(child, terminals) for child in children)} ){label}"


def require_round_trips(tree):
    text = trees.bracketed(tree)
    assert list(treebank.parse([text], "here")) == [tree]
    assert trees.from_linearised(trees.linearised(tree, "pos"), tree.words) == (tree, True)
    without_tags, is_whole = trees.from_linearised(trees.linearised(tree, "xx"), tree.words)
    assert is_whole
    assert (without_tags.words, without_tags.brackets) == (tree.words, tree.brackets)
    assert set(without_tags.tags) == {"XX"}


def test_every_tree_of_the_toy_is_the_same_after_both_ways(sentences):
    for sentence in sentences:
        require_round_trips(sentence.tree)


@pytest.mark.skipif(not GREYNIR, reason="$GREYNIR names no folder of .psd files")
def test_every_tree_of_greynir_is_the_same_after_both_ways():
    found, records = treebank.read(f"{GREYNIR}/*.psd", "data.train")
    assert {record["trees"] for record in records} == {500, 4500}
    for tree in found:
        require_round_trips(tree)
        # What is dropped would show: annotations, features of word classes, escaped brackets.
        assert not re.search(r"lemma|exp_|META|[a-zþ]_|\\[^()\\]", trees.bracketed(tree))


@pytest.mark.parametrize("terminals", ["xx", "pos"])
def test_it_is_written_as_vinyals_et_al_write_it(sentences, terminals):
    tree = next(
        treebank.parse(["(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))"], "")
    )
    expected = {
        "xx": "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S",
        "pos": "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S",
    }
    assert trees.linearised(tree, terminals) == expected[terminals]
    for sentence in sentences[:200]:
        alone = written(nested(trees.bracketed(sentence.tree)), terminals)
        assert trees.linearised(sentence.tree, terminals) == alone


def test_random_trees_are_the_same_after_both_ways():
    draw = random.Random(1)
    for _ in range(200):
        words = draw.randrange(1, 9)
        tree = parseval_test.random_tree(words, ["S", "NP", "VP"], draw)
        require_round_trips(trees.join("S", tree))


def test_a_tree_deeper_than_python_may_recurse_is_read_and_written():
    depth = 2000
    tree = next(treebank.parse(["(NP " * depth + "(NN dog)" + ")" * depth], "here"))
    assert len(tree.brackets) == depth
    require_round_trips(tree)


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        # As Vinyals et al.: brackets are added at the beginning or at the end.
        ("(S (NP XX )NP (VP XX", "(S (NP (XX a)) (VP (XX b)))"),
        ("XX )NP (VP XX )VP )S", "(S (NP (XX a)) (VP (XX b)))"),
        ("(S (NP XX )VP (VP XX )VP )S", "(S (NP (XX a)) (VP (XX b)))"),  # a label that differs
        ("(S (NP )NP (VP XX XX )VP )S", "(S (VP (XX a) (XX b)))"),  # nothing in a bracket
        ("(S (NP XX )NP )S", "(S (NP (XX a)) (XX b))"),  # a word too few
        ("(NP XX )NP", "(NP (XX a) (XX b))"),
        ("(S (NP XX XX XX )NP (VP XX )VP )S", "(S (NP (XX a) (XX b)))"),  # two too many
        ("(", "(TOP (XX a) (XX b))"),
        (") ) XX", "(TOP (XX a) (XX b))"),
        ("XX", "(TOP (XX a) (XX b))"),
        ("", "(TOP (XX a) (XX b))"),
        ("(NP XX )NP (VP XX )VP", "(TOP (NP (XX a)) (VP (XX b)))"),  # no root
        ("XX XX", "(TOP (XX a) (XX b))"),
        ("(X )X (S XX )S", "(S (XX a) (XX b))"),
        ("(S XX) XX )S", "(S (S (XX a)) (XX b))"),  # a bracket within a part
        (r"(S X\X XX )S", "(S (X a) (X b))"),
        ("(TOP (S XX XX )S )TOP", "(S (XX a) (XX b))"),  # a root around another
        ("(S (TOP XX )TOP XX )S", "(S (XX a) (XX b))"),
        ("( XX XX )", "(TOP (XX a) (XX b))"),
    ],
)
def test_malformed_trees_are_repaired_and_reported(text, repaired):
    tree, is_whole = trees.from_linearised(text, ["a", "b"])
    assert not is_whole
    assert trees.bracketed(tree) == repaired


def test_any_sequence_becomes_a_tree_of_the_sentence(sentences):
    draw = random.Random(2)
    odd = ["(", ")", "<unk>", "X)", "(X(", "\\(", "\\"]
    parts = [*trees.symbols([sentence.tree for sentence in sentences], "pos"), *odd]
    for _ in range(500):
        words = ["word"] * draw.randrange(1, 6)
        text = " ".join(draw.choices(parts, k=draw.randrange(15)))
        tree, _ = trees.from_linearised(text, words)
        assert tree.has_root
        assert list(tree.words) == words
        for place, (_, start, end) in enumerate(tree.brackets):
            assert 0 <= start < end <= len(words)
            for _, other, its_end in tree.brackets[place + 1 :]:
                assert other >= end or (start <= other < its_end <= end)
        again = trees.from_linearised(trees.linearised(tree, "pos"), words)
        assert again == (tree, True)
        assert list(treebank.parse([trees.bracketed(tree)], "here")) == [tree]


def test_annotations_empty_elements_and_function_tags_are_dropped():
    # From the Treebank's guidelines, and GreynirCorpus' form with words of our own.
    penn = """
( (S
    (NP-SBJ-1 (DT The) (NN dog))
    (VP (VBD was)
      (VP (VBN seen)
        (NP (-NONE- *-1))
        (PP-LOC (IN at) (NP=2 (CD 1\\/2)))))
    (. .)))
((S (NP (-LRB- -LRB-) (NN x))))(NP (NN y))
"""
    greynir = """
( (META (ID-CORPUS 1.1) (URL http://x/a_b) (COMMENT ))
  (S0-X (S-MAIN )
        (NP-SUBJ (no_et_nf_kvk dog (lemma dog) (exp_seg d-og))
                 (PP (P (fs_þf out of (lemma out of)))
                     (grm \\( (lemma \\())))
        (grm . )))
"""
    empty: collections.Counter[str] = collections.Counter()
    first, second, third = treebank.parse(penn.split("\n"), "here", empty)
    assert empty == {"-NONE-": 1}
    assert trees.bracketed(first) == (
        "(S (NP (DT The) (NN dog)) (VP (VBD was) (VP (VBN seen) (PP (IN at) (NP (CD 1/2))))) (. .))"
    )
    assert trees.bracketed(second) == "(S (NP (-LRB- -LRB-) (NN x)))"
    assert trees.bracketed(third) == "(NP (NN y))"
    empty = collections.Counter()
    (only,) = treebank.parse(greynir.split("\n"), "here", empty)
    assert empty == {"S-MAIN": 1}
    assert trees.bracketed(only) == (
        r"(S0 (NP (no dog) (PP (P (fs out) (fs of)) (grm \())) (grm .))"
    )
    assert only.words == ("dog", "out", "of", "(", ".")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN a))\n\n)", r"bank: line 3 has an unmatched \)"),
        ("(S (NN a))\nword", r"bank: line 2 has 'word' outside all brackets"),
        ("\n(S\n(NN a)", r"bank: the tree that begins in line 2 is not closed: 1 of its bra"),
        ("(S (NN a)\n word)", r"bank: line 2 closes a bracket, 'S', with words beside other"),
        ("(S (NN a))\n(S (-NONE- *))", r"bank: the tree that begins in line 2 has no words"),
        ("()", r"bank: line 1 closes a bracket, '', without a word"),
        ("(S (NN a))\n(S (NP (NN dog)) (VP (VBZ )))", r"bank: line 2 .*'VBZ', without a word"),
        ("(S (NP (NN Solano(r)) (NN x)))", r"bank: line 1 .*'r', without a word; .* written \\\("),
        ("(S (NP (NN a(r b)c)))", r"bank: line 1 .*'NN', with words beside other brackets"),
        ("(S (-LRB- () (NN a))", r"bank: line 1 .*'', without a word"),
        ("(S (NP ) (NN a))", r"bank: line 1 .*'NP', without a word"),
    ],
)
def test_bad_trees_are_one_line_with_file_and_number(text, message):
    with pytest.raises(errors.UserError, match=message):
        list(treebank.parse(text.split("\n"), "bank"))


def test_files_patterns_and_slices_are_read_in_order(tmp_path):
    for number in (1, 2, 3):
        lines = "".join(f"(S (CD {number}) (NN {word}))\n" for word in "abc")
        (tmp_path / f"{number}.mrg").write_text(lines)
    with gzip.open(tmp_path / "4.mrg.gz", "wt") as file:
        file.write("(S (CD 4) (NN a))")

    def sentences(paths):
        found, records = treebank.read(paths.replace("X", str(tmp_path)), "data.train")
        assert all(pathlib.Path(record["path"]).exists() for record in records)
        return " ".join("".join(tree.words) for tree in found)

    assert sentences("X/2.mrg, X/1.mrg") == "2a 2b 2c 1a 1b 1c"
    assert sentences("X/[13].mrg[:4],X/4.mrg.gz") == "1a 1b 1c 3a 4a"
    assert sentences("X/2.mrg[-1:]") == "2c"
    assert sentences("X/*.mrg[2:4]") == "1c 2a"
    assert sentences("X/*.mrg[1::3]") == "1b 2b 3b"
    assert sentences("X/*.mrg[~1::3]") == "1a 1c 2a 2c 3a 3c"
    assert sentences("X/*.mrg[~:-2]") == "3b 3c"
    (tmp_path / "1.mrg").rename(tmp_path / "a[2].mrg")
    assert sentences("X/a[2].mrg[:1]") == "1a"
    (tmp_path / "2.mrg").rename(tmp_path / "a2.mrg")
    assert sentences("X/a[2].mrg[:1]") == "1a"
    (tmp_path / "3.mrg").rename(tmp_path / "a2.mrg[:1]")
    assert sentences("X/a2.mrg[:1]") == "3a 3b 3c"


def load(train, dev, test="", terminals="xx"):
    return treebank.load(tiny.data(train=train, dev=dev, test=test, tree_terminals=terminals))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("", r"data\.train has no trees: give files in Penn brackets"),
        ("X/good[3:]", r"data\.train: .*/good\[3:\] takes none of its 1 trees"),
        ("X/good[::0]", r"good\[::0\]: a slice of trees is \[a:b\], \[a:b:step\] with a step of a"),
        ("X/none*", r"data\.train: there is no file .*none\*"),
        ("X/empty", r"empty has no trees"),
        ("X/bad", r"bad: line 2 is not UTF-8"),
    ],
)
def test_files_without_trees_are_named(tmp_path, train, message):
    (tmp_path / "good").write_text("(S (NN a))")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bad").write_bytes(b"(S (NN a))\n(S (NN \xff))")
    with pytest.raises(errors.UserError, match=message):
        load(train.replace("X", str(tmp_path)), f"{tmp_path}/good")


def test_a_corpus_pairs_sentences_with_their_trees(tmp_path):
    (tmp_path / "one").write_text("(S (NP (DT The) (NN dog)) (. .)) (NP (NN dogs))")
    (tmp_path / "other").write_text("(S (NP (DT The) (NN dog)) (, .)) (NP (NN dogs))")
    one = load(f"{tmp_path}/one", f"{tmp_path}/one[1:]")
    assert list(one.train.read()) == [
        ("The dog .", "(S (NP XX XX )NP XX )S"),
        ("dogs", "(NP XX )NP"),
    ]
    assert one.dev.trees == ["(NP (NN dogs))"]
    assert len(one.test) == 0
    assert one.symbols == ["(NP", "(S", ")NP", ")S", "XX"]
    other = load(f"{tmp_path}/other", f"{tmp_path}/one[1:]")
    assert other.train_digest != one.train_digest  # the tags say what F1 leaves out
    by_one, by_other = (
        load(f"{tmp_path}/one", f"{tmp_path}/one", f"{tmp_path}/{name}")
        for name in ("one", "other")
    )
    assert [*by_one.test.read()] == [*by_other.test.read()]
    assert by_one.test_digest != by_other.test_digest
    tags = load(f"{tmp_path}/one", f"{tmp_path}/one[1:]", terminals="pos")
    assert tags.train_digest != one.train_digest
    assert tags.train.read(1).__next__() == ("dogs", "(NP NN )NP")
