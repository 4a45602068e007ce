"""Speed of training compared with PyTorch, and of decoding compared with CTranslate2.

  python -m experiments.benchmark --workdir=runs/bench --train=PATH/train --dev=PATH/val
  python -m experiments.benchmark --workdir=runs/bench --run=runs/mine …    # decoding too
  make bench          # on the embedded corpus; installs PyTorch and CTranslate2 first

Each row of the tables is measured in a separate process, on one device. The rows of a workload are
timed in turn, so that a temporary slowdown of the machine affects all of them alike. On a CPU a
batch has 1,024 target positions (4,096 for the workload `small`); on an accelerator it has the
paper's 24,576. The command prints tables, writes them to benchmark.md, and writes one JSON object
per row to benchmark.jsonl.
"""

import contextlib
import dataclasses
import importlib.util
import json
import logging
import math
import multiprocessing
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import pandas as pd
from absl import flags

from experiments.benchmarks import measuring, ours, worker, workloads
from experiments.results import tables
from experiments.sweep import cost
from transformer_jax import config as config_lib
from transformer_jax import errors, fields, files
from transformer_jax import flags as flags_lib

_log = logging.getLogger("transformer_jax.benchmark")

SENTENCES = 256  # number of sentences on which decoding is timed
# The rows that the other rows of training and of decoding are compared with.
TORCH = "torch, padded, float32"
CTRANSLATE2 = "CTranslate2, one worker on all cores"
PEERS = (TORCH, CTRANSLATE2)

Record = dict[str, Any]  # the measurements of a row: a line of benchmark.jsonl


@dataclasses.dataclass(frozen=True)
class TimedRow:
    """A row of the benchmark: code to time, and the amount of work in one step of it."""

    name: str
    contender: str  # module and class in `experiments.benchmarks`, such as "ours:Training"
    options: Mapping[str, Any]  # arguments of the class
    work: Mapping[str, float]  # the numbers of "flops", "tokens" or "sentences" in a step
    dtype: str = "float32"
    needs: str = "jax"  # the package that the row needs; the row is left out without it


@dataclasses.dataclass(frozen=True)
class Device:
    """The device that the benchmark runs on."""

    platform: str  # "cpu", "gpu" or "tpu"
    kind: str  # JAX's name of the device, such as "NVIDIA H100 80GB HBM3"
    machine: str  # the text of `measuring.describe_machine`

    @property
    def peak_flops(self) -> float | None:
        """The peak rate of dense bfloat16 products in FLOP/s, from the maker's data sheet.

        None for a device that devices.json does not list.
        """
        data = cost.read_devices()
        for name, device in data["names"].items():
            if name.lower() in self.kind.lower():
                return data["devices"][device]["tflops"] * 1e12
        return None


def find_device() -> Device:
    """Returns a description of JAX's first device."""
    device = jax.devices()[0]
    return Device(device.platform, device.device_kind, measuring.describe_machine())


def training_rows(
    workload: workloads.Workload, batches: Mapping[str, pathlib.Path], platform: str
) -> list[TimedRow]:
    """Returns the rows that time training on a workload, and matrix products for comparison.

    Args:
      workload: the workload.
      batches: the files of "padded" and "packed" batches; see `workloads.write`.
      platform: "cpu", "gpu" or "tpu".
    """

    def product(dtype: str) -> TimedRow:
        work = {"flops": ours.product_flops(platform)}
        return TimedRow(
            f"matrix product, {dtype}", "ours:MatrixProduct", {"dtype": dtype}, work, dtype
        )

    def training(name: str, contender: str, kind: str, dtype: str, **more: Any) -> TimedRow:
        config = workload.config(kind, dtype)
        options = {"config": config_lib.to_dict(config), "batches": str(batches[kind])}
        work = workloads.work(config, workloads.read(batches[kind]))
        return TimedRow(f"{name}, {kind}, {dtype}", contender, options, work, dtype, **more)

    rows = []
    for dtype, kinds in (("float32", ("packed", "padded")), ("bfloat16", ("packed",))):
        rows.append(product(dtype))
        rows += [training("ours", "ours:Training", kind, dtype) for kind in kinds]
        rows.append(training("torch", "torch_peer:Training", "padded", dtype, needs="torch"))
    return rows


def decoding_rows(run: str, sentences: pathlib.Path, number: int) -> list[TimedRow]:
    """Returns the rows that time the translation of sentences with a trained run.

    Args:
      run: the folder of the run.
      sentences: a file with one sentence per line.
      number: the number of sentences in the file.
    """
    options = {"run": run, "sentences": str(sentences)}
    work = {"sentences": number}
    rows = [TimedRow("ours", "ours:Translation", options, work)]
    for workers, name in ((1, CTRANSLATE2), (2, "CTranslate2, two workers that share them")):
        rows.append(
            TimedRow(
                name,
                "ctranslate2_peer:Translation",
                {**options, "workers": workers},
                work,
                needs="ctranslate2",
            )
        )
    return rows


def measure(workload: str, rows: Sequence[TimedRow], repeats: int, device: Device) -> list[Record]:
    """Times the rows of a workload, and returns a record of each.

    Rows whose package is not installed are left out.

    Args:
      workload: the name of the workload.
      rows: the rows.
      repeats: the number of rounds. In each round, every row is timed once.
      device: the device of this machine.
    """
    with contextlib.ExitStack() as stack:
        started = []
        for row in rows:
            if not importlib.util.find_spec(row.needs):
                _log.info("left out: %s: %s is not installed", row.name, row.needs)
                continue
            _log.info("%s: %s: starting", workload, row.name)
            process = worker.Worker(row.contender, row.options)
            stack.callback(process.close)
            started.append((row, process))
        samples = measuring.interleave(
            [process.sample for _, process in started],
            repeats,
            lambda done: _log.info("%s: %d of %d rounds timed", workload, done, repeats),
        )
        records = [
            {
                "workload": workload,
                "row": row.name,
                "dtype": row.dtype,
                "machine": device.machine,
                "seconds": seconds,
                "first_step_seconds": process.first_step_seconds,
                "peak_bytes": process.peak_bytes,
                "translations": process.translations,
                **row.work,
            }
            for (row, process), seconds in zip(started, samples, strict=True)
        ]
    compare(records, device.peak_flops)
    return records


def compare(records: Sequence[Record], peak_flops: float | None = None) -> None:
    """Adds comparisons to the records of one workload's rows, which were timed in the same rounds.

    The peer is the row that PyTorch or CTranslate2 runs; see `PEERS`. A record gets those of the
    following keys that apply to its row:

      median_seconds: the median duration of a step.
      flops_per_second, tokens_per_second, sentences_per_second: rates at the median.
      share_of_peak: the rate of FLOPs divided by `peak_flops`, for bfloat16.
      share_of_product: the rate of FLOPs divided by the rate of a matrix product of equal type.
      tokens_ratio, sentences_ratio: the rate divided by the peer's; see `ratios`.
      same_translations: the share of sentences with the same translation as the peer's.

    Args:
      records: the records, which are changed.
      peak_flops: the peak rate of the device, if it is known.
    """
    _add_rates(records)
    _add_shares(records, peak_flops)
    peer = next((one for one in records if one["row"] in PEERS), None)
    if peer is not None:
        _add_ratios([one for one in records if one is not peer], peer)


def _add_rates(records: Sequence[Record]) -> None:
    for one in records:
        one["median_seconds"] = statistics.median(one["seconds"])
        for measure in ("flops", "tokens", "sentences"):
            if measure in one:
                one[f"{measure}_per_second"] = one[measure] / one["median_seconds"]


def _add_shares(records: Sequence[Record], peak_flops: float | None) -> None:
    products = {one["dtype"]: one for one in records if "flops" in one and "tokens" not in one}
    for one in records:
        if peak_flops and "flops" in one and one["dtype"] == "bfloat16":
            one["share_of_peak"] = one["flops_per_second"] / peak_flops
        if "tokens" in one and one["dtype"] in products:
            product = products[one["dtype"]]
            one["share_of_product"] = one["flops_per_second"] / product["flops_per_second"]


def _add_ratios(records: Sequence[Record], peer: Record) -> None:
    for one in records:
        for measure in ("tokens", "sentences"):
            if measure in one and measure in peer:
                one[f"{measure}_ratio"] = ratios(one, peer, measure)
        if one.get("translations") and peer.get("translations"):
            pairs = list(zip(one["translations"], peer["translations"], strict=True))
            equal = sum(mine == theirs for mine, theirs in pairs)
            one["same_translations"] = equal / len(pairs)


def ratios(one: Record, other: Record, measure: str) -> tuple[float, float, float]:
    """Returns the ratio of two rows' rates: its median, minimum and maximum over the rounds.

    Args:
      one: the record of the row in the numerator.
      other: the record of the row in the denominator.
      measure: the key of the work in a step, "tokens" or "sentences".
    """
    found = [
        (one[measure] / seconds) / (other[measure] / others)
        for seconds, others in zip(one["seconds"], other["seconds"], strict=True)
    ]
    return statistics.median(found), min(found), max(found)


RATIOS = {"median": "ratio", "least": "least_ratio", "greatest": "greatest_ratio"}


def _ratio(peer: str, measure: str) -> list[tables.Column]:
    return [
        tables.Column(head, f"{measure}_{name}", ".2f", group=f"× {peer}")
        for head, name in RATIOS.items()
    ]


TRAINING = (
    tables.Column("workload"),
    tables.Column("row"),
    tables.Column("ms a step", "milliseconds", ",.1f"),
    tables.Column("real tokens/s", "tokens_per_second", ",.0f"),
    *_ratio("torch", "tokens"),
    tables.Column("GFLOP/s", "gigaflops_per_second", ",.0f"),
    tables.Column("of product", "share_of_product", ".0%"),
    tables.Column("of peak", "share_of_peak", ".0%"),
    tables.Column("first step s", "first_step_seconds", ".1f"),
    tables.Column("peak GB", "peak_gigabytes", ".2f"),
)
DECODING = (
    tables.Column("workload"),
    tables.Column("row"),
    tables.Column("sentences/s", "sentences_per_second", ",.1f"),
    *_ratio("CTranslate2", "sentences"),
    tables.Column("same translations", "same_translations", ".1%"),
    tables.Column("first step s", "first_step_seconds", ".1f"),
)


def _table(records: Sequence[Record], columns: Sequence[tables.Column]) -> tables.Table:
    lines = []
    for record in records:
        line = {
            **record,
            "milliseconds": 1e3 * record["median_seconds"],
            "gigaflops_per_second": 1e-9 * record.get("flops_per_second", math.nan),
            "peak_gigabytes": 1e-9 * (record.get("peak_bytes") or math.nan),
        }
        for measure in ("tokens", "sentences"):
            ratio = record.get(f"{measure}_ratio", (math.nan, math.nan, math.nan))
            for name, value in zip(RATIOS.values(), ratio, strict=True):
                line[f"{measure}_{name}"] = value
        lines.append({column.source: line.get(column.source) for column in columns})
    return tables.Table(pd.DataFrame(lines), columns)


def write(workdir: pathlib.Path, records: Sequence[Record]) -> None:
    """Writes benchmark.jsonl and benchmark.md, and prints the tables."""
    kept = [{key: one[key] for key in one if key != "translations"} for one in records]
    files.write_lines(workdir / "benchmark.jsonl", [json.dumps(one) for one in kept])
    note = (
        f"{records[0]['machine']}; medians of {len(records[0]['seconds'])} rounds in which the "
        "rows of a workload took turns. ×: the median ratio to "
        f"{' or '.join(f'“{peer}”' for peer in PEERS)} in the same round, with its range. GFLOP/s: "
        "matrix products, padding included. Of product: of the rate of a product of two square "
        "matrices of the same type, timed in turn with the rest. Of peak: of the rate that the "
        "maker states for dense bfloat16 products, where it is known. First step: seconds from the "
        "start of the process, imports and compilation included. Decoding: beam 4, score / "
        "length^0.6, the same trained weights; a step translates all sentences."
    )
    decoding = [one for one in records if "sentences" in one]
    training = [one for one in records if "sentences" not in one]
    shown = [
        _table(chosen, columns)
        for chosen, columns in ((training, TRAINING), (decoding, DECODING))
        if chosen
    ]
    files.write(workdir / "benchmark.md", tables.markdown(shown, [note]).encode())
    tables.show(shown, [note])


def main() -> None:
    """Times each workload and writes the tables."""
    # This process only waits. The processes of the rows use the accelerator.
    jax.config.update("jax_platforms", "cpu")
    workdir = files.local_path(_WORKDIR.value)
    chosen = {
        name: fields.lookup("--workloads", name, workloads.WORKLOADS) for name in _WORKLOADS.value
    }
    if not chosen and not _RUN.value:
        raise errors.UserError("neither --workloads nor --run names something to time")
    cache_dir = workdir / "cache"
    cache_dir.mkdir(parents=True, exist_ok=True)
    dataset = workloads.load(_TRAIN.value, _DEV.value, str(cache_dir))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        device = pool.apply(find_device)
    records: list[Record] = []
    for name, workload in chosen.items():
        if device.platform != "cpu":
            workload = workload.on_accelerator()
        batches = workloads.write(workdir / f"batches-{name}", dataset, workload)
        rows = training_rows(workload, batches, device.platform)
        records += measure(name, rows, _REPEATS.value, device)
        write(workdir, records)  # so that these results are kept if a later workload fails
    if _RUN.value:
        sentences = [line for line in dataset.dev.source if line.strip()][:SENTENCES]
        path = workdir / "sentences.txt"
        files.write_lines(path, sentences)
        rows = decoding_rows(_RUN.value, path, len(sentences))
        records += measure("decoding", rows, _REPEATS.value, device)
        write(workdir, records)
    else:
        _log.info("left out: decoding: --run names no trained run")
    _log.info("the tables lie in %s", workdir / "benchmark.md")


if __name__ == "__main__":
    _WORKDIR = flags_lib.define_required("workdir", "Where the tables are written.")
    _TRAIN = flags.DEFINE_string("train", "", "Path prefix of training text; default: embedded.")
    _DEV = flags.DEFINE_string("dev", "", "Path prefix of development text.")
    _RUN = flags.DEFINE_string("run", "", "Folder of a trained run, whose decoding is timed.")
    _WORKLOADS = flags.DEFINE_list(
        "workloads", "toy,small,base", "Of toy, small, base and big; may be none."
    )
    _REPEATS = flags.DEFINE_integer("repeats", 7, "Rounds of timing.", lower_bound=1)
    flags_lib.run(main)
