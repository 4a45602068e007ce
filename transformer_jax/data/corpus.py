"""Corpora: sentence pairs for training, development and test, with their provenance."""

import abc
import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final


class PairSource(abc.ABC):
    """Sentence pairs in a fixed order, which can be read several times and may exceed memory."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns the number of pairs."""

    @abc.abstractmethod
    def read(self, start: int = 0, every: int = 1) -> Iterator[tuple[str, str]]:
        """Yields the source and target sentences of pairs start, start + every and so on."""


@final
@dataclasses.dataclass(frozen=True)
class Pairs(PairSource):
    """Sentence pairs in memory."""

    source: list[str]
    target: list[str]
    trees: list[str] = dataclasses.field(default_factory=list)  # of linearised targets, in brackets

    def __len__(self) -> int:
        return len(self.source)

    def read(self, start: int = 0, every: int = 1) -> Iterator[tuple[str, str]]:
        return zip(self.source[start::every], self.target[start::every], strict=True)


@final
@dataclasses.dataclass(frozen=True)
class JoinedPairs(PairSource):
    """The pairs of several `PairSource`s, one after another."""

    parts: Sequence[PairSource]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def read(self, start: int = 0, every: int = 1) -> Iterator[tuple[str, str]]:
        pairs = itertools.chain.from_iterable(part.read() for part in self.parts)
        return itertools.islice(pairs, start, None, every)


SETS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The training, development and test sets of a corpus, with their digests."""

    train: PairSource  # a side of a pair may be empty
    dev: Pairs
    test: Pairs  # empty without a test set
    train_digest: str  # SHA-256 that identifies the training set
    digest: str  # SHA-256 of training and development set
    provenance: Mapping[str, Any]  # files, line counts and digests, for the run's record
    symbols: Sequence[str] = ()  # words of targets that the tokenizer must not split

    @property
    def test_digest(self) -> str:
        """SHA-256 that identifies the test set."""
        pairs = [f"{source}\t{target}\n" for source, target in self.test.read()]
        trees = [f"{tree}\n" for tree in self.test.trees]  # F1 depends on their tags
        return hashlib.sha256("".join(pairs + trees).encode()).hexdigest()


def in_memory(
    sets: Mapping[str, Pairs],
    provenance: Mapping[str, Any],
    *,
    terminals: str = "",
    symbols: Sequence[str] = (),
) -> Corpus:
    """Returns a corpus whose sets are in memory.

    Args:
      sets: pairs of "train", "dev" and "test".
      provenance: files, line counts and digests, for the run's record.
      terminals: the key of `trees.TERMINALS` with which trees were linearised. It is part of the
        digests.
      symbols: see `Corpus.symbols`.
    """
    digest = hashlib.sha256(terminals.encode())
    digests: dict[str, str] = {}
    for name, pairs in sets.items():
        lines = pairs.trees or ["\t".join(pair) for pair in pairs.read()]
        digest.update("".join(f"{line}\n" for line in [name, *lines]).encode())
        digests[name] = digest.hexdigest()
    return Corpus(
        **sets,
        train_digest=digests["train"],
        digest=digests["dev"],
        provenance=provenance,
        symbols=symbols,
    )
