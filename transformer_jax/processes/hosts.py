"""The processes of one run: how they find each other, who speaks for all, and who has died.

One process drives the devices of one host. What must be said or written once, the first does. A
process that is missing at the start, or dies later, is named by all others within a time limit.
They end, at the start with exit code 2, later with 42: what was saved stays, and starting all of
them again goes on. When the first itself dies, JAX ends the others, at once and with its own words
(exit code 134).
"""

import contextlib
import functools
import itertools
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, final

import jax
from jax._src import clusters, distributed  # who is there, and who lives, has no public name

from transformer_jax import config as config_lib
from transformer_jax.processes import roll_call

_log = logging.getLogger(__name__)

T = TypeVar("T")

RUN_AGAIN = 42  # exit code: stopped from outside, nothing lost; the same command goes on
SECONDS_BETWEEN_LOOKS = 2
SECONDS_TO_LEAVE = 20
LONGEST_WAIT = 7 * 24 * 3600  # seconds, for one that lives: a corpus may take long to prepare

# Variables that say how many processes a launcher has started.
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")


def place(
    distributed_run: bool, coordinator: str, processes: int, process: int
) -> roll_call.Place | None:
    """What the command line says of the processes; None if there is just one.

    Args:
      distributed_run: whether to find the other processes by JAX's cluster detection (Cloud TPU,
        GKE, Slurm, Open MPI).
      coordinator: as in `roll_call.Place`; "" if detected, or alone. So the next two, with -1.
      processes: as in `roll_call.Place`.
      process: as in `roll_call.Place`.

    Raises:
      UserError: that is not enough, or contradicts itself, or what a launcher says.
    """
    given = (bool(coordinator), processes >= 0, process >= 0)
    if distributed_run:
        if any(given):
            raise config_lib.UserError(
                "--distributed finds the processes by itself: leave out --coordinator, "
                "--processes and --process, or leave out --distributed"
            )
        address, number, index, _ = clusters.ClusterEnv.auto_detect_unset_distributed_params(
            None, None, None, None, None, None
        )
        if address is None or number is None or index is None:
            raise config_lib.UserError(
                "--distributed: this is no cluster that JAX detects (Cloud TPU, GKE, Slurm, Open "
                "MPI): give --coordinator=HOST:PORT, --processes and --process"
            )
        return roll_call.Place(address, number, index)
    if any(given):
        if not all(given):
            raise config_lib.UserError("--coordinator, --processes and --process belong together")
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal():
            raise config_lib.UserError(f"--coordinator={coordinator} should be HOST:PORT")
        if not process < processes:
            raise config_lib.UserError(
                f"--process={process} should be below --processes={processes}"
            )
        return roll_call.Place(coordinator, processes, process)
    for variable in LAUNCHERS:
        if (number := os.environ.get(variable, "1")) != "1":
            raise config_lib.UserError(
                f"{variable}={number}: this is one of several processes; give --distributed, "
                "so that they train one run together"
            )
    return None


def join(where: roll_call.Place, start_timeout: float, silence_timeout: float) -> None:
    """Meets the other processes; to be called before JAX looks for devices.

    Args:
      where: this process's place.
      start_timeout: seconds within which all must be there.
      silence_timeout: seconds after which a process that says nothing counts as dead.

    Raises:
      UserError: some are missing, whom the message names.
    """
    global _company
    names = roll_call.call(where, start_timeout)
    # Without it JAX ends the process itself when another dies, and not always by name.
    jax.config.update("jax_enable_recoverability", True)
    jax.distributed.initialize(
        where.coordinator,
        where.processes,
        where.process,
        initialization_timeout=max(int(start_timeout), 1),
        heartbeat_timeout_seconds=max(int(silence_timeout), 1),
        cluster_detection_method="deactivate",
    )
    _company = _Company(where, names, silence_timeout)
    if where.process:
        logging.getLogger("transformer_jax").setLevel(logging.WARNING)
    _log.info("%d processes train together", where.processes)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """What all processes do; they leave together, so that none takes another for dead."""
    try:
        yield
    except (config_lib.UserError, config_lib.RunError):
        if _company:  # the others have mostly met the same
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                _company.leave(SECONDS_TO_LEAVE)
        raise
    if _company:
        try:
            _company.leave(LONGEST_WAIT)
        except jax.errors.JaxRuntimeError as error:
            blame(error)
            raise


def is_first() -> bool:
    """Whether this process speaks and writes for all."""
    return jax.process_index() == 0


def from_first(find: Callable[[], T]) -> T:
    """What the first process finds, told to all; it must be JSON's.

    Raises:
      UserError: as the first did; so RunError.
    """
    return find() if _company is None else _company.from_first(find)


@contextlib.contextmanager
def first_alone() -> Iterator[None]:
    """The first process goes through this while the others wait; then they do, and it waits.

    Raises:
      UserError: as the first did; so RunError.
    """
    if _company is None or is_first():
        try:
            yield
        except (config_lib.UserError, config_lib.RunError) as error:
            from_first(functools.partial(_raise, error))
        from_first(lambda: None)
    else:
        from_first(lambda: None)
        yield
    if _company:
        _company.meet()


def _raise(error: Exception) -> None:
    raise error


def are_several() -> bool:
    """Whether this process is one of several."""
    return jax.process_count() > 1


def blame(error: Exception) -> None:
    """An error that another process's death may have caused: gives it time to be found dead."""
    if _company and not isinstance(error, config_lib.RunError | config_lib.UserError):
        _company.wait_for_obituary()


@final
class _Company:
    """The processes that have met."""

    def __init__(
        self, where: roll_call.Place, names: Mapping[int, str], silence_timeout: float
    ) -> None:
        self._where, self._names = where, names
        self._patience = silence_timeout + 5 * SECONDS_BETWEEN_LOOKS
        self._client: Any = distributed.global_state.client
        self._messages = itertools.count()
        self._leaving = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def from_first(self, find: Callable[[], T]) -> T:
        key = f"transformer_jax/{next(self._messages)}"
        if self._where.process == 0:
            try:
                found = find()
            except (config_lib.UserError, config_lib.RunError) as error:
                told = {"error": str(error), "user": isinstance(error, config_lib.UserError)}
                self._client.key_value_set(key, json.dumps(told))
                raise
            self._client.key_value_set(key, json.dumps({"found": found}))
            return found
        told = json.loads(self._client.blocking_key_value_get(key, LONGEST_WAIT * 1000))
        if "error" in told:
            raise (config_lib.UserError if told["user"] else config_lib.RunError)(told["error"])
        return told["found"]

    def meet(self) -> None:
        name = f"transformer_jax/{next(self._messages)}"
        self._client.wait_at_barrier(name, LONGEST_WAIT * 1000)

    def leave(self, patience: int) -> None:
        self._client.wait_at_barrier("transformer_jax/done", patience * 1000)
        self._leaving.set()
        self._client.wait_at_barrier("transformer_jax/leave", SECONDS_TO_LEAVE * 1000)
        # The first takes the coordinator with it, without which JAX would end the others.
        while self._where.process == 0 and len(self._living()) > 1:
            time.sleep(0.1)
        jax.distributed.shutdown()

    def wait_for_obituary(self) -> None:
        time.sleep(self._patience)

    def _living(self) -> set[int]:
        """Who lives; it waits for all that live to ask."""
        return set(self._client.get_live_nodes(list(range(self._where.processes))))

    def _watch(self) -> None:
        """Ends this process when another has died."""
        everyone = set(range(self._where.processes))
        while not self._leaving.wait(SECONDS_BETWEEN_LOOKS):
            try:
                dead = sorted(everyone - self._living())
            except jax.errors.JaxRuntimeError:  # nobody coordinates any more
                dead = [0]
            if dead and not self._leaving.is_set():
                self._end(dead)

    def _end(self, dead: list[int]) -> None:
        names = ", ".join(f"process {each} ({self._names[each]})" for each in dead)
        print(
            f"error: {names} of {self._where.processes} has died or says nothing any more; what "
            "was saved stays: start all of them again",
            file=sys.stderr,
            flush=True,
        )
        if self._where.process == 0:  # without the coordinator JAX would end the others first
            time.sleep(2 * SECONDS_BETWEEN_LOOKS)
        os._exit(RUN_AGAIN)


_company: _Company | None = None
