"""Packing of sentence pairs into rows.

In each epoch, the pairs are shuffled with a seed and cut into windows. Within a window, pairs are
packed by best fit, longest target first, and the rows are shuffled. The rows of all windows of all
epochs form one sequence. Batch 0 has the first R rows of this sequence, batch 1 the next R rows,
and so on. The step number alone therefore determines the next batch, on any number of hosts.
Checkpoints also store the index of each window's first row, because a resumed run would otherwise
have to pack all earlier windows again, which takes minutes for millions of pairs.
"""

import bisect
import functools
import threading
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from jaxtyping import Int

# A function of an epoch and of pairs. It returns the number of positions that each pair takes in a
# source row and in a target row.
Lengths = Callable[
    [int, Int[np.ndarray, "pairs"]], tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "pairs"]]
]


def pack(
    source_lengths: Int[np.ndarray, "pairs"],
    target_lengths: Int[np.ndarray, "pairs"],
    source_capacity: int,
    target_capacity: int,
) -> list[list[int]]:
    """Packs pairs into rows by best fit; lengths and capacities are in positions.

    Pairs are packed in descending order of their target's length. A pair is added to the row in
    which it fits with the least room left for targets. Among several such rows, the row with the
    least room left for sources is chosen.

    Returns:
      For each row, the indices of its pairs.

    Raises:
      ValueError: a pair is longer than a row.
    """
    if np.any(source_lengths > source_capacity) or np.any(target_lengths > target_capacity):
        raise ValueError("a pair is longer than a row")
    rows: list[list[int]] = []
    # Open rows by the room left for targets, each list sorted by the room left for sources.
    open_rows: list[list[tuple[int, int]]] = [[] for _ in range(target_capacity + 1)]
    order = np.lexsort((source_lengths, target_lengths))[::-1]
    for pair in order.tolist():
        source, target = int(source_lengths[pair]), int(target_lengths[pair])
        for room in range(target, target_capacity + 1):
            index = bisect.bisect_left(open_rows[room], (source, -1))
            if index < len(open_rows[room]):
                source_room, row = open_rows[room].pop(index)
                break
        else:
            room, source_room, row = target_capacity, source_capacity, len(rows)
            rows.append([])
        rows[row].append(pair)
        bisect.insort(open_rows[room - target], (source_room - source, row))
    return rows


@final
class Plan:
    """The infinite sequence of packed rows of all epochs, from which batches are read."""

    def __init__(
        self,
        pairs: int,
        lengths: Lengths,
        source_capacity: int,
        target_capacity: int,
        window: int,
        seed: int,
    ) -> None:
        """Prepares the plan; windows are packed when their rows are read.

        Args:
          pairs: the number of pairs in an epoch.
          lengths: a function that returns the lengths of pairs in an epoch (see `Lengths`).
          source_capacity: the number of positions in a source row.
          target_capacity: the number of positions in a target row.
          window: the number of pairs that are packed together.
          seed: seed of the shuffles.
        """
        self._pairs, self._lengths = pairs, lengths
        self._capacities = (source_capacity, target_capacity)
        self._window = window
        self._seed = seed
        self._windows_per_epoch = -(-pairs // window)
        self._starts = [0]  # first row of each window packed so far, and of the next
        # Batches are read nearly in order, so that a small cache is enough.
        self._pack_window = functools.lru_cache(4)(self._pack_window)
        self._shuffled = functools.lru_cache(1)(self._shuffled)
        self._lock = threading.Lock()  # Grain reads batches from several threads

    def rows(self, start: int, stop: int) -> list[list[int]]:
        """Returns rows start to stop - 1 of the sequence, each a list of indices of pairs."""
        with self._lock:
            self._pack_until(lambda: self._starts[-1] >= stop)
            window = bisect.bisect_right(self._starts, start) - 1
            rows: list[list[int]] = []
            while self._starts[window] < stop:
                first = self._starts[window]
                rows += self._pack_window(window)[max(start - first, 0) : stop - first]
                window += 1
            return rows

    def epoch_end(self, epoch: int, most_windows: int | None = None) -> int:
        """Returns the index of the row after the last row of an epoch.

        Args:
          epoch: the epoch, from 0.
          most_windows: if given, the index of the row after this number of the epoch's windows is
            returned instead, unless the epoch has fewer windows.
        """
        windows = min(most_windows or self._windows_per_epoch, self._windows_per_epoch)
        last = epoch * self._windows_per_epoch + windows
        with self._lock:
            self._pack_until(lambda: len(self._starts) > last)
            return self._starts[last]

    def epoch_of(self, row: int) -> int:
        """Returns the epoch of the row with this index, which `rows` must have returned before."""
        with self._lock:
            return (bisect.bisect_right(self._starts, row) - 1) // self._windows_per_epoch

    @property
    def starts(self) -> list[int]:
        """The index of the first row of each window packed so far, and of the next window."""
        with self._lock:
            return list(self._starts)

    def remember(self, starts: Sequence[int]) -> None:
        """Skips the packing of windows that another plan with the same arguments has packed.

        Args:
          starts: the `starts` of the other plan.
        """
        with self._lock:
            self._starts = max(self._starts, list(starts), key=len)

    def _pack_until(self, enough: Callable[[], bool]) -> None:
        while not enough():
            window = len(self._starts) - 1
            self._starts.append(self._starts[-1] + len(self._pack_window(window)))

    def _shuffled(self, epoch: int) -> Int[np.ndarray, "pairs"]:
        pairs = np.arange(self._pairs, dtype=np.int32)
        np.random.default_rng((self._seed, epoch)).shuffle(pairs)
        return pairs

    def _pack_window(self, window: int) -> list[list[int]]:
        epoch, part = divmod(window, self._windows_per_epoch)
        pairs = self._shuffled(epoch)[part * self._window : (part + 1) * self._window]
        rows = pack(*self._lengths(epoch, pairs), *self._capacities)
        # part + 1, because NumPy ignores zeros at the end of a seed: the seed of part 0 would be
        # that of the shuffle.
        order = np.random.default_rng((self._seed, epoch, part + 1)).permutation(len(rows))
        return [pairs[rows[row]].tolist() for row in order]
