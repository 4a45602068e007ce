"""How fast training and decoding are, beside PyTorch and CTranslate2, on the same work.

  python -m experiments.benchmark --workdir=runs/bench --train=PATH/train --dev=PATH/val
  python -m experiments.benchmark --workdir=runs/bench --run=runs/mine …    # decoding too
  make bench          # on the embedded corpus; installs the peers first

Each row runs in a process of its own. Rows that are compared take turns, so that what slows the
machine for a while slows all alike; the others wait, since idle processes take memory too. Prints
tables, and writes one JSON object a row to benchmark.jsonl.
"""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence

from absl import flags

from experiments.benchmarks import cost, measuring, speed_tables, timing, worker, workloads
from transformer_jax import errors, fields, files
from transformer_jax import flags as flags_lib

_log = logging.getLogger("transformer_jax.benchmark")

SENTENCES = 256  # translated to their natural ends
EVALUATED = 32  # sentences of an evaluation


_OURS, _TORCH = "ours:Training", "torch_peer:TorchTraining"
_CEILING = "ours:Ceiling"
_DECODE, _CT2 = "ours:Decoding", "ctranslate2_peer:CTranslate2Decoding"
_INPUT, _EVALUATION = "ours:Input", "ours:Evaluation"
OURS, OURS_BFLOAT16 = "ours, packed, float32", "ours, packed, bfloat16"
PEERS = ("torch, padded, float32", "CTranslate2, one worker on all cores")
DECODING = [
    timing.Contender("ours", _DECODE, {}),
    timing.Contender(PEERS[1], _CT2, {"workers": 1}, "ctranslate2"),
    timing.Contender(
        "CTranslate2, two workers that share them", _CT2, {"workers": 2}, "ctranslate2"
    ),
]


def _training_rows(
    name: str,
    workload: workloads.Workload,
    batches: pathlib.Path,
    corpus: Mapping[str, str],
    repeats: int,
) -> list[speed_tables.SpeedRow]:
    """Rows of one workload: training, its input alone, and evaluation."""

    def product(dtype: str) -> timing.Contender:
        return timing.Contender(f"matrix product, {dtype}", _CEILING, {"dtype": dtype})

    def ours(name: str, kind: str = "packed", dtype: str = "float32") -> timing.Contender:
        return timing.Contender(name, _OURS, {**read, "kind": kind, "dtype": dtype})

    def torch(dtype: str) -> timing.Contender:
        return timing.Contender(
            f"torch, padded, {dtype}", _TORCH, {**read, "dtype": dtype}, "torch"
        )

    def unshown(*contenders: timing.Contender) -> list[timing.Contender]:
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
            timing.Contender("ours, input alone", _INPUT, drawn),
            timing.Contender("ours, evaluation", _EVALUATION, {**drawn, "sentences": EVALUATED}),
        ],
    ]

    def work_of(contender: timing.Contender, started: worker.Worker) -> speed_tables.StepWork:
        if contender.where == _CEILING:
            return speed_tables.StepWork(**started.ready["work"])
        if contender.where == _EVALUATION:
            return speed_tables.StepWork(sentences=EVALUATED)
        kind = contender.options.get("kind", "packed" if contender.where == _INPUT else "padded")
        length = workloads.LENGTHS[kind]
        config = workload.config
        data = dataclasses.replace(config.data, source_length=length, target_length=length)
        train = dataclasses.replace(config.train, batch_tokens=workload.positions, num_steps=1)
        step = dataclasses.replace(config, data=data, train=train)
        return speed_tables.StepWork(
            flops=0 if contender.where == _INPUT else cost.training_flops(step),
            positions=workload.positions,
            tokens=workloads.real_tokens(workloads.read(batches, kind)),
        )

    rows: list[speed_tables.SpeedRow] = []
    for number, contenders in enumerate(groups):
        rows += timing.measure(name, contenders, repeats, work_of, number)
    return rows


def _notes(rows: Sequence[speed_tables.SpeedRow]) -> list[str]:
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
            if row.name == OURS_BFLOAT16:
                lines += _times(name, row, beside, OURS, "float32")
                for other in beside:
                    if other.name.startswith("torch"):
                        lines += _times(name, row, beside, other.name, other.name)
    return lines


def _times(
    workload: str,
    row: speed_tables.SpeedRow,
    rows: Sequence[speed_tables.SpeedRow],
    name: str,
    called: str,
) -> list[str]:
    """How many times as fast as another a row trains."""
    other = next(each for each in rows if each.name == name)
    gain, low, high = speed_tables.ratios(row, other, "tokens")
    return [
        f"{workload}: {row.name} trains on {gain:.2f} ({low:.2f}–{high:.2f}) times as many real "
        f"tokens a second as {called}."
    ]


def _decoding_rows(run: str, sentences: pathlib.Path, repeats: int) -> list[speed_tables.SpeedRow]:
    case = {"run": run, "sentences": str(sentences)}
    rows: list[speed_tables.SpeedRow] = []
    for ends in ("forced", "natural"):
        contenders = [
            dataclasses.replace(each, options={**each.options, **case, "forced": ends == "forced"})
            for each in DECODING
        ]
        rows += timing.measure(
            f"{ends} ends",
            contenders,
            repeats,
            lambda _, started: speed_tables.StepWork(sentences=len(started.ready["translations"])),
        )
    return rows


def main() -> None:
    """Times each workload and writes the tables."""
    workdir = files.local_path(_WORKDIR.value)
    known = workloads.all_workloads()
    for name in _WORKLOADS.value:
        fields.require_known("--workloads", name, known)
    if not _WORKLOADS.value and not _RUN.value:
        raise errors.UserError("neither --workloads nor --run names something to time")
    cache_dir = workdir / "cache"
    cache_dir.mkdir(parents=True, exist_ok=True)
    corpus = {"train": _TRAIN.value, "dev": _DEV.value, "cache_dir": str(cache_dir)}
    dataset = workloads.load(**corpus)
    rows: list[speed_tables.SpeedRow] = []

    def write() -> None:
        speed_tables.write(workdir, rows, PEERS, measuring.describe_machine(), _notes(rows))

    for name in _WORKLOADS.value:
        batches = workdir / f"batches-{name}.npz"
        workloads.write(batches, dataset, known[name])
        rows += _training_rows(name, known[name], batches, corpus, _REPEATS.value)
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
    _REPEATS = flags.DEFINE_integer("repeats", 7, "Rounds of timing.", lower_bound=1)
    flags_lib.run(main)
