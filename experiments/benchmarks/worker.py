"""One row of the benchmark in a process of its own, which works whenever it is told to.

The process reads numbers of steps from standard input, a line each, and answers on standard output
with one JSON object each: seconds, and the most memory in use so far.
"""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO, final

from experiments.benchmarks import measuring
from transformer_jax import errors
from transformer_jax.distributed import memory


@final
class Worker:
    """The process, seen from the benchmark.

    Attributes:
      compile_seconds: as the contender says.
      first_step_seconds: from the start of the process to the end of the first step.
      ready: what else the contender says of itself: the work of a step, translations, the memory
        that it expects to use, facts; and its device.
    """

    def __init__(self, contender: str, options: Mapping[str, Any]) -> None:
        """Starts it and waits for its first step.

        Args:
          contender: a class, as "ours:Training", of this room.
          options: the arguments of the class.

        Raises:
          RunError: the process ended; what it said is on stderr.
        """
        self._name = f"{contender} of the benchmark"
        start = time.perf_counter()
        arguments = [contender, json.dumps(dict(options))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.benchmarks.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        )
        try:
            self.ready = self._answer()
        except BaseException:  # out of time, for one: what it does is of no use to anybody
            self.close()
            raise
        self.compile_seconds: float = self.ready["compile_seconds"]
        self.first_step_seconds = time.perf_counter() - start

    def run(self, steps: int) -> tuple[float, int]:
        """Seconds that so many steps took, and the most bytes in use so far."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        answer = self._answer()
        return answer["seconds"], answer["peak_bytes"]

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.communicate()
            raise errors.RunError(f"{self._name} ended without an answer: see above")
        answer = json.loads(line)
        if "error" in answer:
            raise errors.RunError(f"{self._name}: {answer['error']}")
        return answer


def _serve(answers: TextIO) -> None:
    contender, options = sys.argv[1:]
    module, name = contender.split(":")
    made = getattr(importlib.import_module(f"experiments.benchmarks.{module}"), name)(
        **json.loads(options)
    )
    made.run(1)
    ready = {
        name: getattr(made, name)
        for name in ("compile_seconds", "predicted_bytes", "work", "translations", "facts")
        if hasattr(made, name)
    }
    ready["machine"] = measuring.describe_machine()
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        made.run(int(line))
        seconds = time.perf_counter() - start
        on_device = made.peak_bytes()
        peak = measuring.peak_resident_bytes() if on_device is None else on_device
        answer = {"seconds": seconds, "peak_bytes": peak}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    # What libraries print goes to stderr; standard output is for answers alone.
    memory.keep_freed_memory()
    memory.one_step_at_a_time()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
        os.dup2(2, 1)
        try:
            _serve(stream)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=stream)
            raise
