"""The benchmark's tables and its JSON lines."""

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from transformer_jax import files
from transformer_jax.drawing import tables

TRAINING_HEADS = (
    "workload", "row", "ms a step", "real tokens/s", "× torch", "positions/s", "× torch",
    "GFLOP/s", "of ceiling", "compile s", "first step s", "peak GB", "predicted GB",
)  # fmt: skip
DECODING_HEADS = ("workload", "row", "sentences/s", "× CTranslate2", "same translations")


@dataclasses.dataclass(frozen=True)
class StepWork:
    """What one step does.

    Attributes:
      flops: of its matrix products, padding included; 0 where they are not counted.
      positions: target positions that it trains on.
      tokens: real target tokens among them.
      sentences: that it translates.
    """

    flops: float = 0.0
    positions: int = 0
    tokens: float = 0.0
    sentences: int = 0


@dataclasses.dataclass(frozen=True)
class SpeedRow:
    """What was measured of one contender on one workload.

    Attributes:
      workload: its name.
      name: the contender's.
      dtype: what it computes in.
      seconds: a step, in each round.
      work: of one step.
      compile_seconds: of the step.
      first_step_seconds: from the start of the process to the end of the first step.
      peak_bytes: most memory in use; on a CPU, of the whole process.
      predicted_bytes: what was expected of it before the first step; 0 if nothing was.
      translations: what it made of the sentences, as token lists.
      group: rows of one group took turns; only they are compared.
      shown: whether it stands in the tables, not only to be compared with.
    """

    workload: str
    name: str
    dtype: str
    seconds: Sequence[float]
    work: StepWork
    compile_seconds: float
    first_step_seconds: float
    peak_bytes: int
    predicted_bytes: int = 0
    translations: Sequence[Sequence[int]] = ()
    group: int = 0
    shown: bool = True

    def rate(self, measure: str) -> float:
        """How much of a field of `work` is done in a second, at the median."""
        return getattr(self.work, measure) / statistics.median(self.seconds)


def ratios(row: SpeedRow, peer: SpeedRow, measure: str) -> tuple[float, float, float]:
    """Median, least and most of a row's speed over a peer's in the same round.

    Args:
      row: the faster one, we hope.
      peer: timed in the same rounds.
      measure: the field of `work` that counts.
    """
    done, theirs = (getattr(each.work, measure) for each in (row, peer))
    found = [
        (done / seconds) / (theirs / other)
        for seconds, other in zip(row.seconds, peer.seconds, strict=True)
    ]
    return statistics.median(found), min(found), max(found)


def evaluation_share(training: SpeedRow, evaluation: SpeedRow) -> float:
    """The part of a run's time that evaluation takes on the paper's schedule.

    That is 3,000 sentences every 5,000 steps of 24,576 target positions.
    """
    evaluating = 3000 / evaluation.rate("sentences")
    return evaluating / (evaluating + 5000 * 24_576 / training.rate("positions"))


def write(
    workdir: pathlib.Path,
    rows: Sequence[SpeedRow],
    peers: Sequence[str],
    machine: str,
    notes: Sequence[str] = (),
) -> None:
    """Writes benchmark.jsonl and benchmark.md, and prints the tables.

    Args:
      workdir: where.
      rows: all of them.
      peers: names of the rows that others of their workload are compared with.
      machine: where and when they were timed.
      notes: lines that follow the tables.
    """
    compared = [(row, _peer(row, rows, peers)) for row in rows if row.shown]
    lines = [json.dumps(record(row, peer, rows, machine)) for row, peer in compared]
    files.write_lines(workdir / "benchmark.jsonl", lines)
    training = [
        _training_cells(row, peer, rows) for row, peer in compared if not row.work.sentences
    ]
    decoding = [_decoding_cells(row, peer) for row, peer in compared if row.work.sentences]
    found = [(TRAINING_HEADS, training), (DECODING_HEADS, decoding)]
    note = (
        f"{machine}; medians of {len(rows[0].seconds)} rounds in which rows that are compared took "
        "turns; others were timed at another time, so that ratios say more than columns. ×: the "
        f"median ratio to {' or '.join(f'“{name}”' for name in peers)} in the same round, with its "
        "range. GFLOP/s: matrix products, padding included; the ceiling is a product of two square "
        "matrices of the same type, timed in turn with the rest. Decoding: beam 4, batches of 32, "
        "score / length^0.6, the same trained weights."
    )
    shown = [tables.Printed(heads, cells) for heads, cells in found if cells]
    files.write(workdir / "benchmark.md", tables.markdown(shown, [*notes, note]).encode())
    tables.show(shown, [*notes, note])


def _peer(row: SpeedRow, rows: Sequence[SpeedRow], peers: Sequence[str]) -> SpeedRow | None:
    """Whom a row is compared with, if it is there."""
    return next((peer for peer in rows if peer.name in peers and took_turns(peer, row)), None)


def took_turns(one: SpeedRow, other: SpeedRow) -> bool:
    """Whether two rows were timed in the same rounds."""
    return (one.workload, one.group) == (other.workload, other.group)


def _share_of_ceiling(row: SpeedRow, rows: Sequence[SpeedRow]) -> float | None:
    """Of the operations a second that a matrix product of the row's type reaches beside it.

    None if there is none, or if the row's operations are not counted.
    """
    for other in rows:
        alike = took_turns(other, row) and other.dtype == row.dtype
        if alike and row.work.flops and other.work.flops and not other.work.positions:
            return row.rate("flops") / other.rate("flops")
    return None


def _same(row: SpeedRow, peer: SpeedRow) -> float:
    """Share of sentences that two rows translate alike."""
    pairs = list(zip(row.translations, peer.translations, strict=True))
    return sum(one == other for one, other in pairs) / len(pairs)


def record(
    row: SpeedRow, peer: SpeedRow | None, rows: Sequence[SpeedRow], machine: str
) -> dict[str, Any]:
    """What is kept of a row.

    Args:
      row: the row.
      peer: what it is compared with.
      rows: all that were measured, the ceiling's among them.
      machine: where and when it was timed.
    """
    found: dict[str, Any] = {
        "workload": row.workload,
        "row": row.name,
        "machine": machine,
        "seconds": list(row.seconds),
        "compile_seconds": row.compile_seconds,
        "first_step_seconds": row.first_step_seconds,
        "peak_bytes": row.peak_bytes,
    }
    for measure in ("flops", "positions", "tokens", "sentences"):
        if getattr(row.work, measure):
            found[f"{measure}_per_second"] = row.rate(measure)
            if peer and measure != "flops" and _compare(row, peer, measure):
                found[f"{measure}_ratio_to_{peer.name}"] = ratios(row, peer, measure)
    if row.predicted_bytes:
        found["predicted_bytes"] = row.predicted_bytes
    share = _share_of_ceiling(row, rows)
    if share and row.work.positions:
        found["share_of_ceiling"] = share
    if row.translations and peer:
        found["same_translations"] = _same(row, peer)
    return found


def _compare(row: SpeedRow, peer: SpeedRow | None, measure: str) -> bool:
    """Whether a row's speed over a peer's says anything: both do the same kind of work."""
    if peer is None or peer is row:
        return False
    trains = bool(row.work.flops) == bool(peer.work.flops)
    return trains and bool(getattr(row.work, measure) and getattr(peer.work, measure))


def _ratio(row: SpeedRow, peer: SpeedRow | None, measure: str) -> str:
    if peer is None or not _compare(row, peer, measure):
        return ""
    return "{:.2f} ({:.2f}–{:.2f})".format(*ratios(row, peer, measure))


def _training_cells(row: SpeedRow, peer: SpeedRow | None, rows: Sequence[SpeedRow]) -> list[str]:
    trains, counted = bool(row.work.positions), bool(row.work.flops)
    share = _share_of_ceiling(row, rows)
    return [
        row.workload,
        row.name,
        f"{statistics.median(row.seconds) * 1e3:,.0f}",
        f"{row.rate('tokens'):,.0f}" if trains else "",
        _ratio(row, peer, "tokens"),
        f"{row.rate('positions'):,.0f}" if trains else "",
        _ratio(row, peer, "positions"),
        f"{row.rate('flops') / 1e9:,.0f}" if counted else "",
        f"{share:.0%}" if share and trains else "",
        f"{row.compile_seconds:.1f}" if row.compile_seconds else "",
        f"{row.first_step_seconds:.1f}" if trains else "",
        f"{row.peak_bytes / 1e9:.2f}" if trains and counted else "",
        f"{row.predicted_bytes / 1e9:.2f}" if row.predicted_bytes else "",
    ]


def _decoding_cells(row: SpeedRow, peer: SpeedRow | None) -> list[str]:
    return [
        row.workload,
        row.name,
        f"{row.rate('sentences'):,.1f}",
        _ratio(row, peer, "sentences"),
        f"{_same(row, peer):.1%}" if row.translations and peer and peer is not row else "",
    ]
