"""A process that starts Python commands by forking itself.

A command that trains spends seconds on importing JAX and other packages. On Linux, the server
imports them once, and each command starts as a copy of the server. The server must not use JAX's
devices, since a fork cannot use devices that the server has opened. On other systems, commands
start anew.

The "forkserver" of `multiprocessing` runs the main module of its parent again in each child, here
the sweep's own command with its flags.
"""

import contextlib
import gc
import importlib
import json
import os
import pathlib
import runpy
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self, final

from launch import engine

_SECONDS_BETWEEN_POLLS = 0.05


@final
class ForkServer:
    """A server, which starts with the first command and stops when the `with` block ends.

    Commands that are still running then keep running.
    """

    def __init__(self, imports: Sequence[str] = ()) -> None:
        """Initializes the server.

        Args:
          imports: the modules that the server imports.
        """
        self._imports = imports
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server:
            self._server.communicate()

    def start(
        self,
        command: Sequence[str],
        log: pathlib.Path,
        environment: Mapping[str, str],
        cores: Sequence[int],
    ) -> "Process":
        """Starts a command in a new session, with standard input from the null device.

        Args:
          command: the command. If it begins with this interpreter and `-m`, it runs in the fork.
            Any other program replaces the fork.
          log: the file to which standard output and standard error are appended.
          environment: additional environment variables.
          cores: the CPU cores that the command may use; ignored where the system cannot restrict
            them.
        """
        request = {
            "command": list(command),
            "log": str(log),
            "environment": dict(environment),
            "cores": list(cores),
        }
        return Process(self, self._ask(request))

    def exit_code(self, pid: int) -> int | None:
        """Returns the exit code of a command that has ended, otherwise None.

        If a signal has ended the command, the code is minus the number of the signal.
        """
        return self._ask({"poll": pid})

    def _ask(self, request: Mapping[str, Any]) -> Any:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "launch.fork_server", *self._imports],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # signals from the terminal do not reach the server
            )
        assert self._server.stdin
        assert self._server.stdout
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self._server.stdin.write(f"{json.dumps(request)}\n".encode())
            self._server.stdin.flush()
        answer = self._server.stdout.readline()
        if not answer:
            raise engine.EngineError(
                f"the process that starts the runs has died (exit code {self._server.wait()}): "
                "the same command resumes the sweep"
            )
        return json.loads(answer)


@final
class Process:
    """A command started by a `ForkServer`."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._code: int | None = None

    def poll(self) -> int | None:
        """Returns the exit code, or None if the command has not ended."""
        if self._code is None:
            self._code = self._server.exit_code(self.pid)
        return self._code

    def wait(self, timeout: float) -> int | None:
        """Returns the exit code, or None if the command has not ended after `timeout` seconds."""
        end = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < end:
            time.sleep(_SECONDS_BETWEEN_POLLS)
        return self._code

    def send(self, signal: int) -> None:
        """Sends a signal to the command if it has not ended."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal)


def _serve(imports: Sequence[str]) -> Sequence[str] | None:
    """Answers requests until the client leaves.

    Returns:
      In the server, None. In each fork, the command that the fork has to run.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of imported modules must not enter the protocol
    for name in imports:
        importlib.import_module(name)
    gc.freeze()  # imported objects are neither examined nor freed in the forks
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            with warnings.catch_warnings():
                # A fork has none of the threads of numpy's BLAS, which starts them again.
                warnings.simplefilter("ignore")
                answer = os.fork()
            if not answer:
                answers.close()
                _set_up(request)
                return request["command"]
        print(json.dumps(answer), file=answers, flush=True)
    return None


def _set_up(request: Mapping[str, Any]) -> None:
    """Gives this process the streams, the environment and the cores of a command."""
    os.setsid()
    for path, mode, streams in (
        (os.devnull, os.O_RDONLY, [0]),
        (request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, [1, 2]),
    ):
        file = os.open(path, mode, 0o666)
        for stream in streams:
            os.dup2(file, stream)
        os.close(file)
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.update(request["environment"])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, request["cores"])


def _run(command: Sequence[str]) -> None:
    """Runs a command in this process."""
    # macOS's own libraries do not work in a fork.
    if sys.platform != "linux" or list(command[:2]) != [sys.executable, "-m"]:
        os.execvp(command[0], list(command))
    sys.argv = list(command[2:])
    runpy.run_module(command[2], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    to_run = _serve(sys.argv[1:])
    if to_run:
        _run(to_run)
