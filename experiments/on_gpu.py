"""What a GPU makes of training and decoding: each piece measured once, over several calls.

  python -m experiments.on_gpu --workdir=runs/gpu
  python -m experiments.on_gpu --workdir=runs/gpu --minutes=9 --pieces='base*,decoding-8'

For a machine that is lent for minutes at a time: a call stops after --minutes, with exit code 42
where something is left, and the same command goes on. Pieces compute in bfloat16, on one device and
on made-up sentences (`benchmarks/made_up.py`). In place of configs/base.py and big.py others can be
given, as in --base=configs/toy.py --base.model.d_k=16.

Writes on_gpu.jsonl, a line for each piece with command, date, device and JAX's version: copied into
an empty workdir, on another machine too, it is what the next call goes on from. A piece whose line
is deleted is measured again.
"""

import contextlib
import dataclasses
import datetime
import functools
import json
import logging
import math
import os
import pathlib
import shlex
import signal
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from absl import flags

from configs import base, big
from experiments.benchmarks import speed_tables, timing, worker
from experiments.sweep import rows as rows_lib
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.distributed import hosts
from transformer_jax.drawing import tables
from transformer_jax.runs import training_run

_log = logging.getLogger("transformer_jax.on_gpu")

NAME = "on_gpu.jsonl"
DTYPE = "bfloat16"
CEILING = timing.TimedRow("product", "ours:ceiling", {"dtype": DTYPE})
COLUMNS = (
    speed_tables.Column("piece", "workload"),
    speed_tables.Column("row", "row"),
    speed_tables.Column("ms", "median_seconds", "{:,.2f}", 1e3),
    speed_tables.Column("real tokens/s", "tokens_per_second", "{:,.0f}"),
    speed_tables.Column("TFLOP/s", "flops_per_second", "{:.3g}", 1e-12),
    speed_tables.Column("of ceiling", "share_of_ceiling", "{:.1%}"),
    speed_tables.Column("ms, × first", "seconds_ratio", "{:.2f}"),
    speed_tables.Column("peak GB", "peak_bytes", "{:.2f}", 1e-9),
    speed_tables.Column("predicted GB", "predicted_bytes", "{:.2f}", 1e-9),
)


@dataclasses.dataclass
class Piece:
    """What is measured; what was asked otherwise is measured anew."""

    asked: Any  # all that its result depends on besides code and machine
    measure: Callable[[str], Mapping[str, Any]]  # what is recorded, from its name


def timed(rows: Sequence[timing.TimedRow], repeats: int, seconds: float) -> Piece:
    """Rows that take turns; others are compared with the first that is not the ceiling."""
    first = next((row for row in rows if row is not CEILING), CEILING)

    def measure(name: str) -> Mapping[str, Any]:
        records = timing.measure(name, rows, [first.name], repeats, seconds)
        (base,) = (one for one in records if one["row"] == first.name)
        for one in records:
            pairs = zip(one["seconds"], base["seconds"], strict=True)
            one["seconds_ratio"] = statistics.median(own / others for own, others in pairs)
        return {"machine": base["machine"], "rows": records}

    return Piece([[row.where, row.options] for row in rows], measure)


def stated(row: timing.TimedRow) -> Piece:
    """What a contender finds before it is timed."""

    def measure(name: str) -> Mapping[str, Any]:
        started = worker.Worker(row.where, row.options)
        started.close()
        return {"machine": started.ready.pop("machine"), "facts": started.ready}

    return Piece([row.where, row.options], measure)


def all_pieces(
    base: config_lib.Config,
    big: config_lib.Config,
    sentences: Sequence[int],
    repeats: int,
    seconds: float,
) -> dict[str, Piece]:
    """Everything, by name: of base and big, and of so many sentences that base translates at once.

    Each row works for so many seconds in each of the rounds.
    """

    def row(name: str, where: str, config: config_lib.Config, **options: Any) -> timing.TimedRow:
        options |= {"config": config_lib.to_dict(config), "dtype": DTYPE}
        return timing.TimedRow(name, f"made_up:{where}", options)

    in_turn = functools.partial(timed, repeats=repeats, seconds=seconds)
    found = {"ceiling": in_turn([CEILING])}
    paper = {"base": base, "big": big}
    for name, config in paper.items():
        found[name] = in_turn([CEILING, row(name, "training", config, kernel="plain")])
    for name, config in paper.items():
        kernels = [row(kernel, "training", config, kernel=kernel) for kernel in ("plain", "fused")]
        found[f"{name}-fused"] = in_turn([CEILING, *kernels])
    found["agreement"] = stated(row("agreement", "agreement", base, kernel="fused"))
    for number in sentences:
        search = row(f"{number} sentences", "search", base, sentences=number)
        found[f"decoding-{number}"] = in_turn([search])
    return found


class OutOfTimeError(BaseException):
    """The call has to end; no piece takes this for an error of its own."""


def measure_all(pieces: Mapping[str, Piece], workdir: pathlib.Path, seconds: float) -> int:
    """Measures for so many seconds what is not on record yet; returns the exit code."""
    deadline, minutes, known = time.monotonic() + seconds, seconds / 60, read(workdir)
    is_first = True
    for name, piece in pieces.items():
        before = known.get(name, {"asked": None})
        # A call that has more time tries again what has taken too long.
        is_longer = minutes > before.get("minutes", math.inf)
        asked = json.loads(json.dumps(piece.asked))  # as JSON has it: lists, not tuples
        if before["asked"] == asked and not is_longer:
            continue
        _log.info("%s: begins", name)
        try:
            with _stopped_at(deadline):
                found = piece.measure(name)
        except OutOfTimeError:
            if not is_first:
                return hosts.RUN_AGAIN
            error = f"it takes more than the {minutes:g} minutes of --minutes"
            found = {"error": error, "minutes": minutes}
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        is_first = False
        known[name] = {
            "piece": name,
            "command": shlex.join(["python", "-m", "experiments.on_gpu", *sys.argv[1:]]),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "jax": jax.__version__,
            "commit": training_run.git_commit(),
            **found,
            "asked": asked,
        }
        files.write_lines(workdir / NAME, [json.dumps(each) for each in known.values()])
        where = f", on {found['machine']}" if "machine" in found else ""
        _log.info("%s: %s%s", name, found.get("error", found.get("facts", "done")), where)
    return int(any("error" in known[name] for name in pieces))


def read(workdir: pathlib.Path) -> dict[str, dict[str, Any]]:
    """What is on record, by piece; raises UserError if the file is damaged."""
    path = workdir / NAME
    lines = path.read_bytes().splitlines() if path.exists() else []
    try:
        records = [files.parse_json(line, {"piece": str, "asked": object}) for line in lines]
    except ValueError as error:
        raise errors.UserError(
            f"{path} is damaged ({error}): delete the line, and its piece is measured again"
        ) from error
    return {record["piece"]: record for record in records}


@contextlib.contextmanager
def _stopped_at(deadline: float) -> Iterator[None]:
    """Raises OutOfTimeError in here once it is time."""

    def stop(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _config(holder: flags.FlagHolder, default: types.ModuleType) -> config_lib.Config:
    if holder.value is None:
        return config_lib.from_mapping(default.get_config().to_dict())
    return flags_lib.read_config(holder)


def main() -> int:
    """Measures what --pieces names; returns the exit code."""
    jax.config.update("jax_platforms", "cpu")  # this process only waits; others take the device
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it has started ends too
    workdir = files.local_path(_WORKDIR.value)
    found = all_pieces(
        _config(_BASE, base),
        _config(_BIG, big),
        flags_lib.sizes("sentences", _SENTENCES.value, least=1),
        _REPEATS.value,
        _SECONDS.value,
    )
    chosen = {name: found[name] for name in rows_lib.select(found, _PIECES.value, "pieces")}
    workdir.mkdir(parents=True, exist_ok=True)
    compiled = (workdir / "cache" / "xla").absolute()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compiled))  # of those it starts
    code = measure_all(chosen, workdir, 60 * _MINUTES.value)
    _log.info("all that is measured lies in %s", workdir / NAME)
    rows = [row for record in read(workdir).values() for row in record.get("rows", [])]
    tables.show([speed_tables.table(rows, COLUMNS)] if rows else [], [])
    if code == hosts.RUN_AGAIN:
        _log.info("something is left: the same command goes on")
    return code


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "Where results are kept.", required=True)
    _PIECES = flags.DEFINE_string("pieces", "*", "Names and shell patterns, with commas between.")
    _MINUTES = flags.DEFINE_float("minutes", 9.0, "After which this call stops.", lower_bound=0.0)
    _BASE, _BIG = (flags_lib.define_config(name, required=False) for name in ("base", "big"))
    _SENTENCES = flags.DEFINE_list(
        "sentences", "8,32,128,512", "Numbers of sentences that base translates at a time."
    )
    _REPEATS = flags.DEFINE_integer("repeats", 7, "Rounds of timing.", lower_bound=1)
    _SECONDS = flags.DEFINE_float(
        "seconds", 1.0, "That each row works in a round.", lower_bound=0.0
    )
    flags_lib.run(main)
