r"""What preparing and reading a large corpus takes, and what that foretells for the whole of WMT.

  python -m experiments.scale --config=configs/base.py --workdir=runs/scale \
      --config.data.corpus=text --config.data.train=PATH/train --config.data.dev=PATH/dev

writes corpora of --pairs pairs, prepares each in a process of its own and reads training batches of
it in another: scale.md. A pair joins pairs of your own text, drawn at random, as many as give WMT's
length on average, so that words and pieces are real ones.
"""

import contextlib
import dataclasses
import datetime
import json
import logging
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Mapping, Sequence

import numpy as np
from absl import flags

from experiments.benchmarks import measuring, speed_tables
from experiments.sweep import cells
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import text
from transformer_jax.distributed import sharding
from transformer_jax.drawing import tables
from transformer_jax.training import loop

_log = logging.getLogger("transformer_jax.scale")

WORDS = 25  # of an English sentence in WMT's training set, about
BLOCK = 10_000  # pairs written together
SECONDS_OF_READING = 20

COLUMNS = (
    speed_tables.Column("pairs", "pairs", "{:,}"),
    speed_tables.Column("text GB", "text_bytes", "{:.2f}", 1e-9),
    speed_tables.Column("prepare s", "prepare_seconds", "{:,.0f}"),
    speed_tables.Column("peak GB", "prepare_peak_bytes", "{:.2f}", 1e-9),
    speed_tables.Column("cache GB", "cache_bytes", "{:.2f}", 1e-9),
    speed_tables.Column("start s", "start_seconds", "{:.1f}"),  # until the first batch
    speed_tables.Column("read pairs/s", "pairs_a_second", "{:,.0f}"),
    speed_tables.Column("peak GB reading", "read_peak_bytes", "{:.2f}", 1e-9),
)


def predict(measured: Sequence[Mapping[str, float]], pairs: int) -> dict[str, float]:
    """A straight line through the last two, the largest, for each quantity but the speed."""
    small, large = measured[-2:]
    beyond = (pairs - large["pairs"]) / (large["pairs"] - small["pairs"])
    line = {name: high + (high - small[name]) * beyond for name, high in large.items()}
    return {**line, "pairs": pairs, "pairs_a_second": large["pairs_a_second"]}


def write_corpus(
    pairs: Sequence[tuple[str, str]], prefix: pathlib.Path, ends: Sequence[str], number: int
) -> None:
    """Writes so many pairs, each of each of some of the given ones, `WORDS` words on average."""
    words = np.mean([len(source.split()) for source, _ in pairs])
    each = max(1, round(WORDS / words))
    draw = np.random.default_rng(0)
    paths = [pathlib.Path(f"{prefix}.{end}") for end in ends]
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(path.open("w", encoding="utf-8")) for path in paths]
        for first in range(0, number, BLOCK):
            chosen = draw.integers(len(pairs), size=(min(BLOCK, number - first), each)).tolist()
            for side, file in enumerate(sides):
                file.writelines(" ".join(pairs[i][side] for i in row) + "\n" for row in chosen)


def _in_a_process(arguments: Sequence[str]) -> tuple[float, int]:
    """Seconds and peak bytes of a command; raises RunError if it failed (see stderr)."""
    start = time.perf_counter()
    child = os.posix_spawn(sys.executable, [sys.executable, "-m", *arguments], os.environ)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise errors.RunError(f"{' '.join(arguments[:1])} failed; see above")
    return time.perf_counter() - start, measuring.peak_resident_bytes(usage)


def _measure(pairs: int, workdir: pathlib.Path, prefix: pathlib.Path) -> dict[str, float]:
    cache_dir = workdir / f"cache-{pairs}"
    if cache_dir.exists():
        shutil.rmtree(cache_dir)  # what is there already would cost nothing
    common = cells.config_arguments({**flags_lib.overrides(), "data.train": prefix})
    _log.info("%s pairs: preparing", f"{pairs:,}")
    seconds, peak = _in_a_process(["transformer_jax.prepare", *common, f"--cache_dir={cache_dir}"])
    _log.info("%s pairs: prepared in %.0f s; reading", f"{pairs:,}", seconds)
    report = workdir / f"read-{pairs}.json"
    _, read_peak = _in_a_process(
        ["experiments.scale", *common, f"--workdir={cache_dir}", f"--read_to={report}"]
    )
    texts = prefix.parent.glob(f"{prefix.name}.*")
    return {
        "pairs": pairs,
        "text_bytes": sum(path.stat().st_size for path in texts),
        "prepare_seconds": seconds,
        "prepare_peak_bytes": peak,
        "cache_bytes": sum(path.stat().st_size for path in cache_dir.rglob("*") if path.is_file()),
        "read_peak_bytes": read_peak,
        **json.loads(report.read_text()),
    }


def _read(config: config_lib.Config, cache_dir: pathlib.Path) -> dict[str, float]:
    """Reads batches of a prepared corpus as training does."""
    start = time.perf_counter()
    dataset = dataset_lib.load(config.data, cache_dir)
    stream = loop.make_batches(dataset, config, sharding.make_mesh(config.mesh)).from_step(0)
    next(stream)
    started = time.perf_counter()
    read = 0
    for batch in stream:
        read += int(batch.target.segments.max(axis=1).sum())
        if time.perf_counter() - started > SECONDS_OF_READING:
            break
    seconds = time.perf_counter() - started
    return {"start_seconds": started - start, "pairs_a_second": read / seconds}


def _main() -> None:
    workdir = files.local_path(_WORKDIR.value)
    config = flags_lib.read_config(_CONFIG)
    if _READ_TO.value:
        files.write_json(pathlib.Path(_READ_TO.value), _read(config, workdir))
        return
    sizes = flags_lib.sizes("pairs", _PAIRS.value)
    predict_for = flags_lib.sizes("predict", _PREDICT.value, least=1)
    if config.data.corpus != "text":
        raise errors.UserError("experiments.scale joins pairs of your own: data.corpus=text")
    workdir.mkdir(parents=True, exist_ok=True)
    ends = (config.data.source_language, config.data.target_language)
    pairs = list(text.load(dataclasses.replace(config.data, test="")).train.read())
    measured = []
    for size in sizes:
        prefix = workdir / f"corpus-{size}"
        _log.info("%s pairs: writing", f"{size:,}")
        write_corpus(pairs, prefix, ends, size)
        measured.append(_measure(size, workdir, prefix))
    predicted = [
        {**predict(measured, size), "pairs": f"{size:,} (predicted)"} for size in predict_for
    ]
    table = speed_tables.table([*measured, *predicted], COLUMNS)
    note = (
        f"{os.cpu_count()} CPU cores, {datetime.date.today()}. Predicted: a straight line through "
        "the two largest, which is too steep where the tokenizer learnt from more pairs in the "
        f"larger (at most {config.data.tokenizer_pairs:,}, evenly spread). Memory while reading "
        "counts the pages of mapped files that were touched, which the system may take back. "
        "TFDS's own download and preparation come first."
    )
    files.write(workdir / "scale.md", tables.markdown([table], [note]).encode())
    tables.show([table], [note])


if __name__ == "__main__":
    _CONFIG = flags_lib.define_config()
    _WORKDIR = flags.DEFINE_string("workdir", None, "Where all is written.", required=True)
    _PAIRS = flags.DEFINE_list("pairs", "1500000,4500000", "Sizes to measure, separated by commas.")
    _PREDICT = flags.DEFINE_list("predict", "36000000", "Sizes to predict.")
    _READ_TO = flags.DEFINE_string("read_to", "", "Reads a prepared corpus; for its own use.")
    flags_lib.run(_main)
