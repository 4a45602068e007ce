"""Speed of training and decoding, beside PyTorch and CTranslate2 on the same work.

  python -m experiments.benchmark --workdir=runs/bench --train=PATH/train --dev=PATH/val
  python -m experiments.benchmark --workdir=runs/bench --run=runs/mine …    # decoding too
  make bench          # on the embedded corpus; installs the peers first

Each row runs in a separate process, on one device. Rows of a workload take turns, so that a
temporary slowdown of the machine affects all alike. Batches have 1,024 target positions (small:
4,096), and the paper's 24,576 on an accelerator. Prints tables, and writes them to benchmark.md
and one JSON object a row to benchmark.jsonl.
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

SENTENCES = 256  # that are translated
TORCH, CTRANSLATE2 = PEERS = ("torch, padded, float32", "CTranslate2, one worker on all cores")

Record = dict[str, Any]  # what is kept of a row, as benchmark.jsonl has it


@dataclasses.dataclass(frozen=True)
class TimedRow:
    """A row of the benchmark."""

    name: str
    contender: str  # as `worker.Worker` takes it
    options: Mapping[str, Any]
    work: Mapping[str, float]  # of a step: flops, tokens, sentences
    dtype: str = "float32"
    needs: str = "jax"  # a package that may be missing


@dataclasses.dataclass(frozen=True)
class Device:
    """The device that the rows run on."""

    platform: str  # cpu, gpu or tpu
    kind: str
    machine: str  # as `measuring.describe_machine` has it

    @property
    def peak_flops(self) -> float | None:
        """FLOP/s of dense bfloat16 products by the maker's data sheet; None if not known."""
        data = cost.read_devices()
        for name, device in data["names"].items():
            if name.lower() in self.kind.lower():
                return data["devices"][device]["tflops"] * 1e12
        return None


def find_device() -> Device:
    """Returns the first device of this process."""
    device = jax.devices()[0]
    return Device(device.platform, device.device_kind, measuring.describe_machine())


def training_rows(
    workload: workloads.Workload, batches: Mapping[str, pathlib.Path], platform: str
) -> list[TimedRow]:
    """Returns the rows of a workload, whose batches of each kind lie in a file."""

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
    """Returns the rows that translate the sentences of a file with a trained run."""
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
    """Times the rows of a workload in turn, those whose package is installed."""
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
    """Adds medians, rates, shares and ratios to the records of rows that took turns.

    A training's share of the rate of a matrix product of its type; in bfloat16 also its share of
    the device's peak. Ratios of rates by round, as (median, least, most), to the peer's, the row
    with one of the names in `PEERS`.
    """
    for one in records:
        one["median_seconds"] = statistics.median(one["seconds"])
        for measure in ("flops", "tokens", "sentences"):
            if measure in one:
                one[f"{measure}_per_second"] = one[measure] / one["median_seconds"]
        if peak_flops and "flops" in one and one["dtype"] == "bfloat16":
            one["share_of_peak"] = one["flops_per_second"] / peak_flops
    products = {one["dtype"]: one for one in records if "flops" in one and "tokens" not in one}
    peer = next((one for one in records if one["row"] in PEERS), None)
    for one in records:
        if "tokens" in one and one["dtype"] in products:
            product = products[one["dtype"]]
            one["share_of_product"] = one["flops_per_second"] / product["flops_per_second"]
        if peer is None or one is peer:
            continue
        for measure in ("tokens", "sentences"):
            if measure in one and measure in peer:
                one[f"{measure}_ratio"] = ratios(one, peer, measure)
        if one.get("translations") and peer.get("translations"):
            pairs = zip(one["translations"], peer["translations"], strict=True)
            one["same_translations"] = statistics.mean(ours == theirs for ours, theirs in pairs)


def ratios(one: Record, other: Record, measure: str) -> tuple[float, float, float]:
    """Returns the median, least and most of a row's rate over another's in the same round."""
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
        "maker states for dense bfloat16 products, where it is known. Decoding: beam 4, score / "
        "length^0.6, the same trained weights."
    )
    shown = []
    for columns, is_decoding in ((TRAINING, False), (DECODING, True)):
        chosen = [one for one in records if ("sentences" in one) == is_decoding]
        if chosen:
            shown.append(_table(chosen, columns))
    files.write(workdir / "benchmark.md", tables.markdown(shown, [note]).encode())
    tables.show(shown, [note])


def main() -> None:
    """Times each workload and writes the tables."""
    jax.config.update("jax_platforms", "cpu")  # this process only waits; others take the device
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
        write(workdir, records)  # kept, whatever comes of the rest
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
