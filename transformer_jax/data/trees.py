"""Constituency trees as sequences, after Vinyals et al. 2015, "Grammar as a Foreign Language".

A tree is written as the sequence of its opening and closing brackets, each with its label. Each
word is replaced by its part of speech, or by XX, one symbol for all words:

  (S (NP (DT The) (NN dog)) (VP (VBZ sleeps)) (. .))
  (S (NP XX XX )NP (VP XX )VP XX )S
  (S (NP DT NN )NP (VP VBZ )VP . )S

XX is the default, as in the paper: parts of speech do not count in F1, and F1 is higher without
them. A form without any symbol for words could not be converted back.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, final

ANY_TAG = "XX"  # symbol of a word without part of speech
ROOT = "TOP"  # label of a root that is added to a tree; it does not count in F1

# Functions from a word's part of speech to its symbol, by the value of data.tree_terminals.
TERMINALS: dict[str, Callable[[str], str]] = {"xx": lambda tag: ANY_TAG, "pos": lambda tag: tag}


class Bracket(NamedTuple):
    """A constituent of a tree: a label and a range of words."""

    label: str
    start: int  # index of its first word
    end: int  # index of the first word after it


@final
@dataclasses.dataclass(frozen=True)
class Tree:
    """A constituency tree: words, their parts of speech, and brackets in the order of opening.

    No bracket is empty. Of two brackets around the same words, the outer bracket comes first. The
    order of the brackets therefore determines how they are nested. Functions of trees are not
    recursive, so that the depth of a tree is not limited.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    brackets: tuple[Bracket, ...]

    @property
    def has_root(self) -> bool:
        """True if one constituent contains all words."""
        return bool(self.brackets) and self.brackets[0][1:] == (0, len(self.words))


ABSENT = Tree((), (), ())


def leaf(tag: str, words: str) -> Tree:
    """Returns a tree of words that have the same part of speech, without a constituent.

    Args:
      tag: the part of speech.
      words: the words, separated by spaces.
    """
    parts = tuple(words.split())
    return Tree(parts, (tag,) * len(parts), ())


def join(label: str, *children: Tree) -> Tree:
    """Returns a tree with one constituent around the given children.

    Children without words are left out.
    """
    together = beside(children)
    whole = Bracket(label, 0, len(together.words))
    return Tree(together.words, together.tags, (whole, *together.brackets))


def beside(parts: Iterable[Tree]) -> Tree:
    """Returns the concatenation of trees, without a constituent around them."""
    parts = [part for part in parts if part.words]
    if len(parts) == 1:
        return parts[0]
    words: list[str] = []
    tags: list[str] = []
    brackets: list[Bracket] = []
    for part in parts:
        for label, start, end in part.brackets:
            brackets.append(Bracket(label, start + len(words), end + len(words)))
        words += part.words
        tags += part.tags
    return Tree(tuple(words), tuple(tags), tuple(brackets))


def bracketed(tree: Tree) -> str:
    r"""Returns a tree in Penn brackets on one line.

    Brackets and backslashes in words are preceded by a backslash.
    """
    parts = []
    for opening, index, closing in _steps(tree):
        parts += [f" ({label}" for label in opening]
        word = re.sub(r"[()\\]", r"\\\g<0>", tree.words[index])
        parts.append(f" ({tree.tags[index]} {word})")
        parts.append(")" * len(closing))
    return "".join(parts).removeprefix(" ")


def linearised(tree: Tree, terminals: str) -> str:
    """Returns a tree as the sequence of symbols that models write, separated by spaces.

    Args:
      tree: the tree.
      terminals: a key of `TERMINALS`.
    """
    symbol_of = TERMINALS[terminals]
    parts = []
    for opening, index, closing in _steps(tree):
        parts += [f"({label}" for label in opening]
        parts.append(symbol_of(tree.tags[index]))
        parts += [f"){label}" for label in closing]
    return " ".join(parts)


def _steps(tree: Tree) -> Iterator[tuple[list[str], int, list[str]]]:
    """Yields the brackets before and after each word.

    Yields:
      For each word, the labels of the brackets that open before it, the word's index, and the
      labels of the brackets that close after it.
    """
    is_open: list[Bracket] = []
    following = 0
    for index in range(len(tree.words)):
        opening = []
        while following < len(tree.brackets) and tree.brackets[following].start == index:
            is_open.append(tree.brackets[following])
            opening.append(tree.brackets[following].label)
            following += 1
        closing = []
        while is_open and is_open[-1].end == index + 1:
            closing.append(is_open.pop().label)
        yield opening, index, closing


def from_linearised(text: str, words: Sequence[str]) -> tuple[Tree, bool]:
    r"""Returns the tree that a model has written for a sentence, repaired if it is malformed.

    Malformed trees are repaired so that every sentence can be scored. As in Vinyals et al.,
    brackets without a partner are opened at the beginning or closed at the end of the sentence.
    Further rules, which are not in that paper:
      * A closing bracket closes the innermost open bracket, whatever its label.
      * Empty brackets, and symbols beyond the number of words, are dropped.
      * Words without a symbol are appended outside all brackets except the root.
      * A tree without a root gets the root `ROOT`.
      * A bracket inside a symbol begins another symbol.
      * Backslashes are dropped.

    Args:
      text: the linearised tree.
      words: the words of the sentence.

    Returns:
      The tree, and whether it was well formed.
    """
    parts = re.findall(r"[()]?[^\s()\\]+|[()]", text)
    is_well_formed = parts == text.split() and not {"(", ")"} & set(parts)
    tags: list[str] = []
    brackets: list[Bracket] = []
    is_open: list[int] = []  # indices into `brackets`
    for part in parts:
        side, label = part[0], part[1:] or ROOT
        if side == "(":
            is_open.append(len(brackets))
            brackets.append(Bracket(label, len(tags), -1))
        elif side != ")":
            tags.append(part)
        elif is_open:
            index = is_open.pop()
            is_well_formed &= brackets[index].label == label
            brackets[index] = brackets[index]._replace(end=len(tags))
        else:  # no bracket is open: one is inserted at the beginning
            is_well_formed = False
            brackets.insert(0, Bracket(label, 0, len(tags)))
    is_well_formed &= not is_open and len(tags) == len(words)
    for index in is_open:
        brackets[index] = brackets[index]._replace(end=len(tags))
    kept = [bracket for bracket in brackets if bracket.start < bracket.end]
    is_well_formed &= len(kept) == len(brackets) and bool(kept) and kept[0][1:] == (0, len(tags))
    if kept and kept[0][1:] == (0, len(tags)):
        kept[0] = kept[0]._replace(end=len(words))
    kept = [bracket._replace(end=min(bracket.end, len(words))) for bracket in kept]
    kept = [bracket for bracket in kept if bracket.start < bracket.end]
    tags += [ANY_TAG] * (len(words) - len(tags))
    inner = tuple(bracket for bracket in kept if bracket.label != ROOT)
    tree = Tree(tuple(words), tuple(tags[: len(words)]), inner)
    number_of_roots = len(kept) - len(inner)
    expected_roots = 0 if tree.has_root else 1
    is_well_formed &= number_of_roots == expected_roots
    return (tree if tree.has_root else join(ROOT, tree)), is_well_formed


def symbols(trees: Iterable[Tree], terminals: str) -> list[str]:
    """Returns all symbols of the linearised trees, sorted.

    They are an opening and a closing bracket for each label, and the symbols of words.

    Args:
      trees: the trees.
      terminals: a key of `TERMINALS`.
    """
    symbol_of = TERMINALS[terminals]
    names: set[str] = set()
    for tree in trees:
        names |= {f"{side}{bracket.label}" for bracket in tree.brackets for side in "()"}
        names |= {symbol_of(tag) for tag in tree.tags}
    return sorted(names)
