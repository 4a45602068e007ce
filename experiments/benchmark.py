"""How fast training and decoding are, beside PyTorch and CTranslate2, on the same work.

  python -m experiments.benchmark --workdir=runs/bench --train=PATH/train --dev=PATH/val
  python -m experiments.benchmark --workdir=runs/bench --run=runs/mine …    # decoding too
  make bench          # on the embedded corpus; installs the peers first

Each row runs in a process of its own. Rows that are compared take turns, so that what slows the
machine for a while slows all alike; the others wait, since idle processes take memory too. Prints
tables, and writes one JSON object a row to benchmark.jsonl.
"""

import json
import logging
import pathlib
from collections.abc import Mapping, Sequence

import jax
from absl import flags

from experiments.benchmarks import speed_tables, timing, workloads
from transformer_jax import errors, fields, files
from transformer_jax import flags as flags_lib
from transformer_jax.drawing import tables

_log = logging.getLogger("transformer_jax.benchmark")

SENTENCES = 256  # translated to their natural ends
EVALUATED = 32  # sentences of an evaluation

OURS, OURS_BFLOAT16 = "ours, packed, float32", "ours, packed, bfloat16"
READING, EVALUATION = "ours, input alone", "ours, evaluation"
TORCH, CTRANSLATE2 = PEERS = ("torch, padded, float32", "CTranslate2, one worker on all cores")

_NAMES = (speed_tables.Column("workload", "workload"), speed_tables.Column("row", "row"))
TRAINING = (
    *_NAMES,
    speed_tables.Column("ms a step", "median_seconds", "{:,.0f}", 1e3),
    speed_tables.Column("real tokens/s", "tokens_per_second", "{:,.0f}"),
    speed_tables.Column("× torch", f"tokens_ratio_to_{TORCH}", speed_tables.RATIO),
    speed_tables.Column("positions/s", "positions_per_second", "{:,.0f}"),
    speed_tables.Column("× torch", f"positions_ratio_to_{TORCH}", speed_tables.RATIO),
    speed_tables.Column("GFLOP/s", "flops_per_second", "{:,.0f}", 1e-9),
    speed_tables.Column("of ceiling", "share_of_ceiling", "{:.0%}"),
    speed_tables.Column("compile s", "compile_seconds", "{:.1f}"),
    speed_tables.Column("first step s", "first_step_seconds", "{:.1f}"),
    speed_tables.Column("peak GB", "peak_bytes", "{:.2f}", 1e-9),
    speed_tables.Column("predicted GB", "predicted_bytes", "{:.2f}", 1e-9),
)
DECODING = (
    *_NAMES,
    speed_tables.Column("sentences/s", "sentences_per_second", "{:,.1f}"),
    speed_tables.Column("× CTranslate2", f"sentences_ratio_to_{CTRANSLATE2}", speed_tables.RATIO),
    speed_tables.Column("same translations", "same_translations", "{:.1%}"),
)


def _training_rows(
    name: str, batches: pathlib.Path, corpus: Mapping[str, str]
) -> list[list[timing.TimedRow]]:
    """A workload's rows: training, whose rows all take turns, and what is beside it."""
    read, drawn = {"workload": name, "batches": str(batches)}, {"workload": name, **corpus}
    work = {
        kind: workloads.work(workloads.config(name, kind), workloads.read(batches, kind))
        for kind in workloads.LENGTHS
    }
    training = []
    for dtype, kinds in (("float32", ("packed", "padded")), ("bfloat16", ("packed",))):
        options, product = {**read, "dtype": dtype}, f"matrix product, {dtype}"
        training.append(timing.TimedRow(product, "ours:ceiling", {"dtype": dtype}))
        for kind in kinds:
            of_kind, row = {**options, "kind": kind}, f"ours, {kind}, {dtype}"
            training.append(timing.TimedRow(row, "ours:training", of_kind, work[kind]))
        row, where = f"torch, padded, {dtype}", "torch_peer:training"
        training.append(timing.TimedRow(row, where, options, work["padded"], "torch"))
    reads = {key: work["packed"][key] for key in ("positions", "tokens")}
    evaluated = {**drawn, "sentences": EVALUATED}
    return [
        training,
        [timing.TimedRow(READING, "ours:reading", drawn, reads)],
        [timing.TimedRow(EVALUATION, "ours:evaluation", evaluated)],
    ]


def notes(records: Sequence[timing.Record]) -> list[str]:
    """What follows from the rows of a workload together."""
    by_row = {one["row"]: one for one in records}
    training, narrow = by_row[OURS], by_row[OURS_BFLOAT16]
    times = by_row[READING]["tokens_per_second"] / training["tokens_per_second"]
    share = evaluation_share(training, by_row[EVALUATION])
    lines = [
        f"{training['workload']}: the input alone delivers {times:,.0f} times what training reads; "
        "evaluation of 3,000 sentences (perplexity and beam search) every 5,000 steps of 24,576 "
        f"target positions would take {share:.1%} of a run's time."
    ]
    for row, other in by_row.items():
        if row == OURS or row.startswith("torch"):
            gain = speed_tables.RATIO.format(*timing.ratios(narrow, other, "tokens"))
            lines.append(
                f"{training['workload']}: {OURS_BFLOAT16} trains on {gain} times as many real "
                f"tokens a second as {row}."
            )
    return lines


def evaluation_share(training: timing.Record, evaluation: timing.Record) -> float:
    """The part of a run's time that evaluation takes on the paper's schedule.

    That is 3,000 sentences every 5,000 steps of 24,576 target positions.
    """
    evaluating = 3000 / evaluation["sentences_per_second"]
    return evaluating / (evaluating + 5000 * 24_576 / training["positions_per_second"])


def write(workdir: pathlib.Path, records: Sequence[timing.Record], notes: Sequence[str]) -> None:
    """Writes benchmark.jsonl and benchmark.md, and prints the tables."""
    kept = [{key: one[key] for key in one if key != "translations"} for one in records]
    files.write_lines(workdir / "benchmark.jsonl", list(map(json.dumps, kept)))
    note = (
        f"{records[0]['machine']}; medians of {len(records[0]['seconds'])} rounds in which rows "
        "that are compared took turns; others were timed at another time, so that ratios say more "
        f"than columns. ×: the median ratio to {' or '.join(f'“{peer}”' for peer in PEERS)} in the "
        "same round, with its range. GFLOP/s: matrix products, padding included; the ceiling is a "
        "product of two square matrices of the same type, timed in turn with the rest. Decoding: "
        "beam 4, batches of 32, score / length^0.6, the same trained weights."
    )
    found = [
        speed_tables.table(chosen, columns)
        for columns, translates in ((TRAINING, False), (DECODING, True))
        if (chosen := [one for one in records if ("sentences" in one) == translates])
    ]
    files.write(workdir / "benchmark.md", tables.markdown(found, [*notes, note]).encode())
    tables.show(found, [*notes, note])


def main() -> None:
    """Times each workload and writes the tables."""
    jax.config.update("jax_platforms", "cpu")  # this process only waits; others take the device
    workdir = files.local_path(_WORKDIR.value)
    for name in _WORKLOADS.value:
        fields.require_known("--workloads", name, workloads.SENTENCES)
    if not _WORKLOADS.value and not _RUN.value:
        raise errors.UserError("neither --workloads nor --run names something to time")
    cache_dir = workdir / "cache"
    cache_dir.mkdir(parents=True, exist_ok=True)
    corpus = {"train": _TRAIN.value, "dev": _DEV.value, "cache_dir": str(cache_dir)}
    dataset = workloads.load(**corpus)
    records: list[timing.Record] = []
    lines: list[str] = []
    for name in _WORKLOADS.value:
        batches = workdir / f"batches-{name}.npz"
        workloads.write(batches, dataset, name)
        found: list[timing.Record] = []
        for rows in _training_rows(name, batches, corpus):
            found += timing.measure(name, rows, PEERS, _REPEATS.value)
        records += found
        lines += notes(found)
        write(workdir, records, lines)  # it is kept, whatever comes of the rest
    if _RUN.value:
        sentences = workdir / "sentences.txt"
        files.write_lines(sentences, dataset.dev.source[:SENTENCES])
        for ends in ("forced", "natural"):
            case = {"run": _RUN.value, "sentences": str(sentences), "forced": ends == "forced"}
            rows = [timing.TimedRow("ours", "ours:translating", case)]
            for workers, row in ((1, CTRANSLATE2), (2, "CTranslate2, two workers that share them")):
                options, where = {**case, "workers": workers}, "ctranslate2_peer:translating"
                rows.append(timing.TimedRow(row, where, options, needs="ctranslate2"))
            records += timing.measure(f"{ends} ends", rows, PEERS, _REPEATS.value)
        write(workdir, records, lines)
    else:
        _log.info("left out: decoding: --run names no trained run")
    _log.info("the tables lie in %s", workdir / "benchmark.md")


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "Where the tables are written.", required=True)
    _TRAIN = flags.DEFINE_string("train", "", "Path prefix of training text; default: embedded.")
    _DEV = flags.DEFINE_string("dev", "", "Path prefix of development text.")
    _RUN = flags.DEFINE_string("run", "", "Folder of a trained run, whose decoding is timed.")
    _WORKLOADS = flags.DEFINE_list(
        "workloads", "toy,small,base", "Of toy, small, base and big; may be none."
    )
    _REPEATS = flags.DEFINE_integer("repeats", 7, "Rounds of timing.", lower_bound=1)
    flags_lib.run(main)
