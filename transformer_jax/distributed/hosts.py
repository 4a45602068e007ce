"""The processes of one run, which jax.distributed connects, and how they end.

One process drives the devices of one host. The first process logs and writes for all. If a process
is missing at the start or dies later, the others end within a time limit: with exit code 2 if it
did not start, with 42 if it died. Checkpoints stay, and starting all processes again resumes the
run. If a process died, the others name it; if one did not start, each of the others names its own
host instead. When the first process dies, JAX ends the others at once with its own message (exit
code 134).
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, final

import jax
import numpy as np
from jax.experimental import multihost_utils
from orbax.checkpoint import multihost

from transformer_jax import errors

_log = logging.getLogger(__name__)

T = TypeVar("T")

RUN_AGAIN = 42  # exit code: stopped from outside, nothing lost; the same command goes on
SECONDS_BETWEEN_LOOKS = 2
SECONDS_TO_LEAVE = 20
LONGEST_WAIT = 7 * 24 * 3600  # seconds, for one that lives: a corpus may take long to prepare
BYTES = 1024  # what the first tells is a multiple of so many long: few shapes to compile for

# Variables that say how many processes a launcher has started.
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")


@dataclasses.dataclass(frozen=True)
class ProcessPlace:
    """A process's place among those of its run; where JAX detects it, all fields are None.

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
    """Returns the place that the command line gives this process; None if it is the only one.

    With distributed_run JAX's cluster detection finds it (Cloud TPU, GKE, Slurm, Open MPI). The
    other arguments are those of `ProcessPlace`; "" and -1 where they are not given.

    Raises:
      UserError: the arguments are incomplete, or contradict each other or the launcher.
    """
    given = (bool(coordinator), processes >= 0, process >= 0)
    if distributed_run:
        if any(given):
            raise errors.UserError(
                "--distributed finds the processes by itself: leave out --coordinator, "
                "--processes and --process, or leave out --distributed"
            )
        return ProcessPlace()
    if any(given):
        if not all(given):
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
    """Connects to the other processes; to be called before JAX looks for devices.

    All processes must start within start_timeout seconds, and then find their devices within as
    many, or this one ends. A process that sends nothing for silence_timeout seconds counts as dead.

    Raises:
      UserError: JAX detects no cluster, or the coordinator's port is in use.
    """
    global _peers
    if where.coordinator and where.process == 0:
        _require_free_port(where.coordinator)
    # Without it JAX aborts this process when another dies, and not always by name.
    jax.config.update("jax_enable_recoverability", True)
    patience = max(start_timeout, 1)
    with _at_most(patience, 2):
        try:
            jax.distributed.initialize(
                where.coordinator,
                where.processes,
                where.process,
                local_device_ids=[],  # all; where JAX detects Slurm, None is one for each process
                initialization_timeout=int(patience) + 60,  # when JAX aborts, with a stack trace
                heartbeat_timeout_seconds=max(int(silence_timeout), 1),
            )
        except (ValueError, RuntimeError) as error:
            raise errors.UserError(
                f"this process cannot join the others ({' '.join(str(error).split())}); "
                "--distributed detects Cloud TPU, GKE, Slurm and Open MPI: elsewhere give "
                "--coordinator=HOST:PORT, --processes and --process"
            ) from error
    with _at_most(patience, RUN_AGAIN):  # the first look for devices waits for those of all
        name = socket.gethostname().encode()[:64].ljust(64)
        gathered = multihost_utils.process_allgather(np.frombuffer(name, np.uint8))
    names = [each.tobytes().decode(errors="replace").rstrip() for each in gathered]
    _peers = _Peers(names, silence_timeout)
    if not is_first():
        logging.getLogger("transformer_jax").setLevel(logging.WARNING)
    _log.info("%d processes train together", len(names))


def _require_free_port(coordinator: str) -> None:
    """Raises UserError if the first process cannot listen; JAX would crash without a message."""
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
    """Ends this process with an exit code if the body takes longer."""

    def end() -> None:
        print(
            f"error: {socket.gethostname()}: not all processes started and found their devices "
            f"within {seconds:g} seconds; look for a host without this message, and start all "
            "processes again, or give a longer --start_timeout",
            file=sys.stderr,
            flush=True,
        )
        os._exit(code)

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def together() -> Iterator[None]:
    """What all processes do; they leave together, so that none takes another for dead."""
    try:
        yield
    except (errors.UserError, errors.RunError):
        if _peers:  # the others have mostly met the same
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                _peers.leave(SECONDS_TO_LEAVE)
        raise
    if _peers:
        try:
            _peers.leave(LONGEST_WAIT)
        except jax.errors.JaxRuntimeError as error:
            await_peer_failure(error)
            raise


def is_first() -> bool:
    """Whether this process speaks and writes for all."""
    return jax.process_index() == 0


def from_first(find: Callable[[], T]) -> T:
    """What the first process finds, told to all; it must be JSON's.

    Raises:
      UserError: as the first did; so RunError.
    """
    if _peers is None:
        return find()
    if not is_first():
        received = json.loads(_peers.told(""))
        if "error" in received:
            raise (errors.UserError if received["user"] else errors.RunError)(received["error"])
        return received["found"]
    try:
        found = find()
    except (errors.UserError, errors.RunError) as error:
        message = {"error": str(error), "user": isinstance(error, errors.UserError)}
        _peers.told(json.dumps(message))
        raise
    _peers.told(json.dumps({"found": found}))
    return found


@contextlib.contextmanager
def first_alone() -> Iterator[None]:
    """The first process goes through this while the others wait; then they do, and it waits.

    Raises:
      UserError: as the first did; so RunError.
    """
    if _peers is None or is_first():
        try:
            yield
        except (errors.UserError, errors.RunError) as error:
            from_first(functools.partial(_raise, error))
        from_first(lambda: None)
    else:
        from_first(lambda: None)
        yield
    if _peers:
        _peers.meet()


def _raise(error: Exception) -> None:
    raise error


def await_peer_failure(error: Exception) -> None:
    """Gives a peer whose failure may have caused an error the time to be found dead."""
    if _peers and not isinstance(error, errors.RunError | errors.UserError):
        time.sleep(_peers.patience)


@final
class _Peers:
    """The processes that have met."""

    def __init__(self, names: Sequence[str], silence_timeout: float) -> None:
        self._names = names
        self.patience = silence_timeout + 5 * SECONDS_BETWEEN_LOOKS
        self._dead: set[int] = set()
        self._wait_for_all = multihost.get_barrier_sync_fn()
        self._messages = itertools.count()
        self._leaving = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def told(self, message: str) -> bytes:
        """The first process's message, which is ASCII, and blanks after it."""
        self.meet()  # devices do not wait for each other as long as processes
        length = multihost_utils.broadcast_one_to_all(np.int32(len(message) // BYTES + 1)) * BYTES
        padded = np.frombuffer(message.encode().ljust(int(length)), np.uint8)
        return multihost_utils.broadcast_one_to_all(padded).tobytes()

    def meet(self) -> None:
        try:
            self._wait_at(str(next(self._messages)), LONGEST_WAIT)
        except jax.errors.JaxRuntimeError as error:
            await_peer_failure(error)
            raise

    def leave(self, patience: int) -> None:
        self._wait_at("done", patience)
        self._leaving.set()
        self._wait_at("leave", SECONDS_TO_LEAVE)
        # The first takes the coordinator with it, without which JAX would end the others.
        while is_first() and len(self._look()) < len(self._names) - 1:
            time.sleep(0.1)
        jax.distributed.shutdown()

    def _wait_at(self, barrier: str, seconds: int) -> None:
        self._wait_for_all(key=f"transformer_jax/{barrier}", timeout_ms=seconds * 1000)

    def _look(self) -> set[int]:
        """Who is dead; it waits for all that live to ask."""
        try:
            with multihost_utils.live_devices(jax.devices()) as living:
                pass
            self._dead |= set(range(len(self._names))) - {each.process_index for each in living}
        except multihost_utils.ProcessFailureError as error:
            self._dead |= {each.process_index for each in error.failed_devices}
        return self._dead

    def _watch(self) -> None:
        """Ends this process when another has died."""
        while not self._leaving.wait(SECONDS_BETWEEN_LOOKS):
            try:
                dead = self._look()
            except jax.errors.JaxRuntimeError:  # nobody coordinates any more
                dead = {0}
            if dead and not self._leaving.is_set():
                self._end(dead)

    def _end(self, dead: set[int]) -> None:
        names = ", ".join(f"process {each} ({self._names[each]})" for each in sorted(dead))
        print(
            f"error: {names} of {len(self._names)} has died or says nothing any more; what was "
            "saved stays: start all of them again",
            file=sys.stderr,
            flush=True,
        )
        if is_first():  # without the coordinator JAX would end the others first
            time.sleep(2 * SECONDS_BETWEEN_LOOKS)
        os._exit(RUN_AGAIN)


_peers: _Peers | None = None
