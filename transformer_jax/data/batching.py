"""From token lists to arrays: packed training batches by index, padded ones for evaluation."""

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import final

import grain
import numpy as np

from transformer_jax import config as config_lib
from transformer_jax import sequences
from transformer_jax.data import examples as examples_lib
from transformer_jax.data import objectives, packing
from transformer_jax.data import tokenizer as tokenizer_lib

MEASURED_WINDOWS = 4  # of packing, for the fill rates that a run logs
Tokens = objectives.Tokens


def fill(
    rows: Sequence[Sequence[tuple[Tokens, Tokens] | objectives.Example]],
    source_length: int,
    target_length: int,
) -> sequences.Batch:
    """Writes pairs, without BOS and EOS, into rows of so many positions, segment after segment.

    An example may have labels of its own.

    Raises:
      ValueError: the pairs of a row do not fit into it.
    """
    source, target = (
        sequences.Sequences(*np.zeros((3, len(rows), length), np.int32))
        for length in (source_length, target_length)
    )
    labels = np.zeros_like(target.tokens)
    for row, pairs in enumerate(rows):
        ends = [0, 0]
        for segment, (read, said, *asked) in enumerate(pairs, start=1):
            written = ([*read, tokenizer_lib.EOS], [tokenizer_lib.BOS, *said])
            for side, (part, tokens) in enumerate(zip((source, target), written, strict=True)):
                if ends[side] + len(tokens) > part.tokens.shape[1]:
                    raise ValueError("the pairs of a row do not fit into it")
                span = (row, slice(ends[side], ends[side] + len(tokens)))
                part.tokens[span] = tokens
                part.segments[span] = segment
                part.positions[span] = np.arange(len(tokens))
                ends[side] += len(tokens)
                if part is target:
                    own = asked[0] if asked else None
                    labels[span] = [*said, tokenizer_lib.EOS] if own is None else own
    return sequences.Batch(source, target, labels)


@final
class PackedBatches:
    """Packed batches of examples: element b is batch b, of the rows that this host computes."""

    def __init__(
        self,
        examples: examples_lib.Examples,
        config: config_lib.Config,
        *,
        batch_rows: int,
        num_steps: int,
        rows_here: Sequence[int] | None = None,
    ) -> None:
        """Plans so many batches, of rows as long as the config says.

        A host reads the rows of each batch that `rows_here` names, ascending; None: all.
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
        """Shares of source and target positions that hold tokens, over the first windows."""
        rows = self.plan.epoch_end(0, MEASURED_WINDOWS)
        chosen = np.array([each for row in self.plan.rows(0, rows) for each in row], np.int32)
        source, target = (
            float(taken.sum() / (rows * length))
            for taken, length in zip(self._examples.lengths(0, chosen), self._lengths, strict=True)
        )
        return source, target


@final
class TrainingBatches:
    """A run's input: one part's batches after the other's; element b is batch b."""

    def __init__(self, parts: Sequence[PackedBatches]) -> None:
        """Takes its parts, of which one at least has batches."""
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
        """The part that a batch is of; of the batch after the last, the last."""
        return self._parts[bisect.bisect_right(self._starts, index) - 1]

    def from_step(self, step: int) -> Iterator[sequences.Batch]:
        """Batches step, step + 1, …, read ahead by Grain's threads."""
        batches = grain.MapDataset.source(self).slice(slice(step, None))
        return iter(
            batches.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=8))
        )


@dataclasses.dataclass(frozen=True)
class PaddedBatch:
    """Sentences of similar length, one to a row, and their indices in the list they come from.

    Rows beyond len(indices) repeat the last one, so that the number of rows is the same in all
    batches; they do not count. Their translations are not known yet.
    """

    indices: list[int]
    batch: sequences.Batch


def padded_batches(
    source: Sequence[Tokens], batch_rows: int, multiple: int
) -> Iterator[PaddedBatch]:
    """Groups all sentences, without BOS and EOS, by length, longest first; none is left out.

    Rows are as long as the longest sentence, rounded up to a multiple, so that few shapes are
    compiled.
    """
    order = sorted(range(len(source)), key=lambda i: len(source[i]), reverse=True)
    for start in range(0, len(order), batch_rows):
        indices = order[start : start + batch_rows]
        chosen = indices + indices[-1:] * (batch_rows - len(indices))
        length = multiple * -(-(len(source[chosen[0]]) + 1) // multiple)
        yield PaddedBatch(indices, fill([[(source[i], ())] for i in chosen], length, 1))
