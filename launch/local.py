"""Runs jobs on this machine, several at a time, each in a process of its own."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

SECONDS_TO_SAVE = 120  # for a job that is told to stop
RUN_AGAIN = 42  # exit code of a job that was stopped from outside and has saved what it had


@dataclasses.dataclass(frozen=True)
class Job:
    """A command.

    Attributes:
      name: for progress and errors.
      command: program and arguments.
      log: file that takes what it prints.
    """

    name: str
    command: Sequence[str]
    log: pathlib.Path


def devices() -> tuple[str, int]:
    """The kind and number of devices that a job's JAX will find here: ("cpu", 1).

    JAX is asked in a process of its own, so that this one claims no device.
    """
    question = "import jax; print(jax.default_backend(), jax.device_count())"
    answer = subprocess.run(
        [sys.executable, "-c", question], capture_output=True, text=True, check=True
    )
    kind, count = answer.stdout.split()
    return kind, int(count)


def default_parallel(kind: str) -> int:
    """One job for each CPU core that this process may use; one in all on an accelerator."""
    return len(_cores()) if kind == "cpu" else 1


def run(
    jobs: Sequence[Job],
    parallel: int,
    on_end: Callable[[Job, int], None],
    on_tick: Callable[[Sequence[Job]], None],
) -> None:
    """Runs jobs in their order, `parallel` at a time, each on its own share of the CPU cores.

    One that ends with RUN_AGAIN is started again.

    Interrupted or terminated, it stops the running jobs before it raises.

    Args:
      jobs: what to run.
      parallel: how many at a time.
      on_end: called with a job that has ended and its exit code.
      on_tick: called twice a second with the running jobs.
    """
    waiting = list(jobs)
    # One that is ignored, as SIGHUP under nohup, stays so.
    ends = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before = [signal.signal(end, _raise_interrupt) for end in ends]
    running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}
    try:
        while waiting or running:
            for slot in range(parallel):
                if slot not in running and waiting:
                    job = waiting.pop(0)
                    running[slot] = (job, _start(job, slot, parallel))
            on_tick([job for job, _ in running.values()])
            time.sleep(0.5)
            for slot, (job, process) in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                del running[slot]
                if code == RUN_AGAIN:
                    waiting.insert(0, job)
                else:
                    on_end(job, code)
    finally:
        for end, handler in zip(ends, before, strict=True):
            signal.signal(end, handler)
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            _wait(process)


def _raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _start(job: Job, slot: int, parallel: int) -> subprocess.Popen[bytes]:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("ab") as log, _on_cores(_cores()[slot::parallel]):
        return subprocess.Popen(
            job.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Gives a process the time to take its step and save."""
    try:
        process.wait(timeout=SECONDS_TO_SAVE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextlib.contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    """A process started meanwhile stays on these cores, where the system can do that."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
