"""How fast training and decoding are, beside PyTorch and CTranslate2, on the same work.

  python -m experiments.benchmark --workdir=runs/bench --train=PATH/train --dev=PATH/val
  python -m experiments.benchmark --workdir=runs/bench --run=runs/mine …    # decoding too
  make bench          # on the embedded corpus; installs the peers first

Each row runs in a process of its own, and they take turns, so that what slows the machine for a
while slows all alike. Prints tables, and writes one JSON object a row to benchmark.jsonl.
"""

import dataclasses
import importlib.util
import logging
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from configs import small as small_config
from configs import toy as toy_config
from experiments import cost, measuring
from experiments.speed import report, worker, workloads
from transformer_jax import config as config_lib
from transformer_jax import files
from transformer_jax import flags as flags_lib
from transformer_jax.data import dataset as dataset_lib

_log = logging.getLogger("transformer_jax.benchmark")

SECONDS_A_SAMPLE = 2.0
SENTENCES = 256  # translated to their natural ends


@dataclasses.dataclass(frozen=True)
class Contender:
    """A row of the table.

    Attributes:
      name: as the table shows it.
      where: its class.
      options: its arguments.
      needs: a package that may be absent.
    """

    name: str
    where: str
    options: Mapping[str, Any]
    needs: str = "jax"


_OURS, _TORCH = "experiments.speed.ours:Training", "experiments.speed.torch_peer:Training"
_CEILING = "experiments.speed.ours:Ceiling"
_DECODE, _CT2 = "experiments.speed.ours:Decoding", "experiments.speed.ctranslate2_peer:Decoding"
PEERS = ("torch, padded, float32", "CTranslate2, 2 threads")
TRAINING = [
    Contender("matrix product, float32", _CEILING, {"dtype": "float32"}),
    Contender("matrix product, bfloat16", _CEILING, {"dtype": "bfloat16"}),
    Contender("ours, packed, float32", _OURS, {"kind": "packed", "dtype": "float32"}),
    Contender("ours, padded, float32", _OURS, {"kind": "padded", "dtype": "float32"}),
    Contender("ours, packed, bfloat16", _OURS, {"kind": "packed", "dtype": "bfloat16"}),
    Contender(PEERS[0], _TORCH, {"dtype": "float32"}, "torch"),
    Contender("torch, padded, bfloat16", _TORCH, {"dtype": "bfloat16"}, "torch"),
]
DECODING = [
    Contender("ours", _DECODE, {}),
    Contender(PEERS[1], _CT2, {"workers": 1}, "ctranslate2"),
    Contender("CTranslate2, 2 workers × 1 thread", _CT2, {"workers": 2}, "ctranslate2"),
]


def measure(
    name: str,
    contenders: Sequence[Contender],
    file: pathlib.Path,
    repeats: int,
    work_of: Callable[[Contender, worker.Worker], report.Work],
) -> list[report.Row]:
    """Times all contenders that are there in turn.

    Args:
      name: the workload's.
      contenders: rows to be.
      file: what they read.
      repeats: rounds.
      work_of: what one step of a contender does.
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
            started = worker.Worker(contender.where, name, file, contender.options)
            seconds, _ = started.run(1)
            workers.append((started, max(1, round(SECONDS_A_SAMPLE / seconds))))
        samples: list[list[float]] = [[] for _ in workers]
        peaks = [0] * len(workers)
        for done in range(1, repeats + 1):
            for i, (each, steps) in enumerate(workers):
                seconds, peaks[i] = each.run(steps)
                samples[i].append(seconds / steps)
            _log.info("%s: %d of %d rounds timed", name, done, repeats)
        return [
            report.Row(
                workload=name,
                name=contender.name,
                dtype=contender.options.get("dtype", "float32"),
                seconds=seconds,
                work=work_of(contender, each),
                compile_seconds=each.compile_seconds,
                first_step_seconds=each.first_step_seconds,
                peak_bytes=peak,
                translations=each.ready.get("translations", ()),
            )
            for contender, (each, _), seconds, peak in zip(
                present, workers, samples, peaks, strict=True
            )
        ]
    finally:
        for each, _ in workers:
            each.close()


def _training_rows(
    name: str, workload: workloads.Workload, batches: pathlib.Path, repeats: int
) -> list[report.Row]:
    def work_of(contender: Contender, started: worker.Worker) -> report.Work:
        if contender.where == _CEILING:
            return report.Work(started.ready["flops"])
        kind = contender.options.get("kind", "padded")
        length = workloads.LENGTHS[kind]
        config = workload.config
        data = dataclasses.replace(config.data, source_length=length, target_length=length)
        train = dataclasses.replace(config.train, batch_tokens=workload.positions, num_steps=1)
        return report.Work(
            flops=cost.training_flops(dataclasses.replace(config, data=data, train=train)),
            positions=workload.positions,
            tokens=workloads.real_tokens(workloads.read(batches, kind)),
        )

    return measure(name, TRAINING, batches, repeats, work_of)


def _decoding_rows(run: str, sentences: pathlib.Path, repeats: int) -> list[report.Row]:
    rows: list[report.Row] = []
    for ends in ("forced", "natural"):
        contenders = [
            dataclasses.replace(
                each, options={**each.options, "run": run, "forced": ends == "forced"}
            )
            for each in DECODING
        ]
        rows += measure(
            f"{ends} ends",
            contenders,
            sentences,
            repeats,
            lambda _, started: report.Work(sentences=len(started.ready["translations"])),
        )
    return rows


def _load(train: str, dev: str, cache_dir: pathlib.Path) -> dataset_lib.Dataset:
    """The corpus that batches are drawn from: text, or the embedded one, which has fewer words."""
    if bool(train) != bool(dev):
        raise config_lib.UserError("--train and --dev go together: give both, or neither")
    values = small_config.get_config() if train else toy_config.get_config()
    config = config_lib.from_mapping(values.to_dict())
    if train:
        text = {"corpus": "text", "train": train, "dev": dev, "vocab_size": workloads.VOCABULARY}
        config = config_lib.replace(config, {f"data.{name}": it for name, it in text.items()})
    return dataset_lib.load(config.data, cache_dir)


def main() -> None:
    """Times each workload and writes the tables."""
    workdir = pathlib.Path(_WORKDIR.value)
    known = workloads.all_workloads()
    for name in _WORKLOADS.value:
        config_lib.require_known("--workloads", name, known)
    if not _WORKLOADS.value and not _RUN.value:
        raise config_lib.UserError("neither --workloads nor --run names something to time")
    cache_dir = workdir / "cache"
    cache_dir.mkdir(parents=True, exist_ok=True)
    dataset = _load(_TRAIN.value, _DEV.value, cache_dir)
    rows: list[report.Row] = []
    for name in _WORKLOADS.value:
        batches = workdir / f"batches-{name}.npz"
        workloads.write(batches, dataset, known[name])
        rows += _training_rows(name, known[name], batches, _REPEATS.value)
    if _RUN.value:
        sentences = workdir / "sentences.txt"
        files.write_lines(sentences, dataset.dev.source[:SENTENCES])
        rows += _decoding_rows(_RUN.value, sentences, _REPEATS.value)
    else:
        _log.info("left out: decoding: --run names no trained run")
    report.write(workdir, rows, PEERS, measuring.describe_machine())
    _log.info("the tables lie in %s", workdir / "benchmark.md")


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "Where the tables are written.", required=True)
    _TRAIN = flags.DEFINE_string("train", "", "Path prefix of training text; default: embedded.")
    _DEV = flags.DEFINE_string("dev", "", "Path prefix of development text.")
    _RUN = flags.DEFINE_string("run", "", "Folder of a trained run, whose decoding is timed.")
    _WORKLOADS = flags.DEFINE_list(
        "workloads", "small,base", "Of small, base and big; may be none."
    )
    _REPEATS = flags.DEFINE_integer("repeats", 7, "Rounds of timing.", lower_bound=1)
    flags_lib.run(main)
