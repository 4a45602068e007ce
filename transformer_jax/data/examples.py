"""Numbered examples for training and evaluation: translations, and examples of objectives.

An objective makes its examples from texts: the sources and targets of the training pairs.
"""

import abc
import dataclasses
from collections.abc import Iterator
from typing import final

import numpy as np
from jaxtyping import Int

from transformer_jax import config as config_lib
from transformer_jax import errors, fields
from transformer_jax.data import corruption, directions, negatives, objectives
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import tokenizer as tokenizer_lib

Numbers = Int[np.ndarray, "examples"]
# The number of the pair whose source a text contains, and the number of the pair whose target it
# contains; None if the text has no source or no target.
Parts = tuple[int | None, int | None]


class Examples(abc.ABC):
    """Examples that are numbered from 0 in each epoch.

    An example may change from epoch to epoch, for example by other random masks.
    """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns the number of examples in an epoch."""

    @abc.abstractmethod
    def get(self, epoch: int, number: int) -> objectives.Example:
        """Returns an example by its epoch and number, both counted from 0."""

    def lengths(self, epoch: int, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the number of positions that each example takes in a source and in a target row.

        Args:
          epoch: the epoch, from 0.
          numbers: the numbers of the examples.
        """
        examples = [self.get(epoch, number) for number in numbers.tolist()]
        lengths = [(len(example.source) + 1, len(example.target) + 1) for example in examples]
        source, target = np.array(lengths, np.int32).reshape(-1, 2).T
        return source, target


@final
@dataclasses.dataclass(frozen=True)
class TranslationExamples(Examples):
    """The training pairs as examples of translation, which are the same in all epochs."""

    dataset: dataset_lib.Dataset

    def __len__(self) -> int:
        return len(self.dataset.usable)

    def get(self, epoch: int, number: int) -> objectives.Example:
        pair = int(self.dataset.usable[number])
        return objectives.Example(self.dataset.source[pair], self.dataset.target[pair])

    def lengths(self, epoch: int, numbers: Numbers) -> tuple[Numbers, Numbers]:
        pairs = self.dataset.usable[numbers]
        return self.dataset.source.lengths[pairs] + 1, self.dataset.target.lengths[pairs] + 1


class SentenceExamples(Examples):
    """Examples that an objective makes from single sentences.

    The sentences are all sources, followed by all targets.
    """

    def __init__(
        self,
        source: negatives.Lists,
        target: negatives.Lists,
        pairs: Int[np.ndarray, "pairs"],
        longest: int,
        objective: objectives.Objective,
        ids: objectives.Ids,
        seed: int,
    ) -> None:
        """Chooses the texts that have a suitable length.

        Args:
          source: token ids of the sources.
          target: token ids of the targets; target i is the translation of source i.
          pairs: the indices of the pairs whose sentences are used.
          longest: the greatest number of tokens in a text. The least is `corruption.SHORTEST`.
          objective: the objective.
          ids: the ids that the objective may use.
          seed: seed of the random numbers.
        """
        self._source, self._target, self._seed = source, target, seed
        self._objective, self._ids = objective, ids
        self._chosen = [parts for parts in self._candidates(pairs) if self._fits(parts, longest)]

    def _candidates(self, pairs: Int[np.ndarray, "pairs"]) -> Iterator[Parts]:
        yield from ((pair, None) for pair in pairs.tolist())
        yield from ((None, pair) for pair in pairs.tolist())

    def _fits(self, parts: Parts, longest: int) -> bool:
        source, target = parts
        before = 0 if source is None else len(self._source[source])
        after = 0 if target is None else len(self._target[target])
        separator = int(before > 0 and target is not None)
        return corruption.SHORTEST <= before + separator + after <= longest

    def __len__(self) -> int:
        return len(self._chosen)

    def get(self, epoch: int, number: int) -> objectives.Example:
        distinct = self._objective.distinct_epochs
        epoch = epoch % distinct if distinct else epoch
        # Seeds in `packing` consist of two or three numbers, so that none equals this seed.
        rng = np.random.default_rng((self._seed, epoch, number, 1))
        return self._objective.example(self._text(self._chosen[number]), rng, self._ids)

    def _text(self, parts: Parts) -> Int[np.ndarray, "n"]:
        """Returns the tokens of a text: one sentence, or a source, EOS and a target."""
        source, target = parts
        sides = []
        if source is not None:
            sides.append(self._source[source])
        if target is not None:
            if sides and len(sides[0]):
                sides.append([tokenizer_lib.EOS])
            sides.append(self._target[target])
        return np.concatenate(sides).astype(np.int32)


@final
class PairExamples(SentenceExamples):
    """Examples that an objective makes from sentence pairs.

    The text of an example is a source, EOS and the source's translation.
    """

    def _candidates(self, pairs: Int[np.ndarray, "pairs"]) -> Iterator[Parts]:
        return ((pair, pair) for pair in pairs.tolist())


@final
class CandidateExamples(SentenceExamples):
    """Examples that an objective makes from right and wrong sentence pairs.

    There are two examples for each source. In the first, the source is followed by its translation;
    in the second, by the target of another pair.
    """

    def _candidates(self, pairs: Int[np.ndarray, "pairs"]) -> Iterator[Parts]:
        whole = [p for p in pairs.tolist() if len(self._source[p]) and len(self._target[p])]
        wrong = negatives.draw(self._target, np.array(whole, np.int64), self._seed)
        if not len(wrong):  # all targets are equal
            return
        for pair, other in zip(whole, wrong.tolist(), strict=True):
            yield pair, pair
            yield pair, other

    def get(self, epoch: int, number: int) -> objectives.Example:
        example = super().get(epoch, number)
        source, target = self._chosen[number]
        translation, other = objectives.pair_labels(self._ids)
        label = translation if source == target else other
        return example._replace(labels=[label, *(example.labels or ())[1:]])


EXAMPLES: dict[objectives.Texts, type[SentenceExamples]] = {
    "sentence": SentenceExamples,
    "pair": PairExamples,
    "candidate": CandidateExamples,
}


def training(dataset: dataset_lib.Dataset, config: config_lib.Config) -> Examples:
    """Returns the examples that the config's objective makes from the training texts.

    Raises:
      UserError: no text of `corruption.SHORTEST` tokens or more fits into a row; or the objective
        classifies pairs, and all targets are equal.
    """
    longest = objectives.longest_text(config)
    objective = objectives.KINDS[config.train.objective]
    examples = EXAMPLES[objective.texts](
        dataset.texts.source,
        dataset.texts.target,
        dataset.texts.usable,
        longest,
        objective,
        objectives.ids_of(config),
        config.train.seed,
    )
    if not len(examples):
        text = {
            "sentence": f"text of {corruption.SHORTEST} to",
            "pair": "pair of at most",
            "candidate": "pair with a wrong target, of at most",
        }[objective.texts]
        raise errors.UserError(
            f"train.objective={config.train.objective} finds no {text} {longest} tokens in the "
            "training set: set data.source_length and data.target_length higher"
        )
    return examples


def held_out(
    pairs: dataset_lib.HeldOut, config: config_lib.Config
) -> dict[str, list[objectives.Example]]:
    """Returns the examples on which an encoder-only model is scored, by name of their objective.

    The objectives are those of `Objective.scored_by`. The examples are the same for all seeds.
    """
    tag_tokens = 1 if directions.tags(config.data) else 0
    source = [ids[tag_tokens:] for ids in pairs.source_ids]
    by_objective: dict[str, list[objectives.Example]] = {}
    for name in objectives.KINDS[config.train.objective].scored_by:
        objective = objectives.KINDS[name]
        examples = EXAMPLES[objective.texts](
            source,
            pairs.target_ids,
            np.arange(len(pairs)),
            fields.MOST,
            objective,
            objectives.ids_of(config),
            seed=0,
        )
        by_objective[name] = [examples.get(0, number) for number in range(len(examples))]
    return by_objective
