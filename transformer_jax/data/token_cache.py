"""A cache of encoded sentences on disk.

The files are written once for each corpus and tokenizer, and then memory-mapped. If writing is
interrupted, the next process that needs the cache resumes it.
"""

import abc
import bisect
import contextlib
import dataclasses
import fcntl
import itertools
import logging
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import final

import numpy as np
from jaxtyping import Int, Integer

from transformer_jax import errors, files
from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import tokenizer as tokenizer_lib

_log = logging.getLogger(__name__)

CHUNK = 50_000  # pairs encoded together
SECONDS_BETWEEN_LINES = 20
SIDES = ("source", "target")


class Lists(abc.ABC):
    """A sequence of lists of token ids, one list for each sentence."""

    lengths: Int[np.ndarray, "lists"]

    def __len__(self) -> int:
        return len(self.lengths)

    @abc.abstractmethod
    def __getitem__(self, index: int) -> Integer[np.ndarray, "ids"]:
        """Returns the list of ids with this index."""


@final
@dataclasses.dataclass(frozen=True)
class TokenLists(Lists):
    """Lists of ids, concatenated in one array: list i is ids[ends[i - 1]:ends[i]]."""

    ids: Integer[np.ndarray, "ids"]
    ends: Int[np.ndarray, "lists"]
    lengths: Int[np.ndarray, "lists"]  # differences of ends

    def __getitem__(self, index: int) -> Integer[np.ndarray, "ids"]:
        end = self.ends[index]
        return self.ids[end - self.lengths[index] : end]


@final
class JoinedLists(Lists):
    """The concatenation of several sequences of lists, the parts.

    In all lists of a part, the part's tag precedes the ids.
    """

    def __init__(self, parts: Sequence[Lists], tags: Sequence[Sequence[int]]) -> None:
        """Joins the parts without copying them.

        Args:
          parts: the sequences of lists.
          tags: the ids to put before the lists of each part, such as a language tag; may be empty.
        """
        self._parts, self._tags = parts, tags
        self._ends = np.cumsum([len(part) for part in parts]).tolist()
        self.lengths = np.concatenate(
            [part.lengths + np.int32(len(tag)) for part, tag in zip(parts, tags, strict=True)]
        )

    def __getitem__(self, index: int) -> Integer[np.ndarray, "ids"]:
        number = bisect.bisect_right(self._ends, index)
        part = self._parts[number]
        ids = part[index - self._ends[number] + len(part)]
        return np.concatenate([np.array(self._tags[number], np.int32), ids])


def encoded(
    pairs: corpus_lib.PairSource, tokenizer: tokenizer_lib.Tokenizer, folder: pathlib.Path
) -> tuple[TokenLists, TokenLists]:
    """Returns the ids of all sources and of all targets, memory-mapped from the cache.

    If the cache does not exist, the pairs are encoded and written first.

    Args:
      pairs: the sentence pairs; a blank sentence has no ids.
      tokenizer: the tokenizer that encodes the sentences.
      folder: the folder of the cache, which is specific to these pairs and this tokenizer.

    Raises:
      UserError: a file of the cache is damaged.
    """
    if not folder.exists():
        with _alone(folder.with_suffix(".lock")):
            if not folder.exists():  # otherwise another process has just written it
                partial = folder.with_suffix(".partial")
                _write(pairs, tokenizer, partial)
                partial.rename(folder)
    source, target = (_read(folder, side, _kinds(tokenizer), len(pairs)) for side in SIDES)
    return source, target


def _kinds(tokenizer: tokenizer_lib.Tokenizer) -> dict[str, np.dtype]:
    """Returns the type of each array of `TokenLists`, by the array's name."""
    ids = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.int32
    return {"ids": np.dtype(ids), "ends": np.dtype(np.int64), "lengths": np.dtype(np.int32)}


def _read(folder: pathlib.Path, side: str, kinds: Mapping[str, np.dtype], lists: int) -> TokenLists:
    """Reads the sources or the targets from a cache.

    Args:
      folder: the cache.
      side: "source" or "target".
      kinds: the types of the arrays, by name.
      lists: the number of sentences.

    Raises:
      UserError: a file is missing or has a wrong length.
    """

    def array(name: str, length: int) -> np.ndarray:
        kind, path = kinds[name], folder / f"{side}-{name}.bin"
        size = path.stat().st_size if path.exists() else 0
        if size != length * kind.itemsize:
            raise errors.UserError(
                f"{path} is damaged ({size:,} bytes instead of {length * kind.itemsize:,}): "
                f"delete {folder}, and the corpus is encoded again"
            )
        if not length:  # an empty file cannot be mapped
            return np.zeros(0, kind)
        return np.memmap(path, kind, mode="r")

    ends, lengths = array("ends", lists), array("lengths", lists)
    return TokenLists(array("ids", int(ends[-1]) if lists else 0), ends, lengths)


@contextlib.contextmanager
def _alone(path: pathlib.Path) -> Iterator[None]:
    """Holds a lock on a file during the body, after waiting until other processes release it."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.info("another process is encoding this corpus; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(
    pairs: corpus_lib.PairSource, tokenizer: tokenizer_lib.Tokenizer, folder: pathlib.Path
) -> None:
    """Encodes pairs chunk by chunk, and appends the ids to files in a folder.

    If an earlier process was stopped while it wrote the files, encoding continues after the last
    complete chunk. The file `written.json` has the numbers of pairs and ids written so far.
    """
    folder.mkdir(exist_ok=True)
    record = folder / "written.json"
    written = {"pairs": 0, **dict.fromkeys(SIDES, 0)}
    remedy = f"delete {folder}, and the corpus is encoded anew"
    if record.exists():
        written = files.read_json(record, dict.fromkeys(written, int), remedy)
        _log.info(f"resuming after {written['pairs']:,} encoded pairs")
    reader, first = pairs.read(written["pairs"]), written["pairs"]
    start = last_line = time.monotonic()
    kinds = _kinds(tokenizer)
    with contextlib.ExitStack() as opened:
        outputs = {}
        for side, name in itertools.product(SIDES, kinds):
            file = opened.enter_context((folder / f"{side}-{name}.bin").open("ab"))
            count = written[side if name == "ids" else "pairs"]
            size = count * kinds[name].itemsize
            if file.tell() < size:
                raise errors.UserError(f"{file.name} is shorter than what was written: {remedy}")
            file.truncate(size)  # removes an interrupted chunk
            outputs[side, name] = file
        while chunk := list(itertools.islice(reader, CHUNK)):
            for side, sentences in zip(SIDES, zip(*chunk, strict=True), strict=True):
                lists = tokenizer.encode_lines(sentences)
                lengths = np.fromiter(map(len, lists), kinds["lengths"])
                ends = written[side] + np.cumsum(lengths, dtype=kinds["ends"])
                ids = np.fromiter(itertools.chain.from_iterable(lists), kinds["ids"])
                for name, array in (("ids", ids), ("ends", ends), ("lengths", lengths)):
                    outputs[side, name].write(array.tobytes())
                    outputs[side, name].flush()
                    os.fsync(outputs[side, name].fileno())
                written[side] = int(ends[-1])
            done = written["pairs"] + len(chunk)
            written["pairs"] = done
            files.write_json(record, written)
            if time.monotonic() - last_line > SECONDS_BETWEEN_LINES:
                last_line = time.monotonic()
                speed = (done - first) / (last_line - start)
                _log.info(f"encoded {done:,} of {len(pairs):,} pairs, {speed:,.0f} a second")
