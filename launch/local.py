"""The engine that runs jobs on this machine, several at a time.

Each job runs in a process that sees a share of this machine's cores and accelerators.
"""

import contextlib
import dataclasses
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import final

from launch import engine, fork_server

SECONDS_TO_SAVE = 120  # from SIGTERM to SIGKILL, so that a run can save its state
SECONDS_BETWEEN_POLLS = 0.5
# The value of the variable TPU_CHIPS_PER_PROCESS_BOUNDS, by the number of chips of a process.
TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
GPU_MEMORY = 0.8  # fraction of a GPU's memory that is reserved by all jobs on it together


@dataclasses.dataclass(frozen=True)
class Devices:
    """This machine's devices, divided into as many shares as jobs run at the same time.

    Attributes:
      for_each: the number of devices in a share.
      environments: for each share, the environment variables with which a process sees the devices
        of this share only.
    """

    for_each: int
    environments: Sequence[Mapping[str, str]]


@final
class Local(engine.Engine):
    """Runs jobs on this machine."""

    name = "local"
    takes = frozenset({"parallel"})
    shares_disk = True

    @functools.cached_property
    def devices(self) -> Devices:
        """The devices of this machine, divided among --parallel jobs.

        Raises:
          EngineError: JAX finds no devices, or the devices cannot be divided among that number of
            jobs.
        """
        # In another process, since this one must not claim the devices.
        code = "import jax; print(jax.default_backend(), len(jax.devices()))"
        output = engine.ask([sys.executable, "-c", code], "JAX finds no device")
        kind, count = output.splitlines()[-1].split()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return share(kind, int(count), self.settings.parallel, visible)


def share(kind: str, count: int, parallel: int, visible: str = "") -> Devices:
    """Divides devices among jobs that run at the same time.

    On a CPU every job uses all devices. With more jobs than GPUs, the number of jobs must be a
    multiple of the number of GPUs. A TPU chip is used by one job only.

    Args:
      kind: the name of JAX's backend, "cpu", "gpu" or "tpu".
      count: the number of devices.
      parallel: the number of jobs. 0 stands for one job on an accelerator, and for one job per
        available core on a CPU.
      visible: the value of CUDA_VISIBLE_DEVICES; "" if the variable is not set.

    Raises:
      EngineError: the devices cannot be divided among that number of jobs.
    """
    if kind == "cpu":
        return Devices(count, [{}] * (parallel or len(_cores())))
    parallel = parallel or 1
    for_each = max(count // parallel, 1)
    if kind == "gpu":
        is_possible = parallel <= count or parallel % count == 0
        remedy = f"at most {count}, or a multiple of {count}"
    else:
        is_possible = parallel <= count and for_each in TPU_BOUNDS
        remedy = "a number that leaves each 1, 2, 4 or 8 chips"
    if not is_possible:
        raise engine.EngineError(
            f"--parallel={parallel}: {count} {kind.upper()} devices cannot be shared among "
            f"{parallel} runs: give {remedy}"
        )
    if parallel == 1:
        return Devices(count, [{}])
    names = [str(i) for i in range(count)]
    if kind == "gpu" and visible:
        names = visible.split(",")
    environments: list[Mapping[str, str]] = []
    for slot in range(parallel):
        first = slot * for_each % count
        devices = ",".join(names[first : first + for_each])
        if kind == "gpu":
            environment = {"CUDA_VISIBLE_DEVICES": devices}
            if parallel > count:
                environment |= _gpu_memory(parallel // count)
            environments.append(environment)
        else:
            environments.append(
                {
                    "TPU_VISIBLE_DEVICES": devices,
                    "TPU_CHIPS_PER_PROCESS_BOUNDS": TPU_BOUNDS[for_each],
                    "TPU_PROCESS_BOUNDS": "1,1,1",
                }
            )
    return Devices(for_each, environments)


def _gpu_memory(jobs_per_gpu: int) -> dict[str, str]:
    return {
        "XLA_CLIENT_MEM_FRACTION": f"{GPU_MEMORY / jobs_per_gpu:.3f}",
        # The variable's old name, which may be set. JAX does not accept both names.
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "",
    }


def run(
    jobs: Sequence[engine.Job],
    devices: Devices,
    on_end: Callable[[engine.Job, int | None], None],
    on_tick: Callable[[Sequence[engine.Job]], None],
    imports: Sequence[str] = (),
) -> None:
    """Runs jobs in order. As many jobs run at a time as there are shares of devices.

    A job whose attribute `after` names another job waits until that other job has ended. If the
    other job failed, the waiting job is not started. A job that exits with RUN_AGAIN is started
    again.

    Args:
      jobs: the jobs.
      devices: the shares of the devices.
      on_end: called with each job that has ended and the job's exit code. The code is None for a
        job that was not started.
      on_tick: called twice a second with the running jobs.
      imports: modules that the jobs import, if they are Python commands. These are imported once
        for all jobs; see `fork_server`.

    Raises:
      KeyboardInterrupt: the process was interrupted or received SIGTERM or SIGHUP. The running jobs
        have been stopped.
    """
    waiting = list(jobs)
    failed: set[str] = set()
    running: dict[int, tuple[engine.Job, fork_server.Process]] = {}  # by share of devices
    with fork_server.ForkServer(imports) as server:
        try:
            with _signals_as_interrupts() as received:
                while (waiting or running) and not received:
                    for job in list(waiting):
                        if job.after in failed:
                            waiting.remove(job)
                            failed.add(job.name)
                            on_end(job, None)
                    active = [job for job, _ in running.values()]
                    unfinished = {job.name for job in [*waiting, *active]}
                    for slot in range(len(devices.environments)):
                        ready = [job for job in waiting if job.after not in unfinished]
                        if slot not in running and ready:
                            waiting.remove(ready[0])
                            running[slot] = (ready[0], _start(server, ready[0], slot, devices))
                    on_tick([job for job, _ in running.values()])
                    time.sleep(SECONDS_BETWEEN_POLLS)
                    for slot, (job, process) in list(running.items()):
                        code = process.poll()
                        if code is None:
                            continue
                        del running[slot]
                        if code == engine.RUN_AGAIN:
                            waiting.insert(0, job)
                            continue
                        if code:
                            failed.add(job.name)
                        on_end(job, code)
        finally:
            _stop([process for _, process in running.values()])


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[list[int]]:
    """Makes a `with` block raise KeyboardInterrupt at its end if a signal to stop was received.

    The signals are SIGINT, SIGTERM and SIGHUP. A signal that the process ignores, as it ignores
    SIGHUP under nohup, stays ignored.

    Yields:
      The signals received so far. The block should end soon if there are any.
    """
    # An exception at any moment could come while a job starts, which nothing would stop then.
    received: list[int] = []
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    handlers = {each: signal.getsignal(each) for each in signals}
    for each, handler in handlers.items():
        if handler != signal.SIG_IGN:
            signal.signal(each, lambda number, _: received.append(number))
    try:
        yield received
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    if received:
        raise KeyboardInterrupt


def _stop(processes: Sequence[fork_server.Process]) -> None:
    for process in processes:
        process.send(signal.SIGTERM)
    for process in processes:
        if process.wait(SECONDS_TO_SAVE) is None:
            process.send(signal.SIGKILL)
            process.wait(SECONDS_TO_SAVE)


def _start(
    server: fork_server.ForkServer, job: engine.Job, slot: int, devices: Devices
) -> fork_server.Process:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    cores = _cores()
    # Jobs share cores if there are fewer cores than jobs.
    own = cores[slot % len(cores) :: len(devices.environments)]
    return server.start(job.command, job.log, devices.environments[slot], own)


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
