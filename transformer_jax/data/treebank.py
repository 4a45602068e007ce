r"""Treebanks: files of trees in Penn brackets, plain or gzip-compressed, several trees in a file.

Paths are separated by commas. Each may be a pattern, and may end with a slice, which selects some
of its trees or, with a ~, all except these. Slices of sorted files should have a step; parts of
GreynirCorpus, for example, are sorted by length:

  --config.data.train='WSJ/0[2-9]/*.mrg,WSJ/1?/*.mrg,WSJ/2[01]/*.mrg'
  --config.data.train='greynir/dev_4500.psd[~::9]' --config.data.dev='greynir/dev_4500.psd[::9]'

Annotations that parsers do not predict are removed as usual: traces and other empty elements
(-NONE-), constituents that contain nothing else, function tags and indices (NP-SBJ-1, NP=2), the
unlabelled bracket or TOP around a whole tree, and the backslash before / * ( ) and \ in a word. In
trees of GreynirCorpus, META, lemma and exp_… brackets are removed too; terminals are shortened to
their word class (no_et_nf_kvk to no), a terminal of several words becomes one for each word, and
phrases with nothing after the label, such as (S-MAIN ), are removed. In other treebanks, a bracket
with nothing after its label is an error. A bracket within a word must be written \( or \).
"""

import collections
import dataclasses
import glob
import logging
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files
from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import text, toy, trees

_log = logging.getLogger(__name__)

CORPORA = ("trees", "toy_parsing")  # the values of data.corpus whose targets are trees
_EMPTY = "-NONE-"  # tag of empty elements
_ABOUT_TREE = "META"  # GreynirCorpus: source of a sentence
_PART = re.compile(r"[()]|(?:\\\S|[^\s()])+")
# A path and a slice in brackets after it, whose colon or ~ distinguishes it from a pattern.
_SLICE = re.compile(r"(.*)\[(~?)([^\[\]~]*)\]", re.DOTALL)
_ENDS = re.compile(r"(-?\d+)?:(-?\d+)?(?::([1-9]\d*))?")


@dataclasses.dataclass
class _Open:
    """A bracket of a tree that the reader has not seen closed yet."""

    line: int
    label: str | None = None  # None: not read yet; "": no label
    words: list[str] = dataclasses.field(default_factory=list)
    children: list[trees.Tree] = dataclasses.field(default_factory=list)
    ignored: bool = False  # within a `_ABOUT_TREE` bracket
    may_be_empty: bool = False  # a phrase of GreynirCorpus


# nltk.Tree.fromstring reads one tree at a time, does not report the line of an error, and does not
# remove annotations. Code that added this to it would be longer than this reader.
def parse(
    lines: Iterable[str], name: str, empty: collections.Counter[str] | None = None
) -> Iterator[trees.Tree]:
    """Yields the trees in lines of text, without the annotations that the module removes.

    Args:
      lines: text in Penn brackets.
      name: the source of the lines, for error messages.
      empty: a counter, to which the labels of removed empty nodes are added.

    Raises:
      UserError: the brackets are malformed; the message has the line's number.
    """
    is_open: list[_Open] = []
    empty = collections.Counter() if empty is None else empty
    is_greynir = False
    number = 0
    for number, line in enumerate(lines, start=1):
        for part in _PART.findall(line):
            if part == "(":
                outer = is_open[-1] if is_open else _Open(number)
                outer.label = outer.label or ""
                is_open.append(_Open(number, ignored=outer.ignored or outer.label == _ABOUT_TREE))
            elif not is_open:
                fault = "an unmatched )" if part == ")" else f"{part[:40]!r} outside all brackets"
                raise errors.UserError(f"{name}: line {number:,} has {fault}")
            elif part != ")":
                if is_open[-1].label is None:
                    is_open[-1].label = part
                else:
                    is_open[-1].words.append(part)
            else:
                closed = is_open.pop()
                if closed.ignored or _is_annotation(closed.label or ""):
                    is_greynir = True
                    continue
                closed.may_be_empty = is_greynir and (closed.label or "")[:1].isupper()
                tree = _tree(closed, name, number, empty)
                if is_open:
                    is_open[-1].children.append(tree)
                    continue
                is_greynir = False
                if tree.words:
                    yield tree if tree.has_root else trees.join(trees.ROOT, tree)
                else:
                    raise errors.UserError(
                        f"{name}: the tree that begins in line {closed.line:,} has no words"
                    )
    if is_open:
        raise errors.UserError(
            f"{name}: the tree that begins in line {is_open[0].line:,} is not closed: "
            f"{len(is_open)} of its brackets are still open at the end"
        )


def _is_annotation(label: str) -> bool:
    """Returns whether a label is that of an annotation of GreynirCorpus."""
    return label in (_ABOUT_TREE, "lemma") or label.startswith("exp_")


def _tree(bracket: _Open, name: str, number: int, empty: collections.Counter[str]) -> trees.Tree:
    """Returns the tree of a closed bracket, or `trees.ABSENT` if the bracket has no words.

    Args:
      bracket: the bracket.
      name: the source of the lines, for error messages.
      number: the number of the line that closes the bracket, for error messages.
      empty: a counter, to which the labels of removed empty nodes are added.

    Raises:
      UserError: the bracket is malformed.
    """
    label = bracket.label or ""
    words = bracket.words
    children = bracket.children
    if words and children:
        raise errors.UserError(
            f"{name}: line {number:,} closes a bracket, {label[:40]!r}, with words beside other "
            "brackets; a bracket that belongs to a word is written \\( or \\), -LRB- or -RRB-"
        )
    if words and label != _EMPTY:
        tag = label.split("_")[0] or label
        plain = " ".join(re.sub(r"\\(\S)", r"\1", word) for word in words)
        plain = plain.replace("&#40;", "(").replace("&#41;", ")")
        return trees.leaf(tag, plain)
    if not words and not children and not bracket.may_be_empty:
        raise errors.UserError(
            f"{name}: line {number:,} closes a bracket, {label[:40]!r}, without a word; a bracket "
            "that is a word, or a part of one, is written \\( or \\), -LRB- or -RRB-"
        )
    if not children:
        empty[label] += 1
        return trees.ABSENT
    inner = trees.beside(children)
    label = re.split("[-=]", label)[0] or label
    is_constituent = bool(inner.words) and label not in ("", trees.ROOT)
    return trees.join(label, inner) if is_constituent else inner


def load(config: config_lib.DataConfig) -> corpus_lib.Corpus:
    """Loads sentences and their linearised trees from treebank files.

    The trees of data.parsed, which a model has written, are appended to the training set.

    Raises:
      UserError: a set is missing or has no trees, a file cannot be read or is malformed, or
        data.tree_terminals is unknown.
    """
    sets: dict[str, list[trees.Tree]] = {}
    records: list[dict[str, Any]] = []
    for name in corpus_lib.SETS:
        sets[name], file_records = read(getattr(config, name), f"data.{name}")
        records += [{"set": name, **record} for record in file_records]
        if not sets[name] and name != "test":
            raise errors.UserError(
                f"data.{name} has no trees: give files in Penn brackets, "
                f"--config.data.{name}='FOLDER/*.mrg'"
            )
    parsed, file_records = read(config.parsed, "data.parsed")
    sets["train"] += parsed
    records += [{"set": "train", **record} for record in file_records]
    return _corpus(sets, config.tree_terminals, {"corpus": "trees", "files": records})


def load_toy(config: config_lib.DataConfig) -> corpus_lib.Corpus:
    """Loads the English sentences of the toy grammar with their linearised trees.

    Punctuation is separated from words, as in treebanks. The trees of data.parsed are appended to
    the training set.

    Raises:
      UserError: a set would have no sentence, a file of data.parsed cannot be read or is malformed,
        or data.tree_terminals is unknown.
    """
    drawn = toy.sets(config)
    sets = {name: [sentence.tree for sentence in part] for name, part in drawn.items()}
    parsed, records = read(config.parsed, "data.parsed")
    sets["train"] += parsed
    lengths = {name: len(part) for name, part in sets.items()}
    provenance = {"corpus": "toy_parsing", "pairs": lengths, "files": records}
    return _corpus(sets, config.tree_terminals, provenance)


def _corpus(
    sets: dict[str, list[trees.Tree]], terminals: str, provenance: dict[str, Any]
) -> corpus_lib.Corpus:
    fields.require_known("data.tree_terminals", terminals, trees.TERMINALS)
    pairs = {
        name: corpus_lib.Pairs(
            [" ".join(tree.words) for tree in members],
            [trees.linearised(tree, terminals) for tree in members],
            [trees.bracketed(tree) for tree in members],
        )
        for name, members in sets.items()
    }
    symbols = trees.symbols(sets["train"], terminals)
    return corpus_lib.in_memory(pairs, provenance, terminals=terminals, symbols=symbols)


def read(paths: str, field: str) -> tuple[list[trees.Tree], list[dict[str, Any]]]:
    """Reads the trees of treebank files.

    Args:
      paths: file paths or glob patterns, separated by commas. Each may be followed by a slice of
        its trees, such as wsj*.mrg[:100] for the first 100 trees and wsj*.mrg[~:100] for the rest.
      field: the config field that contains them, for error messages.

    Returns:
      The trees, in the order of the paths, and a record for each file.

    Raises:
      UserError: a path does not exist, or a file cannot be read or is malformed.
    """
    chosen_trees: list[trees.Tree] = []
    records: list[dict[str, Any]] = []
    for part in filter(None, (part.strip() for part in paths.split(","))):
        pattern, chosen, is_complement = _parts(part)
        of_pattern: list[trees.Tree] = []
        for path in _files(pattern, field):
            empty: collections.Counter[str] = collections.Counter()
            of_file = list(parse(text.lines(path), str(path), empty))
            if not of_file:
                raise errors.UserError(f"{path} has no trees")
            if empty:
                _log.info("%s: left out empty nodes: %s", path, dict(empty))
            record = {"path": str(path), "sha256": files.sha256(path), "trees": len(of_file)}
            records.append({**record, "empty_nodes": empty.total()})
            of_pattern += of_file
        indices = {*range(len(of_pattern))[chosen]}
        kept = [tree for i, tree in enumerate(of_pattern) if (i in indices) != is_complement]
        if not kept:
            raise errors.UserError(f"{field}: {part} takes none of its {len(of_pattern):,} trees")
        chosen_trees += kept
    return chosen_trees, records


def _parts(part: str) -> tuple[str, slice, bool]:
    """Splits a path or pattern from the slice after it.

    Returns:
      The path or pattern; the slice, which is slice(None) if there is none; and whether the slice
      selects the trees to leave out instead of the trees to read.
    """
    match = _SLICE.fullmatch(part)
    if not match or not (match[2] or ":" in match[3]) or os.path.exists(part):
        return part, slice(None), False
    if not (ends := _ENDS.fullmatch(match[3])):
        raise errors.UserError(
            f"{part}: a slice of trees is [a:b], [a:b:step] with a step of at least 1, or [~a:b], "
            "which takes all except these"
        )
    start, stop, step = (int(end) if end else None for end in ends.groups())
    return match[1], slice(start, stop, step), bool(match[2])


def _files(pattern: str, field: str) -> list[pathlib.Path]:
    """Returns the files that a path or glob pattern stands for, sorted by name."""
    pattern = os.path.expanduser(pattern)
    is_path = os.path.exists(pattern)  # even if it looks like a pattern
    names = [pattern] if is_path else sorted(glob.glob(pattern, recursive=True))
    paths = [pathlib.Path(name) for name in names]
    if not paths:
        raise errors.UserError(f"{field}: there is no file {pattern}")
    for path in paths:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise errors.UserError(f"{path} is a pipe: give a file, which is read more than once")
    return paths
