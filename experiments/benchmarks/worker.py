"""A contender of the benchmark, and the separate process in which it runs."""

import abc
import contextlib
import importlib
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from typing import Any, final

import jax

from experiments.benchmarks import measuring
from transformer_jax import errors
from transformer_jax.distributed import memory

SECONDS_A_SAMPLE, FEWEST_STEPS = 4.0, 2


class Contender(abc.ABC):
    """Work that is timed step by step.

    Attributes:
      translations: the last step's, as token lists without end tokens, if the contender translates.
    """

    translations: Sequence[Sequence[int]] | None = None

    @abc.abstractmethod
    def step(self) -> Any:
        """Runs one step; its result need not be there yet."""

    def wait(self, result: Any) -> None:
        """Waits for a step's result."""
        jax.block_until_ready(result)

    def peak_bytes(self) -> int:
        """Returns the most memory in use so far: the accelerator's, or else the process's."""
        return measuring.peak_device_bytes() or measuring.peak_resident_bytes()

    def run(self, steps: int) -> None:
        """Runs some steps and waits for the last one's result."""
        result = None
        for _ in range(steps):  # earlier results are dropped: many fit into no memory
            result = self.step()
        self.wait(result)


@final
class Worker:
    """A contender's process, as the benchmark sees it.

    Attributes:
      translations: the first step's, if the contender translates.
      first_step_seconds: from the start of the process to the end of the first step.
      peak_bytes: the most memory in use so far.
    """

    def __init__(self, contender: str, options: Mapping[str, Any]) -> None:
        """Starts the process, runs the first step and chooses how many steps make a sample.

        Args:
          contender: module and class in `experiments.benchmarks`, such as "ours:Training".
          options: its arguments.

        Raises:
          UserError: the contender refuses an option.
          RunError: the process fails; its traceback is on stderr.
        """
        self._name, self.peak_bytes = contender, 0
        start = time.perf_counter()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, contender, options)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.translations = self._answer()
            self.first_step_seconds = time.perf_counter() - start
            once = self._run(FEWEST_STEPS) / FEWEST_STEPS
        except BaseException:
            self.close()
            raise
        self._steps = max(FEWEST_STEPS, round(SECONDS_A_SAMPLE / once))

    def sample(self) -> float:
        """Returns the seconds that a step takes, over some seconds of steps."""
        self._run(1)  # not timed: what the system took from the idle process comes back
        return self._run(self._steps) / self._steps

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _run(self, steps: int) -> float:
        self._pipe.send(steps)
        seconds, self.peak_bytes = self._answer()
        return seconds

    def _answer(self) -> Any:
        try:
            answer = self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise errors.RunError(f"{self._name} ended without an answer: see above") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(pipe: connection.Connection, contender: str, options: Mapping[str, Any]) -> None:
    """Answers each number of steps with their seconds and the most memory in use, or an error."""
    os.dup2(2, 1)  # what libraries print goes to stderr; standard output is for tables alone
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    memory.keep_freed_memory()
    memory.one_step_at_a_time()
    try:
        module, name = contender.split(":")
        kind = getattr(importlib.import_module(f"experiments.benchmarks.{module}"), name)
        made: Contender = kind(**options)
        made.run(1)
        pipe.send(made.translations)
        with contextlib.suppress(EOFError):  # where the benchmark has ended
            while steps := pipe.recv():
                start = time.perf_counter()
                made.run(steps)
                seconds = time.perf_counter() - start
                pipe.send((seconds, made.peak_bytes()))
    except errors.UserError as error:
        pipe.send(error)
    except Exception as error:
        pipe.send(errors.RunError(f"{contender}: {type(error).__name__}: {error}"))
        raise
