"""Numbered examples to train on and to be scored by: translations, and what objectives make.

The texts of an objective are both sides of the training pairs, and nothing else.
"""

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
from jaxtyping import Int

from transformer_jax import config as config_lib
from transformer_jax import errors, fields
from transformer_jax.data import corruption, directions, negatives, objectives
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import tokenizer as tokenizer_lib

Numbers = Int[np.ndarray, "examples"]
Pairs = Sequence[Any]  # two numbers of pairs, of which one may be None: it gives nothing


class Examples(abc.ABC):
    """Numbered examples, of which an epoch may make others than the last."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many there are in an epoch."""

    @abc.abstractmethod
    def get(self, epoch: int, number: int) -> objectives.Example:
        """One of them."""

    def lengths(self, epoch: int, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Positions that some take, of a source row and of a target row."""
        found = [self.get(epoch, number) for number in numbers.tolist()]
        both = [(len(example.source) + 1, len(example.target) + 1) for example in found]
        source, target = np.array(both, np.int32).reshape(-1, 2).T
        return source, target


@final
@dataclasses.dataclass(frozen=True)
class TranslationExamples(Examples):
    """The training pairs, alike in all epochs."""

    dataset: dataset_lib.Dataset

    def __len__(self) -> int:
        return len(self.dataset.usable)

    def get(self, epoch: int, number: int) -> objectives.Example:
        pair = int(self.dataset.usable[number])
        return objectives.Example(self.dataset.source[pair], self.dataset.target[pair])

    def lengths(self, epoch: int, numbers: Numbers) -> tuple[Numbers, Numbers]:
        pairs = self.dataset.usable[numbers]
        return self.dataset.source.lengths[pairs] + 1, self.dataset.target.lengths[pairs] + 1


class CorruptedExamples(Examples):
    """Texts, here both sides of sentence pairs, of which an objective makes examples."""

    def __init__(
        self,
        sides: tuple[negatives.Lists, negatives.Lists],
        numbers: Int[np.ndarray, "pairs"],
        longest: int,
        objective: objectives.Objective,
        seed: int,
        ids: objectives.Ids,
    ) -> None:
        """Takes, of pairs of such numbers, the texts of `SHORTEST` tokens to the longest."""
        self._sides = sides
        self._objective, self._seed, self._ids = objective, seed, ids
        self._chosen = [each for each in self._candidates(numbers) if self._fits(each, longest)]

    def _candidates(self, pairs: Int[np.ndarray, "pairs"]) -> Iterator[Pairs]:
        """The texts there are: each by the pair it has its source from, and its target; or None."""
        yield from ((pair, None) for pair in pairs.tolist())
        yield from ((None, pair) for pair in pairs.tolist())

    def _fits(self, pairs: Pairs, longest: int) -> bool:
        both = zip(self._sides, pairs, strict=True)  # lengths alone: texts may lie on a disk
        lengths = [len(side[pair]) for side, pair in both if pair is not None]
        # Between two, as `_text` joins them, stands an EOS.
        return corruption.SHORTEST <= sum(lengths) + (lengths[0] > 0) * len(lengths[1:]) <= longest

    def __len__(self) -> int:
        return len(self._chosen)

    def get(self, epoch: int, number: int) -> objectives.Example:
        epoch = epoch % self._objective.drawings if self._objective.drawings else epoch
        # Packing's streams have two or three numbers: none is this.
        rng = np.random.default_rng((self._seed, epoch, number, 1))
        return self._objective.make(self._text(self._chosen[number]), rng, self._ids)

    def _text(self, pairs: Pairs) -> Int[np.ndarray, "n"]:
        """One pair's source, EOS and a pair's target; alone what comes without the other."""
        both = zip(self._sides, pairs, strict=True)
        parts: list[Any] = [side[pair] for side, pair in both if pair is not None]
        if len(parts) > 1 and len(parts[0]):
            parts.insert(1, [tokenizer_lib.EOS])
        return np.concatenate(parts).astype(np.int32)


@final
class PairExamples(CorruptedExamples):
    """A source, EOS and its translation: of either's hidden words the other says something."""

    def _candidates(self, pairs: Int[np.ndarray, "pairs"]) -> Iterator[Pairs]:
        return ((pair, pair) for pair in pairs.tolist())


@final
class CandidateExamples(CorruptedExamples):
    """A source, EOS and a target: for each source its translation, then a wrong one."""

    def _candidates(self, pairs: Int[np.ndarray, "pairs"]) -> Iterator[Pairs]:
        source, target = self._sides
        whole = [pair for pair in pairs.tolist() if len(source[pair]) and len(target[pair])]
        wrong = negatives.draw(target, np.array(whole, np.int64), self._seed)
        if not len(wrong):  # all targets are equal
            return
        for pair, other in zip(whole, wrong.tolist(), strict=True):
            yield pair, pair
            yield pair, other

    def get(self, epoch: int, number: int) -> objectives.Example:
        example = super().get(epoch, number)
        source, target = self._chosen[number]
        answer = objectives.answers(self._ids)[source != target]
        return example._replace(labels=[answer, *(example.labels or ())[1:]])


EXAMPLES = {"sentence": CorruptedExamples, "pair": PairExamples, "candidate": CandidateExamples}


def training(dataset: dataset_lib.Dataset, config: config_lib.Config) -> Examples:
    """What the config's objective makes of the training texts.

    Raises:
      UserError: there is no text of `SHORTEST` tokens or more that fits into a row, or all targets
        are equal where a wrong one is needed.
    """
    name, longest = config.train.objective, objectives.longest_text(config)
    kind, texts = objectives.KINDS[name], dataset.texts
    objective = (kind, config.train.seed, objectives.ids_of(config))
    sides = (texts.source, texts.target)
    found = EXAMPLES[kind.reads](sides, texts.usable, longest, *objective)
    if not len(found):
        what = {
            "sentence": f"text of {corruption.SHORTEST} to",
            "pair": "pair of at most",
            "candidate": "pair with a wrong target, of at most",
        }[kind.reads]
        raise errors.UserError(
            f"train.objective={name} finds no {what} {longest} tokens in the training set: set "
            "data.source_length and data.target_length higher"
        )
    return found


def held_out(
    pairs: dataset_lib.HeldOut, config: config_lib.Config
) -> dict[str, list[objectives.Example]]:
    """What a model of whole texts is scored by, alike for all seeds: "words" and "answers".

    Words are asked of sentences or of pairs, answers of sources with a right or wrong target.
    """
    chosen = objectives.KINDS[config.train.objective]
    asked = {"words": chosen.words, "answers": "matching" if chosen.reads == "candidate" else ""}
    tag_tokens = 1 if directions.tags(config.data) else 0
    sources = [ids[tag_tokens:] for ids in pairs.source_ids]  # tags are no words
    sides, numbers = (sources, pairs.target_ids), np.arange(len(pairs))
    found: dict[str, list[objectives.Example]] = {}
    for name, objective in asked.items():
        if objective:
            kind = objectives.KINDS[objective]
            of_all = (sides, numbers, fields.MOST)
            some = EXAMPLES[kind.reads](*of_all, kind, 0, objectives.ids_of(config))
            found[name] = [some.get(0, number) for number in range(len(some))]
    return found
