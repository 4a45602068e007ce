"""Real runs as a user starts them, and what is left of them."""

import dataclasses
import json
import multiprocessing
import os
import pathlib
import re
import runpy
import socket
import sys
import time
import unittest.mock
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from tests import compiling, tiny
from transformer_jax import files

STEPS = 40
LONGEST = 300  # seconds that anything may take on a crowded machine
OVERRIDES = {
    **tiny.OVERRIDES,
    "model.num_layers": 1,  # most of the time goes into tracing
    "train.num_steps": STEPS,
    "checkpoint.every": 8,
    "log.every": 1,
}

# Importing JAX takes seconds: runs are forked from a process that has imported it.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["transformer_jax.runs"])
_VARIABLES = {"JAX_PLATFORMS": "cpu", **compiling.QUICKLY}


@dataclasses.dataclass
class Run:
    """One start of a run, in a separate process.

    Attributes:
      process: the system's.
      log: file that takes what it prints.
    """

    process: Any
    log: pathlib.Path

    def text(self) -> str:
        """Returns the output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self, seconds: float = LONGEST) -> int:
        """Its exit code; minus the signal's number if that ended it."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"it does not end: {self.text()}"
        return self.process.exitcode

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.wait()

    def until(self, there: Callable[[], bool]) -> bool:
        """Waits until something holds; False if the run ends before."""
        deadline = time.monotonic() + LONGEST
        while not there():
            if self.process.exitcode is not None:
                return False
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.002)
        return True

    def until_printed(self, pattern: str) -> bool:
        """As `until`, for a line that it prints."""
        return self.until(lambda: re.search(pattern, self.text()) is not None)


def start(
    workdir: files.Path,
    cache_dir: pathlib.Path,
    *flags: str,
    name: str = "log",
    log: pathlib.Path | None = None,
    before: Callable[[], None] | None = None,
    **overrides: Any,
) -> Run:
    """Starts `python -m transformer_jax.train` on the tiny configuration.

    Args:
      workdir: the run's folder.
      cache_dir: shared by all runs.
      *flags: further ones.
      name: of the log, beside the run's folder.
      log: where it shall be instead.
      before: called in the new process first.
      **overrides: of the config; a dot is written as two underscores.
    """
    values = {**OVERRIDES, **{key.replace("__", "."): v for key, v in overrides.items()}}
    arguments = ["--config=configs/toy.py", f"--workdir={workdir}", f"--cache_dir={cache_dir}"]
    arguments += [f"--config.{key}={value}" for key, value in values.items()]
    if not log:
        assert isinstance(workdir, pathlib.Path), "a log lies on this machine"
        log = workdir.with_name(f"{workdir.name}.{name}")
    log.write_text("")
    log.with_name(f"{log.name}.started").write_text("")
    process = _FORKS.Process(target=_train, args=([*arguments, *flags], log, before))
    with unittest.mock.patch.dict(os.environ, _VARIABLES):  # for the process that is forked
        process.start()
    return Run(process, log)


def _train(arguments: list[str], log: pathlib.Path, before: Callable[[], None] | None) -> None:
    """Becomes the command, its output in a file."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["train", *arguments]
    if before:
        before()
    runpy.run_module("transformer_jax.train", run_name="__main__", alter_sys=True)


def start_together(
    number: int,
    workdir: files.Path,
    cache_dir: pathlib.Path,
    *flags: str,
    own: Callable[[int], str] | None = None,
    **overrides: Any,
) -> list[Run]:
    """Starts processes that train one run together, each with one device.

    Args:
      number: the number of processes.
      workdir: as in `start`, and so the others.
      cache_dir: see there.
      *flags: see there.
      own: one more flag for each process.
      **overrides: see there.
    """
    port = free_port()
    return [
        start(
            workdir,
            cache_dir,
            f"--coordinator=127.0.0.1:{port}",
            f"--processes={number}",
            f"--process={process}",
            *flags,
            *([own(process)] if own else []),
            name=f"log{process}",
            **overrides,
        )
        for process in range(number)
    ]


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def finish(workdir: files.Path, cache_dir: pathlib.Path, **overrides: Any) -> str:
    """Starts a run and lets it end; returns what it printed."""
    run = start(workdir, cache_dir, **overrides)
    assert run.wait() == 0, run.text()
    return run.text()


def checkpoints(workdir: files.Path) -> list[int]:
    """Steps of the checkpoints that are whole."""
    found = (workdir / "checkpoints").glob("*/manifest.json")
    return sorted(int(path.parent.name) for path in found if path.parent.name.isdecimal())


def outcome(workdir: files.Path) -> dict[str, Any]:
    """Returns the results that two runs of one config must share bit for bit."""
    newest = workdir / "checkpoints" / str(checkpoints(workdir)[-1])
    reader = ocp.Checkpointer(ocp.CompositeCheckpointHandler(state=ocp.StandardCheckpointHandler()))
    restored: Any = reader.restore(
        newest, args=ocp.args.Composite(state=ocp.args.StandardRestore())
    )["state"]
    reader.close()
    result = json.loads((workdir / "result.json").read_text(encoding="utf-8"))
    return {
        "step": newest.name,
        "state": restored,
        "ppl": result["ppl"],
        "bleu": result["bleu"],
        "hypotheses": (workdir / "hypotheses.txt").read_text(encoding="utf-8"),
        "losses": losses(workdir),
    }


def losses(workdir: files.Path) -> list[tuple[int, float]]:
    """Steps and training losses of a run."""
    records = (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [(record["step"], record["loss"]) for record in map(json.loads, records)]


def assert_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Two outcomes are one, to the bit."""
    jax.tree.map(np.testing.assert_array_equal, one["state"], other["state"])
    for name in set(one) - {"state"}:
        assert one[name] == other[name], name


def ends(runs: Sequence[Run], seconds: float) -> list[int]:
    """Exit codes of processes that must end within some seconds."""
    deadline = time.monotonic() + seconds
    return [run.wait(max(deadline - time.monotonic(), 0.1)) for run in runs]


def end_well(runs: Sequence[Run]) -> None:
    """Waits for processes that must all succeed."""
    codes = ends(runs, LONGEST)
    assert not any(codes), (codes, *(run.text() for run in runs))
