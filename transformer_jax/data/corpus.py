"""A corpus: sentence pairs for training, development and test, and where they come from."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentences and their translations, line by line."""

    source: list[str]
    target: list[str]

    def __len__(self) -> int:
        return len(self.source)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """What a corpus kind delivers.

    Attributes:
      train: the training set; here a pair may have an empty side.
      dev: the development set.
      test: the test set; without pairs if there is none.
      train_digest: SHA-256 that identifies the training set.
      digest: SHA-256 that identifies training and development set: what a result depends on.
      provenance: files, line counts and digests, for the run's record.
    """

    train: Pairs
    dev: Pairs
    test: Pairs
    train_digest: str
    digest: str
    provenance: Mapping[str, Any]
