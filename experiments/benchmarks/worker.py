"""One row of the benchmarks in a process of its own, which works whenever it is told to."""

import contextlib
import dataclasses
import importlib
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from multiprocessing import connection
from typing import Any, final

import jax

from experiments.benchmarks import measuring
from transformer_jax import errors
from transformer_jax.distributed import memory


@final
@dataclasses.dataclass(frozen=True)
class Contender:
    """What a row times, as its process makes it: steps that can be taken one after another.

    It says what goes into the row's record besides times. Of a step's work: flops, of matrix
    products, padding included; positions, of the target, that it trains on; tokens, real ones among
    them; sentences, that it translates. And compile_seconds; predicted_bytes, the memory that
    should be in use, known before the first step; translations, as token lists; others.
    """

    step: Callable[[], Any]  # takes one; what it gives back need not be there yet
    says: Mapping[str, Any]
    wait: Callable[[Any], object] = jax.block_until_ready  # until what a step gave back is there
    peak_bytes: Callable[[], int | None] = measuring.peak_device_bytes  # in use so far at most

    def run(self, steps: int) -> None:
        """Takes so many steps, until the last one's result is there."""
        found = None
        for _ in range(steps):  # each result takes the last one's place: many fit into no memory
            found = self.step()
        self.wait(found)


@final
class Worker:
    """The process, seen from outside.

    It is `ready` with what its contender says, its machine, and first_step_seconds, from the start
    of the process to the end of the first step.
    """

    def __init__(self, where: str, options: Mapping[str, Any]) -> None:
        """Starts it and waits for its first step.

        Its contender is made by a function of this room, "ours:training" for one, of such options.
        Raises RunError if the process ended; what it said is on stderr.
        """
        self._name = f"{where} of the benchmark"
        start = time.perf_counter()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, where, options), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.ready = self._answer()
        except BaseException:  # out of time, for one: what it does is of no use to anybody
            self.close()
            raise
        self.ready["first_step_seconds"] = time.perf_counter() - start

    def run(self, steps: int) -> tuple[float, int]:
        """Seconds that so many steps took, and the most bytes in use so far."""
        self._pipe.send(steps)
        return self._answer()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _answer(self) -> Any:
        try:
            answer = self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise errors.RunError(f"{self._name} ended without an answer: see above") from error
        if isinstance(answer, str):
            raise errors.RunError(f"{self._name}: {answer}")
        return answer


def _serve(pipe: connection.Connection, where: str, options: Mapping[str, Any]) -> None:
    """Answers each number of steps with seconds and the most memory in use so far, or an error."""
    os.dup2(2, 1)  # what libraries print goes to stderr; standard output is for tables alone
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    memory.keep_freed_memory()
    memory.one_step_at_a_time()
    try:
        module, name = where.split(":")
        make = getattr(importlib.import_module(f"experiments.benchmarks.{module}"), name)
        made: Contender = make(**options)
        made.run(1)
        pipe.send({**made.says, "machine": measuring.describe_machine()})
        with contextlib.suppress(EOFError):  # where the one that asks has ended
            while steps := pipe.recv():
                start = time.perf_counter()
                made.run(steps)
                seconds = time.perf_counter() - start
                pipe.send((seconds, made.peak_bytes() or measuring.peak_resident_bytes()))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
        raise
