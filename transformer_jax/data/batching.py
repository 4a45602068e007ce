"""From token lists to arrays: packed training batches by index, padded ones for evaluation."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import final

import grain
import numpy as np
from jaxtyping import Int, Integer

from transformer_jax import sequences
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import packing
from transformer_jax.data import tokenizer as tokenizer_lib

MEASURED_WINDOWS = 4  # of packing, for the fill rates that a run logs
Tokens = Sequence[int] | Integer[np.ndarray, "_"]


def fill(
    rows: Sequence[Sequence[tuple[Tokens, Tokens]]], source_length: int, target_length: int
) -> sequences.Batch:
    """Writes pairs, without BOS and EOS, into rows of so many positions, segment after segment.

    Raises:
      ValueError: the pairs of a row do not fit into it.
    """
    source, source_segments, source_positions = _empty(len(rows), source_length)
    target, target_segments, target_positions = _empty(len(rows), target_length)
    labels = np.zeros_like(target)
    for row, pairs in enumerate(rows):
        source_start = target_start = 0
        for segment, (source_tokens, target_tokens) in enumerate(pairs, start=1):
            span = (row, slice(source_start, source_start + len(source_tokens) + 1))
            source[span] = [*source_tokens, tokenizer_lib.EOS]
            source_segments[span] = segment
            source_positions[span] = np.arange(len(source_tokens) + 1)
            source_start = span[1].stop
            span = (row, slice(target_start, target_start + len(target_tokens) + 1))
            target[span] = [tokenizer_lib.BOS, *target_tokens]
            labels[span] = [*target_tokens, tokenizer_lib.EOS]
            target_segments[span] = segment
            target_positions[span] = np.arange(len(target_tokens) + 1)
            target_start = span[1].stop
    return sequences.Batch(
        sequences.Sequences(source, source_segments, source_positions),
        sequences.Sequences(target, target_segments, target_positions),
        labels,
    )


def _empty(rows: int, length: int) -> list[Int[np.ndarray, "B T"]]:
    return [np.zeros((rows, length), np.int32) for _ in range(3)]


@final
class TrainingBatches:
    """Packed training batches: element b is batch b, of the rows that this host computes."""

    def __init__(
        self,
        dataset: dataset_lib.Dataset,
        *,
        batch_rows: int,
        source_length: int,
        target_length: int,
        window: int,
        seed: int,
        num_steps: int,
        rows_here: Sequence[int] | None = None,
    ) -> None:
        """Plans the batches of a run, as `packing.Plan` does.

        A host reads the rows of each batch that `rows_here` names, ascending; None: all.
        """
        self._dataset = dataset
        self._lengths = (source_length, target_length)
        self.batch_rows = batch_rows
        self._num_steps = num_steps
        self._rows_here = range(batch_rows) if rows_here is None else rows_here
        usable = dataset.usable
        self.plan = packing.Plan(
            dataset.source.lengths[usable] + 1,
            dataset.target.lengths[usable] + 1,
            source_length,
            target_length,
            window,
            seed,
        )

    def __len__(self) -> int:
        return self._num_steps

    def __getitem__(self, index: int) -> sequences.Batch:
        rows = self.plan.rows(index * self.batch_rows, (index + 1) * self.batch_rows)
        dataset = self._dataset
        pairs = [dataset.usable[rows[row]].tolist() for row in self._rows_here]
        return fill(
            [[(dataset.source[pair], dataset.target[pair]) for pair in row] for row in pairs],
            *self._lengths,
        )

    def from_step(self, step: int) -> Iterator[sequences.Batch]:
        """Batches step, step + 1, …, read ahead by Grain's threads."""
        batches = grain.MapDataset.source(self).slice(slice(step, None))
        return iter(
            batches.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=8))
        )

    def fill_rates(self) -> tuple[float, float]:
        """Shares of source and target positions that hold tokens, over the first windows."""
        dataset, rows = self._dataset, self.plan.epoch_end(0, MEASURED_WINDOWS)
        pairs = dataset.usable[[pair for row in self.plan.rows(0, rows) for pair in row]]
        source_length, target_length = self._lengths
        return (
            float((dataset.source.lengths[pairs] + 1).sum() / (rows * source_length)),
            float((dataset.target.lengths[pairs] + 1).sum() / (rows * target_length)),
        )


@dataclasses.dataclass(frozen=True)
class PaddedBatch:
    """Pairs of similar length, one to a row, and their indices in the list they come from.

    Rows beyond len(indices) repeat the last pair, so that the number of rows is the same in all
    batches; they do not count.
    """

    indices: list[int]
    batch: sequences.Batch


def padded_batches(
    source: Sequence[Tokens], target: Sequence[Tokens] | None, batch_rows: int, multiple: int
) -> Iterator[PaddedBatch]:
    """Groups all sentences, without BOS and EOS, by length, longest first; none is left out.

    The target is None where there are no translations yet. Rows are as long as the longest
    sentence, rounded up to a multiple, so that few shapes are compiled.
    """
    targets = [()] * len(source) if target is None else target
    order = sorted(
        range(len(source)), key=lambda i: (len(source[i]), len(targets[i])), reverse=True
    )
    for start in range(0, len(order), batch_rows):
        indices = order[start : start + batch_rows]
        chosen = indices + indices[-1:] * (batch_rows - len(indices))
        lengths = [
            multiple * -(-max(len(side[i]) + 1 for i in chosen) // multiple)
            for side in (source, targets)
        ]
        rows = [[(source[i], targets[i])] for i in chosen]
        yield PaddedBatch(indices, fill(rows, *lengths))
