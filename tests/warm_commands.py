"""Runs commands in forks of one process that has imported what they share: fast, and true to life.

A new process spends seconds on importing JAX. Here a server imports it once, and for each
command forks a child, which runs the module as `python -m` does, and ends as it does.
"""

import gc
import importlib
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, final

from tests import compiling

SECONDS = 300  # after which a command is killed: bad input must not hang
SHARED = (
    "experiments.scheduling.dry_run",
    "experiments.results.report",
    "launch.local",
    "transformer_jax.runs",
)


class Done(NamedTuple):
    """Result of a finished command."""

    code: int
    stdout: bytes
    stderr: str


@final
class Server:
    """Runs commands one after another; see the module.

    Attributes:
      environment: in which they run, for those that must be a process of their own.
    """

    def __init__(
        self,
        compiled: pathlib.Path,
        imports: Sequence[str] = SHARED,
        folder: pathlib.Path | None = None,
        seconds: int = SECONDS,
    ) -> None:
        """Starts the server.

        Args:
          compiled: where compiled programs are kept.
          imports: what it has imported when a command begins.
          folder: where commands run, and from which they import; by default the current one.
          seconds: after which a command is killed.
        """
        self.environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            **compiling.QUICKLY,
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(seconds), *imports],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(
        self,
        module: str,
        *arguments: str,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
    ) -> Done:
        """Runs `python -m MODULE ARGUMENTS` to its end, with more variables if there are any."""
        assert self._process.stdin
        assert self._process.stdout
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "stdin").write_bytes(stdin)
            request = {
                "folder": name,
                "argv": [module, *arguments],
                "environment": dict(environment or {}),
            }
            line = json.dumps(request)
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            stderr = (folder / "stderr").read_text(encoding="utf-8", errors="replace")
            return Done(code, (folder / "stdout").read_bytes(), stderr)


def _serve(seconds: int, imports: Sequence[str]) -> None:
    warnings.filterwarnings("ignore", "os.fork")  # no thread of JAX runs before its first device
    for name in imports:
        importlib.import_module(name)
    gc.freeze()  # what is imported stays: no child need look through it
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            os._exit(_become(request, seconds))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(request: dict[str, Any], seconds: int) -> int:
    """Runs a command with its files as standard input, output and error; returns its exit code."""
    signal.alarm(seconds)
    os.environ.update(request["environment"])
    sys.path[:0] = filter(None, [request["environment"].get("PYTHONPATH")])
    folder = pathlib.Path(request["folder"])
    for number, (name, mode) in enumerate(
        (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))
    ):
        os.dup2(os.open(folder / name, mode | os.O_CREAT), number)
    sys.stdin = os.fdopen(0, closefd=False)
    module, *arguments = request["argv"]
    sys.argv = [module, *arguments]
    code: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:  # what the interpreter does with what nobody catches
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if isinstance(code, str):
        os.write(2, f"{code}\n".encode())
        code = 1
    return code or 0


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2:])
