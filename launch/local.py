"""This machine: several jobs at a time, each in a process with a share of cores and devices."""

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

SECONDS_TO_SAVE = 120  # from SIGTERM to SIGKILL
SECONDS_BETWEEN_POLLS = 0.5
# TPU_CHIPS_PER_PROCESS_BOUNDS by the number of chips of a process.
TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
GPU_MEMORY = 0.8  # fraction of a GPU's memory that is reserved by all jobs on it together


@dataclasses.dataclass(frozen=True)
class Devices:
    """Shares of this machine's devices, one for each of the jobs that run at a time."""

    for_each: int  # devices of a job
    environments: Sequence[Mapping[str, str]]  # variables that restrict a process to its share


@final
class Local(engine.Engine):
    """The engine that runs jobs on this machine."""

    name = "local"
    takes = frozenset({"parallel"})
    shares_disk = True

    @functools.cached_property
    def devices(self) -> Devices:
        """The devices that JAX finds, shared among --parallel jobs.

        Raises:
          EngineError: JAX finds no devices, or they cannot be shared among that number of jobs.
        """
        # In another process, since this one must not claim the devices.
        code = "import jax; print(jax.default_backend(), len(jax.devices()))"
        output = engine.ask([sys.executable, "-c", code], "JAX finds no device")
        kind, count = output.splitlines()[-1].split()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return share(kind, int(count), self.settings.parallel, visible)


def share(kind: str, count: int, parallel: int, visible: str = "") -> Devices:
    """Divides devices among jobs that run at the same time.

    All jobs use all devices of the CPU. A TPU chip belongs to one job. A GPU may have several jobs,
    if all GPUs have the same number.

    Args:
      kind: the backend as JAX names it, "cpu", "gpu" or "tpu".
      count: number of devices.
      parallel: number of jobs; 0 for one on an accelerator, or one per available CPU core.
      visible: names of the GPUs to use, as in CUDA_VISIBLE_DEVICES.

    Raises:
      EngineError: the devices cannot be divided by that number of jobs.
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
    names = visible.split(",") if kind == "gpu" and visible else [str(i) for i in range(count)]
    environments: list[Mapping[str, str]] = []
    for slot in range(parallel):
        first = slot * for_each % count
        devices = ",".join(names[first : first + for_each])
        if kind == "gpu":
            environments.append({"CUDA_VISIBLE_DEVICES": devices, **_gpu_memory(parallel // count)})
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
    if jobs_per_gpu <= 1:
        return {}
    return {
        "XLA_CLIENT_MEM_FRACTION": f"{GPU_MEMORY / jobs_per_gpu:.3f}",
        # The old name of the variable, which JAX refuses beside the new one, may be set here.
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "",
    }


def run(
    jobs: Sequence[engine.Job],
    devices: Devices,
    on_end: Callable[[engine.Job, int | None], None],
    on_tick: Callable[[Sequence[engine.Job]], None],
) -> None:
    """Runs jobs in order, as many at a time as there are shares of devices.

    A job with `after` waits until that job has ended, and is not started if it failed; a job that
    exits with RUN_AGAIN is started again. On an interruption, SIGTERM or SIGHUP the running jobs
    are stopped before this function raises KeyboardInterrupt.

    Args:
      jobs: the jobs.
      devices: shares of the devices.
      on_end: called with each job that has ended and its exit code, or None if it was not started.
      on_tick: called twice a second with the running jobs.
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
    """Raises KeyboardInterrupt on SIGTERM and SIGHUP, unless they are ignored, as under nohup."""
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
    # A new process inherits the cores of this one. Jobs share cores if there are fewer than jobs.
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
