"""Constituency trees as sequences, after Vinyals et al. 2015, "Grammar as a Foreign Language".

A tree becomes its brackets from left to right, each with its label, closing ones too; each word is
replaced by one symbol for all, XX, or by its part of speech:

  (S (NP (DT The) (NN dog)) (VP (VBZ sleeps)) (. .))
  (S (NP XX XX )NP (VP XX )VP XX )S
  (S (NP DT NN )NP (VP VBZ )VP . )S

XX is the default, as there: parts of speech do not count in F1, and without them it is higher. One
symbol a word is the least that can be turned back, so that there is no form with none.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, final

ANY_TAG = "XX"  # stands for every word, where parts of speech do not
ROOT = "TOP"  # of what has no single constituent at its top; it does not count in F1

# What stands for a word, by its part of speech.
TERMINALS: dict[str, Callable[[str], str]] = {"xx": lambda tag: ANY_TAG, "pos": lambda tag: tag}


class Bracket(NamedTuple):
    """A constituent: its label, its first word, and the first word after it."""

    label: str
    start: int
    end: int


@final
@dataclasses.dataclass(frozen=True)
class Tree:
    """Words with their parts of speech, and brackets in the order in which they open.

    Nothing is lost by leaving out the nesting: no bracket is empty, and of two with the same words
    the outer opens first. Nothing recurses, however deep a tree is.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    brackets: tuple[Bracket, ...]

    @property
    def has_root(self) -> bool:
        """Whether one constituent holds all others."""
        return bool(self.brackets) and self.brackets[0][1:] == (0, len(self.words))


ABSENT = Tree((), (), ())  # what is not said


def leaf(tag: str, words: str) -> Tree:
    """Words, between spaces, that all have one part of speech."""
    parts = tuple(words.split())
    return Tree(parts, (tag,) * len(parts), ())


def join(label: str, *children: Tree) -> Tree:
    """A constituent of parts, of which some may be absent: trees without words."""
    together = beside(children)
    whole = Bracket(label, 0, len(together.words))
    return Tree(together.words, together.tags, (whole, *together.brackets))


def beside(parts: Iterable[Tree]) -> Tree:
    """Trees one after another, without a constituent around them."""
    said = [part for part in parts if part.words]
    if len(said) == 1:
        return said[0]
    words: list[str] = []
    tags: list[str] = []
    brackets: list[Bracket] = []
    for part in said:
        for label, start, end in part.brackets:
            brackets.append(Bracket(label, start + len(words), end + len(words)))
        words += part.words
        tags += part.tags
    return Tree(tuple(words), tuple(tags), tuple(brackets))


def bracketed(tree: Tree) -> str:
    r"""A tree as treebanks write it, in one line; a bracket or \ in a word has a \ before it."""
    parts = []
    for opening, place, closing in _steps(tree):
        parts += [f" ({label}" for label in opening]
        word = re.sub(r"[()\\]", r"\\\g<0>", tree.words[place])
        parts.append(f" ({tree.tags[place]} {word})")
        parts.append(")" * len(closing))
    return "".join(parts).removeprefix(" ")


def linearised(tree: Tree, terminals: str) -> str:
    """A tree as a model writes it: brackets with labels, and words as `TERMINALS` says."""
    stands_for = TERMINALS[terminals]
    parts = []
    for opening, place, closing in _steps(tree):
        parts += [f"({label}" for label in opening]
        parts.append(stands_for(tree.tags[place]))
        parts += [f"){label}" for label in closing]
    return " ".join(parts)


def _steps(tree: Tree) -> Iterator[tuple[list[str], int, list[str]]]:
    """For each word, what opens before it, its place, and what closes after it."""
    is_open: list[Bracket] = []
    following = 0
    for place in range(len(tree.words)):
        opening = []
        while following < len(tree.brackets) and tree.brackets[following].start == place:
            is_open.append(tree.brackets[following])
            opening.append(tree.brackets[following].label)
            following += 1
        closing = []
        while is_open and is_open[-1].end == place + 1:
            closing.append(is_open.pop().label)
        yield opening, place, closing


def from_linearised(text: str, words: Sequence[str]) -> tuple[Tree, bool]:
    r"""The tree of a sentence's words that a model has written, and whether it was well formed.

    What is not is repaired. As in Vinyals et al., brackets that lack their partner get it at the
    sentence's beginning or end. Besides, a closing bracket closes what is open, whatever label it
    has; brackets around nothing are left out; symbols for more words than there are, too; words
    without a symbol stand at the end, outside all brackets but the root's; a tree without a root
    gets `ROOT`, no other does; brackets within a part begin another; \ is left out. So every
    sentence can be scored, and its tree, of labels as treebanks have them, be written and read.
    """
    parts = re.findall(r"[()]?[^\s()\\]+|[()]", text)
    is_whole = parts == text.split() and not {"(", ")"} & set(parts)
    tags: list[str] = []
    found: list[Bracket] = []
    is_open: list[int] = []  # indices into `found`
    for part in parts:
        side, label = part[0], part[1:] or ROOT
        if side == "(":
            is_open.append(len(found))
            found.append(Bracket(label, len(tags), -1))
        elif side != ")":
            tags.append(part)
        elif is_open:
            place = is_open.pop()
            is_whole &= found[place].label == label
            found[place] = found[place]._replace(end=len(tags))
        else:  # it never opened: it opens at the beginning, around all that there is
            is_whole = False
            found.insert(0, Bracket(label, 0, len(tags)))
    is_whole &= not is_open and len(tags) == len(words)
    for place in is_open:
        found[place] = found[place]._replace(end=len(tags))
    kept = [bracket for bracket in found if bracket.start < bracket.end]
    is_whole &= len(kept) == len(found) and bool(kept) and kept[0][1:] == (0, len(tags))
    if kept and kept[0][1:] == (0, len(tags)):
        kept[0] = kept[0]._replace(end=len(words))
    kept = [bracket._replace(end=min(bracket.end, len(words))) for bracket in kept]
    kept = [bracket for bracket in kept if bracket.start < bracket.end]
    tags += [ANY_TAG] * (len(words) - len(tags))
    inner = tuple(bracket for bracket in kept if bracket.label != ROOT)
    tree = Tree(tuple(words), tuple(tags[: len(words)]), inner)
    is_whole &= len(kept) - len(inner) == (not tree.has_root)
    return (tree if tree.has_root else join(ROOT, tree)), is_whole


def symbols(trees: Iterable[Tree], terminals: str) -> list[str]:
    """All that can stand in trees of these labels, so that a tokenizer keeps each in one piece."""
    stands_for = TERMINALS[terminals]
    found: set[str] = set()
    for tree in trees:
        found |= {f"{side}{bracket.label}" for bracket in tree.brackets for side in "()"}
        found |= {stands_for(tag) for tag in tree.tags}
    return sorted(found)
