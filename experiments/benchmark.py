"""How fast training and decoding are, beside PyTorch and CTranslate2, on the same work.

  python -m experiments.benchmark --workdir=runs/bench --train=PATH/train --dev=PATH/val
  python -m experiments.benchmark --workdir=runs/bench --run=runs/mine …    # decoding too
  make bench          # on the embedded corpus; installs the peers first

Each row runs in a process of its own. Rows that are compared take turns, so that what slows the
machine for a while slows all alike; the others wait, since idle processes take memory too. Prints
tables, and writes one JSON object a row to benchmark.jsonl.
"""

import dataclasses
import importlib.util
import logging
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from experiments.benchmarks import cost, measuring, speed_tables, worker, workloads
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib

_log = logging.getLogger("transformer_jax.benchmark")

SECONDS_A_SAMPLE, FEWEST_STEPS = 4.0, 2
FEW_SECONDS, MANY_STEPS = 0.02, 50
SENTENCES = 256  # translated to their natural ends
EVALUATED = 32  # sentences of an evaluation


@dataclasses.dataclass(frozen=True)
class Contender:
    """A row of the table.

    Attributes:
      name: as the table shows it.
      where: its class.
      options: its arguments.
      needs: a package that may be absent.
      shown: whether it has a line of its own, rather than being there to compare with.
    """

    name: str
    where: str
    options: Mapping[str, Any]
    needs: str = "jax"
    shown: bool = True


_OURS, _TORCH = "experiments.benchmarks.ours:Training", "experiments.benchmarks.torch_peer:Training"
_CEILING = "experiments.benchmarks.ours:Ceiling"
_DECODE, _CT2 = (
    "experiments.benchmarks.ours:Decoding",
    "experiments.benchmarks.ctranslate2_peer:Decoding",
)
_INPUT, _EVALUATION = "experiments.benchmarks.ours:Input", "experiments.benchmarks.ours:Evaluation"
OURS, OURS_BFLOAT16 = "ours, packed, float32", "ours, packed, bfloat16"
PEERS = ("torch, padded, float32", "CTranslate2, one worker on all cores")
DECODING = [
    Contender("ours", _DECODE, {}),
    Contender(PEERS[1], _CT2, {"workers": 1}, "ctranslate2"),
    Contender("CTranslate2, two workers that share them", _CT2, {"workers": 2}, "ctranslate2"),
]


def measure(
    name: str,
    contenders: Sequence[Contender],
    repeats: int,
    work_of: Callable[[Contender, worker.Worker], speed_tables.Work],
    group: int = 0,
    sample_seconds: float = SECONDS_A_SAMPLE,
) -> list[speed_tables.Row]:
    """Times all contenders that are there in turn.

    Args:
      name: the workload's.
      contenders: rows to be.
      repeats: rounds.
      work_of: what one step of a contender does.
      group: tells these rows from others of the workload, with which they take no turns.
      sample_seconds: that a contender works in each round.
    """
    present: list[Contender] = []
    for contender in contenders:
        if importlib.util.find_spec(contender.needs):
            present.append(contender)
        else:
            _log.info("left out: %s: %s is not installed", contender.name, contender.needs)
    workers: list[tuple[worker.Worker, int]] = []
    try:
        for contender in present:
            _log.info("%s: %s: starting", name, contender.name)
            started = worker.Worker(contender.where, contender.options)
            seconds, _ = started.run(1)
            if seconds < FEW_SECONDS:  # one alone may have been read ahead, or not be timed well
                seconds = started.run(MANY_STEPS)[0] / MANY_STEPS
            workers.append((started, max(FEWEST_STEPS, round(sample_seconds / seconds))))
        samples: list[list[float]] = [[] for _ in workers]
        peaks = [0] * len(workers)
        for done in range(1, repeats + 1):
            for i, (each, steps) in enumerate(workers):
                each.run(1)  # not timed: what the system took from the idle process comes back
                seconds, peaks[i] = each.run(steps)
                samples[i].append(seconds / steps)
            _log.info("%s: %d of %d rounds timed", name, done, repeats)
        return [
            speed_tables.Row(
                workload=name,
                name=contender.name,
                dtype=contender.options.get("dtype", "float32"),
                seconds=seconds,
                work=work_of(contender, each),
                compile_seconds=each.compile_seconds,
                first_step_seconds=each.first_step_seconds,
                peak_bytes=peak,
                predicted_bytes=each.ready.get("predicted_bytes", 0),
                translations=each.ready.get("translations", ()),
                group=group,
                shown=contender.shown,
            )
            for contender, (each, _), seconds, peak in zip(
                present, workers, samples, peaks, strict=True
            )
        ]
    finally:
        for each, _ in workers:
            each.close()


def _training_rows(
    name: str,
    workload: workloads.Workload,
    batches: pathlib.Path,
    corpus: Mapping[str, str],
    seeds: int,
    repeats: int,
) -> list[speed_tables.Row]:
    """Rows of one workload: training, its input alone, and evaluation."""

    def product(dtype: str) -> Contender:
        return Contender(f"matrix product, {dtype}", _CEILING, {"dtype": dtype})

    def ours(name: str, kind: str = "packed", dtype: str = "float32", seeds: int = 1) -> Contender:
        return Contender(name, _OURS, {**read, "kind": kind, "dtype": dtype, "seeds": seeds})

    def torch(dtype: str) -> Contender:
        return Contender(f"torch, padded, {dtype}", _TORCH, {**read, "dtype": dtype}, "torch")

    def unshown(*contenders: Contender) -> list[Contender]:
        return [dataclasses.replace(each, shown=False) for each in contenders]

    read = {"workload": name, "batches": str(batches)}
    drawn = {"workload": name, **corpus}
    wide, narrow, alone = "float32", "bfloat16", ours(OURS)
    groups = [
        [product(wide), alone, ours("ours, padded, float32", "padded"), torch(wide)],
        [
            product(narrow),
            ours(OURS_BFLOAT16, dtype=narrow),
            torch(narrow),
            *unshown(alone, torch(wide)),
        ],
        [
            Contender("ours, input alone", _INPUT, drawn),
            Contender("ours, evaluation", _EVALUATION, {**drawn, "sentences": EVALUATED}),
        ],
    ]
    if seeds:
        several = ours(f"ours, packed, {seeds} seeds together", seeds=seeds)
        groups.append([*unshown(product(wide), alone), several])

    def work_of(contender: Contender, started: worker.Worker) -> speed_tables.Work:
        if contender.where == _CEILING:
            return speed_tables.Work(**started.ready["work"])
        if contender.where == _EVALUATION:
            return speed_tables.Work(sentences=EVALUATED)
        runs = contender.options.get("seeds", 1)
        kind = contender.options.get("kind", "packed" if contender.where == _INPUT else "padded")
        length = workloads.LENGTHS[kind]
        config = workload.config
        data = dataclasses.replace(config.data, source_length=length, target_length=length)
        train = dataclasses.replace(config.train, batch_tokens=workload.positions, num_steps=1)
        step = dataclasses.replace(config, data=data, train=train)
        return speed_tables.Work(
            flops=0 if contender.where == _INPUT else runs * cost.training_flops(step),
            positions=runs * workload.positions,
            tokens=runs * workloads.real_tokens(workloads.read(batches, kind)),
        )

    rows: list[speed_tables.Row] = []
    for number, contenders in enumerate(groups):
        rows += measure(name, contenders, repeats, work_of, number)
    return rows


def _notes(rows: Sequence[speed_tables.Row]) -> list[str]:
    """What follows from the rows of each workload together."""
    lines: list[str] = []
    for name in dict.fromkeys(row.workload for row in rows):
        by_name = {row.name: row for row in rows if row.workload == name and row.shown}
        if OURS not in by_name:
            continue
        training, reading = by_name[OURS], by_name["ours, input alone"]
        times = reading.rate("tokens") / training.rate("tokens")
        share = speed_tables.evaluation_share(training, by_name["ours, evaluation"])
        lines.append(
            f"{name}: the input alone delivers {times:,.0f} times what training reads; evaluation "
            "of 3,000 sentences (perplexity and beam search) "
            f"every 5,000 steps of 24,576 target positions would take {share:.1%} of a run's time."
        )
        for row in by_name.values():
            beside = [
                other for other in rows if other is not row and speed_tables.took_turns(other, row)
            ]
            if row.name.endswith("seeds together"):
                lines += _times(name, row, beside, OURS, f"one alone ({row.name.split(', ')[-1]})")
            if row.name == OURS_BFLOAT16:
                lines += _times(name, row, beside, OURS, "float32")
                for other in beside:
                    if other.name.startswith("torch"):
                        lines += _times(name, row, beside, other.name, other.name)
    return lines


def _times(
    workload: str, row: speed_tables.Row, rows: Sequence[speed_tables.Row], name: str, called: str
) -> list[str]:
    """How many times as fast as another a row trains."""
    other = next(each for each in rows if each.name == name)
    gain, low, high = speed_tables.ratios(row, other, "tokens")
    return [
        f"{workload}: {row.name} trains on {gain:.2f} ({low:.2f}–{high:.2f}) times as many real "
        f"tokens a second as {called}."
    ]


def _decoding_rows(run: str, sentences: pathlib.Path, repeats: int) -> list[speed_tables.Row]:
    case = {"run": run, "sentences": str(sentences)}
    rows: list[speed_tables.Row] = []
    for ends in ("forced", "natural"):
        contenders = [
            dataclasses.replace(each, options={**each.options, **case, "forced": ends == "forced"})
            for each in DECODING
        ]
        rows += measure(
            f"{ends} ends",
            contenders,
            repeats,
            lambda _, started: speed_tables.Work(sentences=len(started.ready["translations"])),
        )
    return rows


def main() -> None:
    """Times each workload and writes the tables."""
    workdir = files.local_path(_WORKDIR.value)
    known = workloads.all_workloads()
    for name in _WORKLOADS.value:
        config_lib.require_known("--workloads", name, known)
    if not _WORKLOADS.value and not _RUN.value:
        raise errors.UserError("neither --workloads nor --run names something to time")
    cache_dir = workdir / "cache"
    cache_dir.mkdir(parents=True, exist_ok=True)
    corpus = {"train": _TRAIN.value, "dev": _DEV.value, "cache_dir": str(cache_dir)}
    dataset = workloads.load(**corpus)
    rows: list[speed_tables.Row] = []

    def write() -> None:
        speed_tables.write(workdir, rows, PEERS, measuring.describe_machine(), _notes(rows))

    for name in _WORKLOADS.value:
        batches = workdir / f"batches-{name}.npz"
        workloads.write(batches, dataset, known[name])
        rows += _training_rows(
            name, known[name], batches, corpus, _PACK_SEEDS.value, _REPEATS.value
        )
        write()  # what is measured is kept, whatever comes of the rest
    if _RUN.value:
        sentences = workdir / "sentences.txt"
        files.write_lines(sentences, dataset.dev.source[:SENTENCES])
        rows += _decoding_rows(_RUN.value, sentences, _REPEATS.value)
        write()
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
    _PACK_SEEDS = flags.DEFINE_integer(
        "pack_seeds", 2, "Seeds that one row trains in one program; 0: no such row.", lower_bound=0
    )
    _REPEATS = flags.DEFINE_integer("repeats", 7, "Rounds of timing.", lower_bound=1)
    flags_lib.run(main)
