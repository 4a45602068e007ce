"""How the processes of a run make sure, before they start, that all of them are there."""

import contextlib
import dataclasses
import json
import socket
import time

from transformer_jax import errors

SECONDS_TO_SPEAK = 5  # for one who has called; others wait


@dataclasses.dataclass(frozen=True)
class ProcessPlace:
    """Where a process stands among those of its run."""

    coordinator: str  # host and port of the first process, "10.0.0.1:1234"
    processes: int  # how many there are
    process: int  # this one's number; the first has 0


DETECTED = ProcessPlace("", -1, -1)  # JAX's cluster detection knows more


def wait_for_all(where: ProcessPlace, timeout: float) -> None:
    """Sees to it that every process is there.

    Each tells the first its number and name, on the port that JAX will use afterwards; the first
    answers with all names as soon as it has them, or with those it has when the time is over.

    Raises:
      UserError: some did not come in time; the message says which.
    """
    deadline = time.monotonic() + timeout
    names = _hear(where, deadline) if where.process == 0 else _answer(where, deadline)
    missing = [str(each) for each in range(where.processes) if each not in names]
    if missing:
        raise errors.UserError(
            f"process {', '.join(missing)} of {where.processes} did not come within {timeout:g} "
            f"seconds; there are {', '.join(f'{i} ({names[i]})' for i in sorted(names))}: start "
            "all of them, or give a longer --start_timeout"
        )


def _hear(where: ProcessPlace, deadline: float) -> dict[int, str]:
    """The first process's part."""
    names = {0: socket.gethostname()}
    port, both = int(where.coordinator.rpartition(":")[2]), socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with contextlib.ExitStack() as opened:
        try:
            server = opened.enter_context(
                socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=1024)
            )
        except OSError as error:
            raise errors.UserError(
                f"the first process cannot listen on port {port} of its host ({error.strerror}): "
                "give another port in --coordinator"
            ) from error
        callers: list[socket.socket] = []
        while len(names) < where.processes and (left := deadline - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                caller = opened.enter_context(server.accept()[0])
                caller.settimeout(min(left, SECONDS_TO_SPEAK))
                received = caller.recv(1024)
            except OSError:  # nobody has called, or none of ours
                continue
            number, _, name = received.decode(errors="replace").partition(" ")
            if number.isdecimal() and int(number) < where.processes and name:
                names[int(number)] = name
                callers.append(caller)
        for caller in callers:
            with contextlib.suppress(OSError):  # it has died, which the next look will find
                caller.sendall(json.dumps(names).encode())
                caller.shutdown(socket.SHUT_WR)
                caller.recv(1)  # it closes first: the port is free at once
    return names


def _answer(where: ProcessPlace, deadline: float) -> dict[int, str]:
    """Every other process's part."""
    host, _, port = where.coordinator.rpartition(":")
    while True:
        left = deadline - time.monotonic() + 5  # the first waits to the end, and then answers
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=left) as server:
                server.sendall(f"{where.process} {socket.gethostname()}".encode())
                with server.makefile() as answer:
                    if told := answer.read():
                        return {int(each): name for each, name in json.loads(told).items()}
        except (OSError, ValueError):  # not there yet, or an earlier run's coordinator still is
            pass
        if time.monotonic() >= deadline:
            raise errors.UserError(
                f"process {where.process} does not reach the first process at {where.coordinator}: "
                "start all of them, or give a longer --start_timeout"
            )
        time.sleep(0.5)
