"""Runs jobs on this machine, several at a time, each in a process of its own."""

import dataclasses
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import final

from launch import engine

SECONDS_TO_SAVE = 120  # for a job that is told to stop
# The shape that some chips of a TPU host form, by their number.
CHIPS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
GPU_MEMORY = 0.8  # the part of a GPU's memory that jobs which share it reserve, together


@dataclasses.dataclass(frozen=True)
class Devices:
    """This machine's devices, shared out among jobs that run at a time."""

    kind: str  # as JAX names it: "cpu", "gpu" or "tpu"
    names: Sequence[str]  # of all devices, for the variables that show a process some of them
    parallel: int  # jobs at a time

    @property
    def for_each(self) -> int:
        """Devices of one job, which others may share; those of the CPU are shared by all."""
        return len(self.names) if self.kind == "cpu" else len(self.names) // self.parallel or 1

    @property
    def jobs_on_each(self) -> int:
        """Jobs that share a GPU."""
        return -(-self.parallel * self.for_each // len(self.names))

    def environment(self, slot: int) -> dict[str, str]:
        """The variables that show its share alone to the job in a slot, from 0 to parallel - 1."""
        if self.kind == "cpu" or self.parallel == 1:
            return {}
        own = ",".join(self.names[slot * self.for_each % len(self.names) :][: self.for_each])
        if self.kind == "gpu":
            # By its earlier name too: JAX refuses both, and one may be set here.
            part = {
                "XLA_CLIENT_MEM_FRACTION": f"{GPU_MEMORY / self.jobs_on_each:.3f}",
                "XLA_PYTHON_CLIENT_MEM_FRACTION": "",
            }
            return {"CUDA_VISIBLE_DEVICES": own, **(part if self.jobs_on_each > 1 else {})}
        return {
            "TPU_VISIBLE_DEVICES": own,
            "TPU_CHIPS_PER_PROCESS_BOUNDS": CHIPS[self.for_each],
            "TPU_PROCESS_BOUNDS": "1,1,1",
        }


@final
class Local(engine.Engine):
    """This machine."""

    name = "local"
    takes = frozenset({"parallel"})
    shares_disk = True

    @functools.cached_property
    def devices(self) -> Devices:
        """The devices that jobs will find here, shared out among --parallel at a time.

        JAX is asked in a process of its own, so that this one claims no device. Raises EngineError
        if it has none, or they cannot be shared out among so many.
        """
        question = "import jax; print(jax.default_backend(), len(jax.devices()))"
        answer = engine.ask([sys.executable, "-c", question], "JAX finds no device", whole=False)
        kind, count = answer.splitlines()[-1].split()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return share(kind, int(count), self.settings.parallel, visible)


def share(kind: str, count: int, parallel: int, visible: str = "") -> Devices:
    """Shares out so many devices of a kind among jobs that run at a time.

    0 jobs stand for one for each CPU core that this process may use, or one in all on an
    accelerator. GPUs take several jobs each, as many on one as on another. `visible` names GPUs
    where not all are to be used, as CUDA_VISIBLE_DEVICES does.
    """
    if kind == "cpu":
        return Devices(kind, [str(i) for i in range(count)], parallel or len(_cores()))
    names = visible.split(",") if kind == "gpu" and visible else [str(i) for i in range(count)]
    parallel = parallel or 1
    if kind == "tpu":
        fits, remedy = count // parallel in CHIPS, "a number that leaves each 1, 2, 4 or 8 chips"
    else:
        fits = parallel <= count or (kind == "gpu" and parallel % count == 0)
        remedy = f"at most {count}" + f", or a multiple of {count}" * (kind == "gpu")
    if not fits:
        raise engine.EngineError(
            f"--parallel={parallel}: {count} {kind.upper()} devices cannot be shared out among so "
            f"many: give {remedy}"
        )
    return Devices(kind, names, parallel)


def run(
    jobs: Sequence[engine.Job],
    devices: Devices,
    on_end: Callable[[engine.Job, int], None],
    on_tick: Callable[[Sequence[engine.Job]], None],
) -> None:
    """Runs jobs in their order, some at a time, each on its own share of cores and devices.

    One that has to come after another of them waits until that has ended, however it ends. One that
    ends with RUN_AGAIN is started again; when one has ended otherwise, `on_end` is called
    with it and its exit code. `on_tick` is called twice a second with the running jobs. Interrupted
    or terminated, this stops the running jobs before it raises.
    """
    waiting = list(jobs)
    # One that is ignored, as SIGHUP under nohup, stays so.
    ends = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before = [signal.signal(end, signal.default_int_handler) for end in ends]
    running: dict[int, tuple[engine.Job, subprocess.Popen[bytes]]] = {}
    try:
        while waiting or running:
            for slot in range(devices.parallel):
                left = {job.name for job in waiting} | {job.name for job, _ in running.values()}
                ready = [job for job in waiting if job.after not in left]
                if slot not in running and ready:
                    waiting.remove(ready[0])
                    running[slot] = (ready[0], _start(ready[0], slot, devices))
            on_tick([job for job, _ in running.values()])
            time.sleep(0.5)
            for slot, (job, process) in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                del running[slot]
                if code == engine.RUN_AGAIN:
                    waiting.insert(0, job)
                else:
                    on_end(job, code)
    finally:
        for end, handler in zip(ends, before, strict=True):
            signal.signal(end, handler)
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            try:  # it has the time to take its step and save
                process.wait(timeout=SECONDS_TO_SAVE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(job: engine.Job, slot: int, devices: Devices) -> subprocess.Popen[bytes]:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    cores = _cores()
    # As what is started now does; more slots than cores share them, from the first on.
    _stay_on(cores[slot % len(cores) :: devices.parallel])
    try:
        with job.log.open("ab") as log:
            return subprocess.Popen(
                job.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **devices.environment(slot)},
                start_new_session=True,
            )
    finally:
        _stay_on(cores)


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _stay_on(cores: Sequence[int]) -> None:
    """Keeps this process on some cores, where the system can do that."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
