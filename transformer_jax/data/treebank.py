r"""Treebanks: files of trees in Penn brackets, plain or gzip-compressed, several trees in a file.

Paths are separated by commas; each may be a pattern, and may end in a slice, which takes some of
its trees or, with a ~, all others. Slices of files that are sorted, as GreynirCorpus' are by
length in stretches, should have a step:

  --config.data.train='WSJ/0[2-9]/*.mrg,WSJ/1?/*.mrg,WSJ/2[01]/*.mrg'
  --config.data.train='greynir/dev_4500.psd[~::9]' --config.data.dev='greynir/dev_4500.psd[::9]'

What parsers are not asked for is removed in the usual way: traces and other empty elements
(-NONE-), constituents without words, function tags and indices (NP-SBJ-1, NP=2), the
unlabelled bracket or TOP around a whole tree, the backslash before / * ( ) and \ in a word. So is
what GreynirCorpus adds: META, lemma and exp_… brackets; its terminals are cut to their word class
(no_et_nf_kvk to no), and one of several words becomes as many, so that a sentence's words are what
stands between spaces. GreynirCorpus also has phrases without words, such as (S-MAIN ). Elsewhere a
bracket without a word is an error, and so is a bracket within a word that is not written \( or \).

nltk.Tree.fromstring reads brackets too, but one tree at a time, without the line of a mistake, and
it neither drops nor cuts anything: what would remain to be written is longer than this reader.
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
from transformer_jax.data import text, trees
from transformer_jax.data.toy import generator

_log = logging.getLogger(__name__)

CORPORA = ("trees", "toy_parsing")  # the values of data.corpus whose targets are trees
_EMPTY = "-NONE-"  # the tag of what is not said
_ABOUT_TREE = "META"  # GreynirCorpus: where a sentence comes from
_PART = re.compile(r"[()]|(?:\\\S|[^\s()])+")
# A path and what stands in brackets after it, with a colon or ~, which patterns of paths have not.
_SLICE = re.compile(r"(.*)\[(~?)([^\[\]~]*)\]", re.DOTALL)
_ENDS = re.compile(r"(-?\d+)?:(-?\d+)?(?::([1-9]\d*))?")


@dataclasses.dataclass
class _Open:
    """A bracket that is being read."""

    line: int
    label: str | None = None  # None: nothing has been read yet; "": it has none
    words: list[str] = dataclasses.field(default_factory=list)
    children: list[trees.Tree] = dataclasses.field(default_factory=list)
    ignored: bool = False  # it lies within a `_ABOUT_TREE`
    may_be_empty: bool = False  # it lies in a tree of GreynirCorpus, and is a phrase


def parse(
    lines: Iterable[str], name: str, empty: collections.Counter[str] | None = None
) -> Iterator[trees.Tree]:
    """Yields the trees of lines.

    Args:
      lines: text in Penn brackets.
      name: the source of the lines, for error messages.
      empty: the labels of empty nodes, which no tree keeps, are counted here.

    Raises:
      UserError: the brackets are no trees; the message has the line's number.
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
                what = "a ) without its (" if part == ")" else f"{part[:40]!r} outside all brackets"
                raise errors.UserError(f"{name}: line {number:,} has {what}")
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
            f"{len(is_open)} of its brackets are open in the end"
        )


def _is_annotation(label: str) -> bool:
    """Returns whether a bracket is one of those that GreynirCorpus adds to words and trees."""
    return label in (_ABOUT_TREE, "lemma") or label.startswith("exp_")


def _tree(bracket: _Open, name: str, number: int, empty: collections.Counter[str]) -> trees.Tree:
    """Returns the tree of a bracket closed in a line; `trees.ABSENT` if it has no words."""
    label, words, children = bracket.label or "", bracket.words, bracket.children
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
    return trees.join(label, inner) if inner.words and label not in ("", trees.ROOT) else inner


def load(config: config_lib.DataConfig) -> corpus_lib.Corpus:
    """Sentences and their linearised trees, of treebanks by their paths.

    The trees of data.parsed, which a model wrote, are trained on after those of data.train.

    Raises:
      UserError: a set is not given or has no trees, a file cannot be read or has bad brackets, or
        nothing is known to stand for words in this way.
    """
    sets: dict[str, list[trees.Tree]] = {}
    records: list[dict[str, Any]] = []
    for name in corpus_lib.SETS:
        sets[name], found = read(getattr(config, name), f"data.{name}")
        records += [{"set": name, **record} for record in found]
        if not sets[name] and name != "test":
            raise errors.UserError(
                f"data.{name} has no trees: give files in Penn brackets, "
                f"--config.data.{name}='FOLDER/*.mrg'"
            )
    further, found = read(config.parsed, "data.parsed")
    sets["train"] += further
    records += [{"set": "train", **record} for record in found]
    return _corpus(sets, config.tree_terminals, {"corpus": "trees", "files": records})


def load_toy(config: config_lib.DataConfig) -> corpus_lib.Corpus:
    """The toy grammar's English sentences, in its order and its sets, with their trees.

    A mark stands apart from the word before it, as treebanks have it. The trees of data.parsed are
    trained on too.

    Raises:
      UserError: as `generator.sets` and `read`, or nothing is known to stand for words in this way.
    """
    drawn = generator.sets(config)
    sets = {name: [sentence.tree for sentence in part] for name, part in drawn.items()}
    further, records = read(config.parsed, "data.parsed")
    sets["train"] += further
    lengths = {name: len(part) for name, part in sets.items()}
    about = {"corpus": "toy_parsing", "pairs": lengths, "files": records}
    return _corpus(sets, config.tree_terminals, about)


def _corpus(
    sets: dict[str, list[trees.Tree]], terminals: str, provenance: dict[str, Any]
) -> corpus_lib.Corpus:
    fields.require_known("data.tree_terminals", terminals, trees.TERMINALS)
    pairs = {
        name: corpus_lib.Pairs(
            [" ".join(tree.words) for tree in found],
            [trees.linearised(tree, terminals) for tree in found],
            [trees.bracketed(tree) for tree in found],
        )
        for name, found in sets.items()
    }
    symbols = trees.symbols(sets["train"], terminals)
    return corpus_lib.in_memory(pairs, provenance, terminals=terminals, symbols=symbols)


def read(paths: str, what: str) -> tuple[list[trees.Tree], list[dict[str, Any]]]:
    """Trees of files, in the order of the paths, and of each file a record.

    Raises:
      UserError: nothing lies at a path, or a file cannot be read or has bad brackets.
    """
    found: list[trees.Tree] = []
    records: list[dict[str, Any]] = []
    for part in filter(None, (part.strip() for part in paths.split(","))):
        pattern, chosen, is_left_out = _parts(part)
        of_pattern: list[trees.Tree] = []
        for path in _files(pattern, what):
            empty: collections.Counter[str] = collections.Counter()
            of_file = list(parse(text.lines(path), str(path), empty))
            if not of_file:
                raise errors.UserError(f"{path} has no trees")
            if empty:
                _log.info("%s: left out empty nodes: %s", path, dict(empty))
            record = {"path": str(path), "sha256": files.sha256(path), "trees": len(of_file)}
            records.append({**record, "empty_nodes": empty.total()})
            of_pattern += of_file
        places = {*range(len(of_pattern))[chosen]}
        kept = [tree for i, tree in enumerate(of_pattern) if (i in places) != is_left_out]
        if not kept:
            raise errors.UserError(f"{what}: {part} takes none of its {len(of_pattern):,} trees")
        found += kept
    return found, records


def _parts(part: str) -> tuple[str, slice, bool]:
    """A path or pattern, the slice after it, and whether that is of what is left out."""
    match = _SLICE.fullmatch(part)
    if not match or not (match[2] or ":" in match[3]) or os.path.exists(part):
        return part, slice(None), False
    if not (ends := _ENDS.fullmatch(match[3])):
        raise errors.UserError(
            f"{part}: a slice of trees is [a:b], [a:b:step] with a step of at least 1, or [~a:b], "
            "which takes all others"
        )
    return match[1], slice(*(int(end) if end else None for end in ends.groups())), bool(match[2])


def _files(pattern: str, what: str) -> list[pathlib.Path]:
    """The files of a path or pattern, by name."""
    is_one = os.path.exists(pattern)  # though its name may look like a pattern
    names = [pattern] if is_one else sorted(glob.glob(pattern, recursive=True))
    found = [*map(pathlib.Path, names)]
    if not found:
        raise errors.UserError(f"{what}: there is no file {pattern}")
    for path in found:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise errors.UserError(f"{path} is a pipe: give a file, which is read more than once")
    return found
