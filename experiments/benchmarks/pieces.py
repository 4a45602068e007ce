"""The pieces that are measured on a lent machine: rows that take turns, and sweeps."""

import dataclasses
import functools
import logging
import pathlib
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.benchmarks import timing, worker
from transformer_jax import config as config_lib
from transformer_jax import errors

_log = logging.getLogger("transformer_jax.on_gpu")

DTYPE = "bfloat16"
CEILING = timing.Row("product", "ours:ceiling", {"dtype": DTYPE})


@dataclasses.dataclass
class Piece:
    """What is measured.

    Attributes:
      asked: all that its result depends on besides code and machine; what was asked otherwise is
        measured anew.
      measure: what is recorded, from its name and the workdir.
      goes_on: whether it keeps what it has done when it is stopped.
    """

    asked: Any
    measure: Callable[[str, pathlib.Path], Mapping[str, Any]]
    goes_on: bool = False


def timed(rows: Sequence[timing.Row], repeats: int, seconds: float) -> Piece:
    """Rows that take turns.

    Args:
      rows: the ceiling, if shares of it are asked for, the row that others are compared with, and
        others.
      repeats: rounds.
      seconds: that each row works in a round.
    """
    first = next((row for row in rows if row is not CEILING), CEILING)

    def measure(name: str, workdir: pathlib.Path) -> Mapping[str, Any]:
        records = timing.measure(name, rows, [first.name], repeats, seconds)
        (base,) = (one for one in records if one["row"] == first.name)
        for one in records:
            pairs = zip(one["seconds"], base["seconds"], strict=True)
            one["seconds_ratio"] = statistics.median(own / others for own, others in pairs)
        return {"machine": base["machine"], "rows": records}

    return Piece([[row.where, row.options] for row in rows], measure)


def stated(row: timing.Row) -> Piece:
    """What a contender finds before it is timed."""

    def measure(name: str, workdir: pathlib.Path) -> Mapping[str, Any]:
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
    """Everything but sweeps, by name.

    Args:
      base: the paper's base model and batch.
      big: likewise big.
      sentences: numbers of them that base translates at a time.
      repeats: rounds of timing.
      seconds: that each row works in a round.
    """

    def row(name: str, where: str, config: config_lib.Config, **options: Any) -> timing.Row:
        options |= {"config": config_lib.to_dict(config), "dtype": DTYPE}
        return timing.Row(name, f"made_up:{where}", options)

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


def sweep(text: str, taken: Sequence[str]) -> tuple[str, Piece]:
    """The name and the sweep that a flag describes: NAME MODULE FLAGS.

    It is the command python -m MODULE --workdir=WORKDIR/NAME FLAGS, which goes on where it was.

    Raises:
      UserError: it describes none.
    """
    try:
        name, module, *rest = shlex.split(text)
    except ValueError as error:
        raise errors.UserError(
            f"--sweep={text}: should be a name, a module and its flags, as in "
            "--sweep='multi30k experiments.table3 --config=configs/small.py'"
        ) from error
    if name in taken or not name.replace("-", "").replace("_", "").isalnum():
        raise errors.UserError(
            f"--sweep={text}: {name!r} is taken or no name for a folder: choose another"
        )
    return name, Piece([module, *rest], functools.partial(_run_sweep, module, rest), goes_on=True)


def _run_sweep(
    module: str, flags: Sequence[str], name: str, workdir: pathlib.Path
) -> Mapping[str, Any]:
    folder, log = workdir / name, workdir / f"{name}.log"
    command = [sys.executable, "-m", module, f"--workdir={folder}", *flags]
    _log.info("%s: its log is %s", name, log)
    with log.open("ab") as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        try:
            code = process.wait()
        finally:  # by SIGTERM, on which its runs save what they have
            process.terminate()
            process.wait()
    if code:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise errors.RunError(f"exit code {code}: {said[-1] if said else 'no word'}")
    results = sorted(folder.glob("*/seed*/result.json"))
    return {"results": [str(path.parent.relative_to(workdir)) for path in results]}
