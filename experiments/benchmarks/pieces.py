"""The pieces that are measured on a lent machine: rows that take turns, and sweeps."""

import dataclasses
import functools
import logging
import pathlib
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, final

from experiments.benchmarks import speed_tables, timing, worker
from transformer_jax import config as config_lib
from transformer_jax import errors

_log = logging.getLogger("transformer_jax.on_gpu")

DTYPE = "bfloat16"
CEILING = timing.Contender("product", "ours:Ceiling", {"dtype": DTYPE})
_TRAINING = "made_up:MadeUpTraining"
_SEARCH, _AGREEMENT = "made_up:Search", "made_up:Agreement"


class Piece(Protocol):
    """What is measured.

    Attributes:
      asked: all that its result depends on besides code and machine; what was asked otherwise is
        measured anew.
      goes_on: whether it keeps what it has done when it is stopped.
    """

    goes_on: bool

    @property
    def asked(self) -> Any: ...

    def measure(self, name: str, workdir: pathlib.Path) -> Mapping[str, Any]:
        """What is recorded of a piece of this name."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class Timed:
    """Rows that take turns.

    Attributes:
      contenders: the ceiling, if shares of it are asked for, the row that others are compared
        with, and others.
      repeats: rounds.
      seconds: that each row works in a round.
    """

    contenders: Sequence[timing.Contender]
    repeats: int
    seconds: float
    goes_on = False

    @property
    def asked(self) -> Any:
        return [[each.where, each.options] for each in self.contenders]

    def measure(self, name: str, workdir: pathlib.Path) -> Mapping[str, Any]:
        ready: dict[str, Mapping[str, Any]] = {}

        def work_of(contender: timing.Contender, started: worker.Worker) -> speed_tables.StepWork:
            ready[contender.name] = started.ready
            return speed_tables.StepWork(**started.ready["work"])

        rows = timing.measure(
            name, self.contenders, self.repeats, work_of, sample_seconds=self.seconds
        )
        first = next((row for row in rows if row.name != CEILING.name), rows[0])
        machine = ready[first.name]["machine"]
        return {
            "machine": machine,
            "rows": [
                {
                    **speed_tables.record(row, first, rows, machine),
                    **ready[row.name].get("facts", {}),
                    "median_seconds": statistics.median(row.seconds),
                    "seconds_ratio": statistics.median(
                        own / other for own, other in zip(row.seconds, first.seconds, strict=True)
                    ),
                }
                for row in rows
            ],
        }


@final
@dataclasses.dataclass(frozen=True)
class Stated:
    """What a contender finds before it is timed.

    Attributes:
      contender: it has `facts`.
    """

    contender: timing.Contender
    goes_on = False

    @property
    def asked(self) -> Any:
        return [self.contender.where, self.contender.options]

    def measure(self, name: str, workdir: pathlib.Path) -> Mapping[str, Any]:
        started = worker.Worker(self.contender.where, self.contender.options)
        started.close()
        return {"machine": started.ready["machine"], "facts": started.ready["facts"]}


@final
@dataclasses.dataclass(frozen=True)
class SweepCommand:
    """A command that goes on where it was: python -m MODULE --workdir=WORKDIR/NAME FLAGS.

    Attributes:
      module: experiments.table3, for one.
      flags: its flags.
    """

    module: str
    flags: Sequence[str]
    goes_on = True

    @property
    def asked(self) -> Any:
        return [self.module, *self.flags]

    def measure(self, name: str, workdir: pathlib.Path) -> Mapping[str, Any]:
        folder, log = workdir / name, workdir / f"{name}.log"
        command = [sys.executable, "-m", self.module, f"--workdir={folder}", *self.flags]
        _log.info("%s: its log is %s", name, log)
        with log.open("ab") as stream:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
            )
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

    def training(name: str, config: config_lib.Config, kernel: str = "plain") -> timing.Contender:
        options = {"config": config_lib.to_dict(config), "dtype": DTYPE}
        return timing.Contender(name, _TRAINING, {**options, "kernel": kernel})

    timed = functools.partial(Timed, repeats=repeats, seconds=seconds)
    found: dict[str, Piece] = {"ceiling": timed([CEILING])}
    paper = {"base": base, "big": big}
    for name, config in paper.items():
        found[name] = timed([CEILING, training(name, config)])
    for name, config in paper.items():
        kernels = [training("plain", config), training("fused", config, "fused")]
        found[f"{name}-fused"] = timed([CEILING, *kernels])
    options = {"config": config_lib.to_dict(base), "dtype": DTYPE, "kernel": "fused"}
    found["agreement"] = Stated(timing.Contender("agreement", _AGREEMENT, options))
    for number in sentences:
        options = {"config": config_lib.to_dict(base), "dtype": DTYPE, "sentences": number}
        search = timing.Contender(f"{number} sentences", _SEARCH, options)
        found[f"decoding-{number}"] = timed([search])
    return found


def sweep(text: str, taken: Sequence[str]) -> tuple[str, SweepCommand]:
    """The name and the sweep that a flag describes: NAME MODULE FLAGS.

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
    return name, SweepCommand(module, rest)
