"""A corpus: sentence pairs for training, development and test, and where they come from."""

import abc
import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final


class PairSource(abc.ABC):
    """Sentences and their translations, in a fixed order; a training set may be larger than memory.

    Reading it again begins anew.
    """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of pairs."""

    @abc.abstractmethod
    def read(self, start: int = 0, every: int = 1) -> Iterator[tuple[str, str]]:
        """Source and target sentences of pairs start, start + every and so on."""


@final
@dataclasses.dataclass(frozen=True)
class Pairs(PairSource):
    """Sentences and their translations in memory, line by line."""

    source: list[str]
    target: list[str]
    trees: list[str] = dataclasses.field(default_factory=list)  # where targets are linearised trees

    def __len__(self) -> int:
        return len(self.source)

    def read(self, start: int = 0, every: int = 1) -> Iterator[tuple[str, str]]:
        return zip(self.source[start::every], self.target[start::every], strict=True)


@final
@dataclasses.dataclass(frozen=True)
class JoinedPairs(PairSource):
    """Several sources, one after another."""

    parts: Sequence[PairSource]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def read(self, start: int = 0, every: int = 1) -> Iterator[tuple[str, str]]:
        pairs = itertools.chain.from_iterable(part.read() for part in self.parts)
        return itertools.islice(pairs, start, None, every)


SETS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """What a corpus kind delivers."""

    train: PairSource  # of which a pair may have an empty side
    dev: Pairs
    test: Pairs  # without pairs if there is no test set
    train_digest: str  # SHA-256 that identifies the training set
    digest: str  # SHA-256 of training and development set: what a result depends on
    provenance: Mapping[str, Any]  # files, line counts and digests, for the run's record
    symbols: Sequence[str] = ()  # words of the targets that the tokenizer keeps in one piece

    @property
    def test_digest(self) -> str:
        """SHA-256 that identifies the test set."""
        pairs = [f"{source}\t{target}\n" for source, target in self.test.read()]
        trees = [f"{tree}\n" for tree in self.test.trees]  # their tags say what F1 leaves out
        return hashlib.sha256("".join(pairs + trees).encode()).hexdigest()


def in_memory(
    sets: Mapping[str, Pairs],
    provenance: Mapping[str, Any],
    *,
    terminals: str = "",
    symbols: Sequence[str] = (),
) -> Corpus:
    """A corpus of sets in memory; its digest covers terminals, which say how trees show words."""
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
