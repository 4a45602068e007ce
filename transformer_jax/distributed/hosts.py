"""Coordination of the processes of one run, which jax.distributed connects.

Each process uses the devices of one host. The first process also logs and writes files.

If a process does not start, the other processes end within a time limit with exit code 2, and each
names its own host. If a process dies, the other processes end within a time limit with exit code
42, and name the dead process. If the first process dies, JAX ends the other processes with its own
message (exit code 134). Checkpoints stay, and starting all processes again resumes the run.
"""

import contextlib
import dataclasses
import itertools
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, final

import jax
import numpy as np
from jax.experimental import multihost_utils
from orbax.checkpoint import multihost

from transformer_jax import errors

_log = logging.getLogger(__name__)

T = TypeVar("T")

# Exit code of a process that was preempted, or ended because another process died. Starting the
# same command again resumes the run.
RUN_AGAIN = 42
WATCH_SECONDS = 2  # between two checks for dead processes
LEAVE_SECONDS = 20  # time limit for processes to wait for each other when they end
LONGEST_WAIT = 7 * 24 * 3600  # seconds for a living process, which may be preparing a large corpus
MESSAGE_BYTES = 1024  # messages are padded to a multiple, so that few shapes are compiled

# Environment variables in which launchers give the number of processes.
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")


@dataclasses.dataclass(frozen=True)
class ProcessPlace:
    """The place of a process among the processes of its run.

    All fields are None if JAX's cluster detection finds the place.

    Attributes:
      coordinator: host and port of the first process, "10.0.0.1:1234".
      processes: the number of processes.
      process: this process's number, from 0.
    """

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None


def place(
    distributed_run: bool, coordinator: str, processes: int, process: int
) -> ProcessPlace | None:
    """Returns the place of this process according to the command line.

    Args:
      distributed_run: whether JAX's cluster detection finds the place (Cloud TPU, GKE, Slurm, Open
        MPI).
      coordinator: host and port of the first process; "" if not set.
      processes: the number of processes; -1 if not set.
      process: this process's number, from 0; -1 if not set.

    Returns:
      The place, or None if the run has a single process.

    Raises:
      UserError: the arguments are incomplete, or contradict each other or the launcher.
    """
    are_set = (bool(coordinator), processes >= 0, process >= 0)
    if distributed_run:
        if any(are_set):
            raise errors.UserError(
                "--distributed finds the processes by itself: leave out --coordinator, "
                "--processes and --process, or leave out --distributed"
            )
        return ProcessPlace()
    if any(are_set):
        if not all(are_set):
            raise errors.UserError("--coordinator, --processes and --process belong together")
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise errors.UserError(
                f"--coordinator={coordinator} should be HOST:PORT, the port below 65536"
            )
        if not process < processes:
            raise errors.UserError(f"--process={process} should be below --processes={processes}")
        return ProcessPlace(coordinator, processes, process)
    for variable in LAUNCHERS:
        if (number := os.environ.get(variable, "1")) != "1":
            raise errors.UserError(
                f"{variable}={number}: this is one of several processes; give --distributed, "
                "so that they train one run together"
            )
    return None


def join(where: ProcessPlace, start_timeout: float, silence_timeout: float) -> None:
    """Connects to the other processes; call it before JAX looks for devices.

    Args:
      where: this process's place.
      start_timeout: seconds within which all processes must start; afterwards they have the same
        time to find their devices.
      silence_timeout: seconds without a heartbeat after which a process counts as dead.

    Raises:
      UserError: JAX detects no cluster, or the coordinator's port is in use.
    """
    global _peers
    if where.coordinator and where.process == 0:
        _require_free_port(where.coordinator)
    # Otherwise JAX aborts this process when another dies, and does not always name the dead one.
    jax.config.update("jax_enable_recoverability", True)
    start_timeout = max(start_timeout, 1)
    with _at_most(start_timeout, 2):
        try:
            jax.distributed.initialize(
                where.coordinator,
                where.processes,
                where.process,
                # All devices of the host; None would mean one for each process under Slurm.
                local_device_ids=[],
                # `_at_most` ends this process earlier; JAX would abort with a stack trace.
                initialization_timeout=int(start_timeout) + 60,
                heartbeat_timeout_seconds=max(int(silence_timeout), 1),
            )
        except (ValueError, RuntimeError) as error:
            raise errors.UserError(
                f"this process cannot join the others ({' '.join(str(error).split())}); "
                "--distributed detects Cloud TPU, GKE, Slurm and Open MPI: elsewhere give "
                "--coordinator=HOST:PORT, --processes and --process"
            ) from error
    with _at_most(start_timeout, RUN_AGAIN):  # JAX's first look for devices waits for all processes
        name = socket.gethostname().encode()[:64].ljust(64)
        gathered = multihost_utils.process_allgather(np.frombuffer(name, np.uint8))
    names = [each.tobytes().decode(errors="replace").rstrip() for each in gathered]
    _peers = _Peers(names, silence_timeout)
    if not is_first():
        logging.getLogger("transformer_jax").setLevel(logging.WARNING)
    _log.info("%d processes train together", len(names))


def _require_free_port(coordinator: str) -> None:
    """Raises UserError if the first process cannot listen on the coordinator's port.

    Without this check, JAX would crash without a message.
    """
    port = int(coordinator.rpartition(":")[2])
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise errors.UserError(
            f"the first process cannot listen on port {port} ({error.strerror}): give another port "
            "in --coordinator"
        ) from error


@contextlib.contextmanager
def _at_most(seconds: float, code: int) -> Iterator[None]:
    """Ends this process with exit code `code` if the body takes longer than `seconds`."""

    def end() -> None:
        _print_error(
            f"{socket.gethostname()}: not all processes started and found their devices "
            f"within {seconds:g} seconds; look for a host without this message, and start all "
            "processes again, or give a longer --start_timeout"
        )
        os._exit(code)

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _print_error(message: str) -> None:
    print(f"error: {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Disconnects this process after the body, once all processes have finished their bodies.

    If a process disconnected earlier, the other processes would regard it as dead.
    """
    try:
        yield
    except (errors.UserError, errors.RunError):
        if _peers:  # most errors are raised in all processes
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                _peers.leave(LEAVE_SECONDS)
        raise
    if _peers:
        try:
            _peers.leave(LONGEST_WAIT)
        except jax.errors.JaxRuntimeError as error:
            await_peer_failure(error)
            raise


def is_first() -> bool:
    """Returns whether this is the first process, which logs and writes files for all processes."""
    return jax.process_index() == 0


def from_first(compute: Callable[[], T]) -> T:
    """Computes a value in the first process, and returns it in every process.

    Args:
      compute: returns the value, which JSON can represent.

    Raises:
      UserError: `compute` raised a UserError in the first process.
      RunError: `compute` raised a RunError in the first process.
    """
    if _peers is None:
        return compute()
    if not is_first():
        message = _peers.broadcast({})
        if "error" in message:
            raise (errors.UserError if message["user"] else errors.RunError)(message["error"])
        return message["value"]
    try:
        value = compute()
    except (errors.UserError, errors.RunError) as error:
        _peers.broadcast({"error": str(error), "user": isinstance(error, errors.UserError)})
        raise
    _peers.broadcast({"value": value})
    return value


def wait_for_first() -> None:
    """Waits until the first process has called this function too."""
    from_first(lambda: None)


def first_alone(compute: Callable[[], T]) -> T:
    """Computes a value in the first process, and then in all other processes.

    The other processes can thus read files that the first process has written, such as a cache.

    Returns:
      The value that this process has computed.

    Raises:
      UserError: `compute` raised a UserError in this process or in the first process.
      RunError: `compute` raised a RunError in this process or in the first process.
    """
    values: list[T] = []
    from_first(lambda: values.append(compute()))
    if not values:
        values.append(compute())
    if _peers:
        _peers.wait_for_all()
    return values[0]


def await_peer_failure(error: Exception) -> None:
    """Waits after an error for as long as it takes to detect that another process has died.

    If another process has died, this process ends during the wait with the exit code 42. Otherwise
    the function returns. It returns at once after a UserError or RunError.
    """
    if _peers and not isinstance(error, errors.RunError | errors.UserError):
        time.sleep(_peers.detection_seconds)


@final
class _Peers:
    """The connection of this process to all processes of a run."""

    def __init__(self, names: Sequence[str], silence_timeout: float) -> None:
        self._names = names
        self.detection_seconds = silence_timeout + 5 * WATCH_SECONDS
        self._barrier = multihost.get_barrier_sync_fn()
        self._barriers = itertools.count()
        self._leaving = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def broadcast(self, message: dict[str, Any]) -> dict[str, Any]:
        """Sends the first process's message to all processes, and returns it in each of them."""
        # Collective operations have a shorter time limit than processes may need to get here.
        self.wait_for_all()
        content = json.dumps(message).encode()
        blocks = multihost_utils.broadcast_one_to_all(np.int32(len(content) // MESSAGE_BYTES + 1))
        padded = np.frombuffer(content.ljust(int(blocks) * MESSAGE_BYTES), np.uint8)
        return json.loads(multihost_utils.broadcast_one_to_all(padded).tobytes())

    def wait_for_all(self) -> None:
        try:
            self._wait_at(str(next(self._barriers)), LONGEST_WAIT)
        except jax.errors.JaxRuntimeError as error:
            await_peer_failure(error)
            raise

    def leave(self, seconds: int) -> None:
        """Disconnects once all processes have called this method.

        Args:
          seconds: the time within which all other processes must call it.
        """
        self._wait_at("done", seconds)
        self._leaving.set()
        self._wait_at("leave", LEAVE_SECONDS)
        # The coordinator ends with the first process, and JAX would then abort the other processes.
        while is_first() and len(self._dead()) < len(self._names) - 1:
            time.sleep(0.1)
        jax.distributed.shutdown()

    def _wait_at(self, barrier: str, seconds: int) -> None:
        self._barrier(key=f"transformer_jax/{barrier}", timeout_ms=seconds * 1000)

    def _dead(self) -> set[int]:
        """Returns the numbers of dead processes.

        The call returns after all living processes have called this method.
        """
        try:
            with multihost_utils.live_devices(jax.devices()) as living:
                pass
        except multihost_utils.ProcessFailureError as error:
            return {each.process_index for each in error.failed_devices}
        return set(range(len(self._names))) - {each.process_index for each in living}

    def _watch(self) -> None:
        """Checks for dead processes until this process leaves, and ends it if one has died.

        This method runs in a separate thread.
        """
        while not self._leaving.wait(WATCH_SECONDS):
            try:
                dead = self._dead()
            except jax.errors.JaxRuntimeError:  # the coordinator is dead
                dead = {0}
            if dead and not self._leaving.is_set():
                self._end(dead)

    def _end(self, dead: set[int]) -> None:
        names = ", ".join(f"process {each} ({self._names[each]})" for each in sorted(dead))
        _print_error(
            f"{names} of {len(self._names)} has died or sends nothing any more; checkpoints stay: "
            "start all processes again"
        )
        if is_first():  # without the coordinator JAX would end the other processes first
            time.sleep(2 * WATCH_SECONDS)
        os._exit(RUN_AGAIN)


_peers: _Peers | None = None
