"""Batches of arrays from token lists: packed batches for training, padded batches for decoding."""

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, final

import grain
import numpy as np

from transformer_jax import config as config_lib
from transformer_jax import sequences
from transformer_jax.data import examples as examples_lib
from transformer_jax.data import objectives, packing
from transformer_jax.data import tokenizer as tokenizer_lib

MEASURED_WINDOWS = 4  # windows of packing over which a run's fill rates are measured
Tokens = objectives.Tokens


def fill(
    rows: Sequence[Sequence[tuple[Tokens, Tokens] | objectives.Example]],
    source_length: int,
    target_length: int,
) -> sequences.Batch:
    """Returns a batch with the given examples, each of which is one segment of its row.

    Args:
      rows: the examples of each row. A pair of a source and a target, without BOS and EOS, may take
        the place of an example.
      source_length: positions of a source row.
      target_length: positions of a target row.

    Raises:
      ValueError: the examples of a row do not fit into it.
    """
    source, target = (
        sequences.Sequences(*np.zeros((3, len(rows), length), np.int32))
        for length in (source_length, target_length)
    )
    labels = np.zeros_like(target.tokens)
    for row, examples in enumerate(rows):
        source_end = target_end = 0
        for segment, example in enumerate(itertools.starmap(objectives.Example, examples), start=1):
            read = [*example.source, tokenizer_lib.EOS]
            source_end = _write(source, row, source_end, segment, read)
            start = target_end
            written = [tokenizer_lib.BOS, *example.target]
            target_end = _write(target, row, target_end, segment, written)
            following = [*example.target, tokenizer_lib.EOS]
            labels[row, start:target_end] = following if example.labels is None else example.labels
    return sequences.Batch(source, target, labels)


def _write(
    part: sequences.Sequences, row: int, start: int, segment: int, tokens: Sequence[Any]
) -> int:
    """Writes a segment into a row from position `start`, and returns the position after it."""
    end = start + len(tokens)
    if end > part.tokens.shape[1]:
        raise ValueError("the examples of a row do not fit into it")
    part.tokens[row, start:end] = tokens
    part.segments[row, start:end] = segment
    part.positions[row, start:end] = np.arange(len(tokens))
    return end


@final
class PackedBatches:
    """The packed batches of one kind of examples, with only the rows that this process reads."""

    def __init__(
        self,
        examples: examples_lib.Examples,
        config: config_lib.Config,
        *,
        batch_rows: int,
        num_steps: int,
        rows_here: Sequence[int] | None = None,
    ) -> None:
        """Prepares the batches; examples are packed when a batch is read.

        Args:
          examples: the examples.
          config: contains the lengths of rows, the packing window and the seed.
          batch_rows: the number of rows of the global batch.
          num_steps: the number of batches.
          rows_here: the indices of the global batch's rows that this process reads, ascending;
            None: all rows.
        """
        self._examples = examples
        self._lengths = (config.data.source_length, config.data.target_length)
        self.batch_rows = batch_rows
        self._num_steps = num_steps
        self._rows_here = range(batch_rows) if rows_here is None else rows_here
        shuffle = (config.data.packing_window, config.train.seed)
        self.plan = packing.Plan(len(examples), examples.lengths, *self._lengths, *shuffle)

    def __len__(self) -> int:
        return self._num_steps

    def __getitem__(self, index: int) -> sequences.Batch:
        first = index * self.batch_rows
        rows = self.plan.rows(first, first + self.batch_rows)
        epochs = {row: self.plan.epoch_of(first + row) for row in self._rows_here}
        return fill(
            [[self._examples.get(epochs[row], each) for each in rows[row]] for row in epochs],
            *self._lengths,
        )

    def fill_rates(self) -> tuple[float, float]:
        """Returns the shares of source positions and of target positions that are not padding.

        The shares are measured on the rows of the first MEASURED_WINDOWS windows of packing.
        """
        rows = self.plan.epoch_end(0, MEASURED_WINDOWS)
        chosen = np.array([each for row in self.plan.rows(0, rows) for each in row], np.int32)
        source, target = (
            float(taken.sum() / (rows * length))
            for taken, length in zip(self._examples.lengths(0, chosen), self._lengths, strict=True)
        )
        return source, target


@final
class TrainingBatches:
    """The batches of all steps of a run.

    A run may have two parts, one after the other: the batches of its objective and the batches of
    translation.
    """

    def __init__(self, parts: Sequence[PackedBatches]) -> None:
        """Concatenates the batches of several parts; at least one part must not be empty."""
        self._parts = [part for part in parts if len(part)]
        *self._starts, self._length = itertools.accumulate(map(len, self._parts), initial=0)
        self.batch_rows = parts[0].batch_rows

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> sequences.Batch:
        if index >= len(self):
            raise IndexError(index)
        number = bisect.bisect_right(self._starts, index) - 1
        return self._parts[number][index - self._starts[number]]

    def part(self, index: int) -> PackedBatches:
        """Returns the part that contains the batch with this index.

        The index len(self) belongs to the last part.
        """
        return self._parts[bisect.bisect_right(self._starts, index) - 1]

    def from_step(self, step: int) -> Iterator[sequences.Batch]:
        """Returns an iterator over the batches from index `step` on.

        Grain's threads read batches ahead.
        """
        batches = grain.MapDataset.source(self).slice(slice(step, None))
        return iter(
            batches.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=8))
        )


@dataclasses.dataclass(frozen=True)
class PaddedBatch:
    """A batch of source sentences of similar length for decoding, one sentence per row.

    Rows beyond len(indices) repeat the last sentence, so that all batches have the same number of
    rows. Targets are empty.
    """

    indices: list[int]  # the index, among all sentences, of each row's sentence
    batch: sequences.Batch


def padded_batches(
    source: Sequence[Tokens], batch_rows: int, multiple: int
) -> Iterator[PaddedBatch]:
    """Yields batches of sentences in the order of their lengths, longest first.

    Args:
      source: token ids of sentences, without BOS and EOS.
      batch_rows: rows of each batch.
      multiple: the length of rows is rounded up to a multiple of this number, so that few shapes
        are compiled.
    """
    order = sorted(range(len(source)), key=lambda i: len(source[i]), reverse=True)
    for start in range(0, len(order), batch_rows):
        indices = order[start : start + batch_rows]
        chosen = indices + indices[-1:] * (batch_rows - len(indices))
        length = multiple * -(-(len(source[chosen[0]]) + 1) // multiple)
        yield PaddedBatch(indices, fill([[(source[i], ())] for i in chosen], length, 1))
