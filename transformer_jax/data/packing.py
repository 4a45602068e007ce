"""Which sentence pairs share a row: planned, and a pure function of what it is told.

An epoch is a seeded shuffle of the pairs, cut into windows. Within a window pairs are packed by
best fit, longest target first, and the rows shuffled. The rows of all windows of all epochs follow
one another, and batch b is rows b R to (b + 1) R of that sequence. So the input's whole state is
the step number, on any number of hosts. How many rows each earlier window has can be had by packing
them all again, which takes minutes for millions of pairs; a checkpoint therefore remembers it.
"""

import bisect
import functools
import threading
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from jaxtyping import Int

# From an epoch and some pairs to what they take of a source row and of a target row, in positions.
Lengths = Callable[
    [int, Int[np.ndarray, "pairs"]], tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "pairs"]]
]


def pack(
    source_lengths: Int[np.ndarray, "pairs"],
    target_lengths: Int[np.ndarray, "pairs"],
    source_capacity: int,
    target_capacity: int,
) -> list[list[int]]:
    """Packs pairs into rows that both sides fit into; all lengths are in positions.

    Each pair, longest target first, joins the row where it leaves the least room for targets, and
    among those the one with the least room for sources. A row is a list of indices of pairs.

    Raises:
      ValueError: a pair fits into no row.
    """
    if np.any(source_lengths > source_capacity) or np.any(target_lengths > target_capacity):
        raise ValueError("a pair is longer than a row")
    rows: list[list[int]] = []
    # Open rows by room left for targets; each list sorted by room left for sources.
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
    """The packed rows of every batch, found by index."""

    def __init__(
        self,
        pairs: int,
        lengths: Lengths,
        source_capacity: int,
        target_capacity: int,
        window: int,
        seed: int,
    ) -> None:
        """Plans rows as `pack` makes them, in windows of so many pairs, shuffled by the seed.

        There are so many pairs in an epoch, of such lengths. Nothing is packed before it is asked
        for.
        """
        self._pairs, self._lengths = pairs, lengths
        self._capacities = (source_capacity, target_capacity)
        self._window = window
        self._seed = seed
        self._windows_per_epoch = -(-pairs // window)
        self._starts = [0]  # first row of window 0, 1, … as far as known
        # Batches are read nearly in order: few windows are asked for again.
        self._pack_window = functools.lru_cache(4)(self._pack_window)
        self._shuffled = functools.lru_cache(1)(self._shuffled)
        self._lock = threading.Lock()  # Grain reads batches from several threads

    def rows(self, start: int, stop: int) -> list[list[int]]:
        """Rows start to stop of the endless sequence, each a list of pairs."""
        with self._lock:
            self._know(lambda: self._starts[-1] >= stop)
            window = bisect.bisect_right(self._starts, start) - 1
            rows: list[list[int]] = []
            while self._starts[window] < stop:
                first = self._starts[window]
                rows += self._pack_window(window)[max(start - first, 0) : stop - first]
                window += 1
            return rows

    def epoch_end(self, epoch: int, most_windows: int | None = None) -> int:
        """Number of the row after the last one of an epoch (0, 1, …), or of its first windows."""
        windows = min(most_windows or self._windows_per_epoch, self._windows_per_epoch)
        last = epoch * self._windows_per_epoch + windows
        with self._lock:
            self._know(lambda: len(self._starts) > last)
            return self._starts[last]

    def epoch_of(self, row: int) -> int:
        """The epoch that a row is of which has been asked for."""
        with self._lock:
            return (bisect.bisect_right(self._starts, row) - 1) // self._windows_per_epoch

    @property
    def starts(self) -> list[int]:
        """The first row of each window, as far as it is known."""
        with self._lock:
            return list(self._starts)

    def remember(self, starts: Sequence[int]) -> None:
        """Takes over what another plan of the same arguments knew, from its `starts`."""
        with self._lock:
            self._starts = max(self._starts, list(starts), key=len)

    def _know(self, enough: Callable[[], bool]) -> None:
        """Packs windows until enough of them are known."""
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
        # Part 0 would be the shuffle's own stream: NumPy ignores zeros at a seed's end.
        order = np.random.default_rng((self._seed, epoch, part + 1)).permutation(len(rows))
        return [pairs[rows[row]].tolist() for row in order]
