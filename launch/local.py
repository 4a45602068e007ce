"""The engine that runs jobs on this machine, several at a time.

Each job runs in a process that sees a share of this machine's cores and accelerators.
"""

import contextlib
import dataclasses
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import final

from launch import engine

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

    Raises:
      KeyboardInterrupt: the process was interrupted or received SIGTERM or SIGHUP. The running jobs
        have been stopped.
    """
    waiting = list(jobs)
    failed: set[str] = set()
    running: dict[int, tuple[engine.Job, subprocess.Popen[bytes]]] = {}  # by share of devices
    try:
        with _signals_as_interrupts():
            while waiting or running:
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
                        running[slot] = (ready[0], _start(ready[0], slot, devices))
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
def _signals_as_interrupts() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP raise KeyboardInterrupt inside a `with` block.

    A signal that the process ignores, as it ignores SIGHUP under nohup, stays ignored.
    """
    signals = [signal.SIGTERM, signal.SIGHUP]
    handlers = {each: signal.getsignal(each) for each in signals}
    for each, handler in handlers.items():
        if handler != signal.SIG_IGN:
            signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=SECONDS_TO_SAVE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(job: engine.Job, slot: int, devices: Devices) -> subprocess.Popen[bytes]:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    cores = _cores()
    # A new process inherits the cores of this process, which are therefore restricted until it has
    # started. Jobs share cores if there are fewer cores than jobs.
    _set_cores(cores[slot % len(cores) :: len(devices.environments)])
    try:
        with job.log.open("ab") as log:
            return subprocess.Popen(
                job.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **devices.environments[slot]},
                start_new_session=True,
            )
    finally:
        _set_cores(cores)


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _set_cores(cores: Sequence[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
