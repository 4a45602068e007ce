r"""Parallel text files: aligned, one sentence per line, plain or gzip-compressed.

The path prefix `X` stands for the files `X.en` and `X.de`, or `X.en.gz` and `X.de.gz`. Without a
source language, the prefix stands for the file of the target language alone, and sources are blank.
Lines end at "\n" only: `str.splitlines` would also split at U+0085, which occurs in news texts.
"""

import codecs
import collections
import dataclasses
import functools
import gzip
import hashlib
import itertools
import logging
import pathlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.data import corpus as corpus_lib

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class _File:
    """A file with the source sentences or the target sentences of a set."""

    path: pathlib.Path
    sha256: str  # of the file itself, compressed or not
    lines: int


@final
class Files(corpus_lib.PairSource):
    """Pairs of aligned files, read line by line."""

    def __init__(self, pairs: Sequence[tuple[_File | None, _File]]) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return sum(target.lines for _, target in self._pairs)

    def read(self, start: int = 0, every: int = 1) -> Iterator[tuple[str, str]]:
        parts = (_read_pairs(source, target) for source, target in self._pairs)
        return itertools.islice(itertools.chain.from_iterable(parts), start, None, every)


def _read_pairs(source: _File | None, target: _File) -> Iterator[tuple[str, str]]:
    if source is None:
        return (("", line) for line in lines(target.path))
    return zip(lines(source.path), lines(target.path), strict=True)


def load(config: config_lib.DataConfig) -> corpus_lib.Corpus:
    """Opens a corpus of text files.

    data.train, data.dev and data.test are path prefixes, separated by commas.

    Raises:
      UserError: a prefix or the target language is missing; a file is missing, unreadable, empty or
        not UTF-8; or the two files of a prefix differ in their number of lines.
    """
    if not config.target_language:
        raise errors.UserError(
            "data.target_language is empty: set it to the ending of the target files, such as de; "
            "for a language model, leave data.source_language empty instead"
        )
    ends = [config.target_language]
    if config.source_language:
        ends.insert(0, config.source_language)
    records: list[dict[str, Any]] = []
    digest = hashlib.sha256()
    sets: dict[str, Files] = {}
    digests: dict[str, str] = {}
    for name in corpus_lib.SETS:
        pairs: list[tuple[_File | None, _File]] = []
        prefixes = [part.strip() for part in getattr(config, name).split(",")]
        for prefix in prefixes:
            if not prefix:
                continue
            side_files = [_find(prefix, end) for end in ends]
            source = side_files[0] if len(side_files) == 2 else None
            target = side_files[-1]
            if source and source.lines != target.lines:
                raise errors.UserError(
                    f"{source.path} has {source.lines:,} lines, but {target.path} has "
                    f"{target.lines:,}: they should be aligned"
                )
            pairs.append((source, target))
            for file in side_files:
                records.append(
                    {
                        "set": name,
                        "path": str(file.path),
                        "sha256": file.sha256,
                        "lines": file.lines,
                    }
                )
                digest.update(f"{name} {file.sha256}\n".encode())
        if not pairs and name != "test":
            raise errors.UserError(
                f"data.{name} is empty: give a path prefix, --config.data.{name}=PATH/{name} reads "
                + " and ".join(f"PATH/{name}.{end}" for end in ends)
            )
        sets[name] = Files(pairs)
        digests[name] = digest.hexdigest()
        if pairs:
            _log.info(f"data.{name}: {len(sets[name]):,} sentence pairs")
    return corpus_lib.Corpus(
        train=sets["train"],
        dev=_in_memory(sets["dev"]),
        test=_in_memory(sets["test"]),
        train_digest=digests["train"],
        digest=digests["dev"],
        provenance={"corpus": "text", "files": records},
    )


def decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Yields lines decoded from UTF-8, without line ends.

    Args:
      lines: the lines as bytes.
      name: the name of the lines' file, for error messages.

    Raises:
      UserError: a line is not UTF-8.
    """
    for number, line in enumerate(lines, start=1):
        if number == 1 and line.startswith(codecs.BOM_UTF8):
            _warn_of_bom(name)
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.removesuffix(b"\n").decode()
        except UnicodeDecodeError as error:
            raise errors.UserError(
                f"{name}: line {number:,} is not UTF-8 ({error.reason} at byte "
                f"{error.start + 1} of the line)"
            ) from error


@functools.cache  # once for each file, which may be read several times
def _warn_of_bom(name: str) -> None:
    _log.warning(f"{name} begins with a byte order mark, which is left out")


def lines(path: pathlib.Path) -> Iterator[str]:
    """Yields the lines of a file, which is decompressed if its name ends with .gz.

    Raises:
      UserError: the file cannot be read, or a line is not UTF-8.
    """
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            yield from decoded(file, str(path))
    except (OSError, EOFError, zlib.error) as error:
        raise errors.UserError(f"cannot read {path}: {error}") from error


def read_lines(path: pathlib.Path) -> list[str]:
    """Returns all lines of a file.

    Raises:
      UserError: the file cannot be read or is empty, or a line is not UTF-8.
    """
    content = list(lines(path))
    if not content:
        raise errors.UserError(f"{path} is empty: it has 0 lines")
    return content


def _find(prefix: str, language: str) -> _File:
    candidates = [files.expanded(f"{prefix}.{language}{end}") for end in ("", ".gz")]
    for path in candidates:
        try:
            exists = path.exists()
            is_file = path.is_file()
        except OSError as error:  # no permission, or a name that is too long
            raise errors.UserError(f"cannot read {path}: {error}") from error
        if exists and not is_file:
            raise errors.UserError(
                f"{path} is a folder or a pipe: give a file, which is read more than once"
            )
        if exists:
            count = _count(path)
            return _File(path, files.sha256(path), count)
    raise errors.UserError(f"there is no file {candidates[0]}, nor {candidates[1].name}")


def _count(path: pathlib.Path) -> int:
    """Returns the number of lines in a file, and logs a warning of carriage returns, NULs and BOMs.

    Raises:
      UserError: the file cannot be read or is empty, or a line is not UTF-8.
    """
    count = 0
    odd = collections.Counter()
    for line in lines(path):
        count += 1
        if line.endswith("\r"):
            odd["end with a carriage return"] += 1
        if "\0" in line:
            odd["hold a NUL"] += 1
        if line.startswith("\ufeff"):
            odd["begin with a BOM"] += 1
    if not count:
        raise errors.UserError(f"{path} is empty: it has 0 lines")
    for oddity, number in odd.items():
        _log.warning(f"{path}: {number:,} lines {oddity}, which stays part of the sentence")
    return count


def _in_memory(pairs: Files) -> corpus_lib.Pairs:
    both = list(pairs.read())
    return corpus_lib.Pairs([source for source, _ in both], [target for _, target in both])
