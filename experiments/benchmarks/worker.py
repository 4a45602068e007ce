"""The base class of the code that the benchmark times, and the process that runs such code."""

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

SECONDS_A_SAMPLE = 4.0  # approximate duration of a sample
FEWEST_STEPS = 2  # least steps of a sample


class Contender(abc.ABC):
    """Base class of the code that the benchmark times.

    Attributes:
      translations: the translations of the last step, each a list of tokens without the end token;
        None if the class does not translate.
    """

    translations: Sequence[Sequence[int]] | None = None

    @abc.abstractmethod
    def step(self) -> Any:
        """Starts one step, and returns a result for `wait`."""

    def wait(self, result: Any) -> None:
        """Waits until a result of `step` has been computed."""
        jax.block_until_ready(result)

    def peak_bytes(self) -> int:
        """Returns the peak memory so far in bytes: of the accelerator, or on a CPU the process."""
        return measuring.peak_device_bytes() or measuring.peak_resident_bytes()

    def run(self, steps: int) -> None:
        """Runs a number of steps, and waits for the result of the last one."""
        result = None
        for _ in range(steps):  # keeps one result only, since many do not fit into memory
            result = self.step()
        self.wait(result)


@final
class Worker:
    """A process that runs a `Contender` and is controlled from the process of the benchmark.

    Attributes:
      translations: the translations of the first step; None if the contender does not translate.
      first_step_seconds: the seconds from the start of the process to the end of the first step.
      peak_bytes: the peak memory so far.
    """

    def __init__(self, contender: str, options: Mapping[str, Any]) -> None:
        """Starts the process, runs the first step and chooses the number of steps of a sample.

        Args:
          contender: module and class in `experiments.benchmarks`, such as "ours:Training".
          options: the arguments of the class.

        Raises:
          UserError: an option has an impossible value.
          RunError: the process failed and has printed a traceback to stderr.
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
        """Returns the mean seconds of a step, over about SECONDS_A_SAMPLE seconds."""
        self._run(1)  # not timed: an idle process first has to get its memory and cores back
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
    """Runs a contender in the process of a `Worker`.

    Sends the translations of the first step. Then receives numbers of steps, runs each number, and
    sends the seconds and the peak memory. On an error, sends the exception and ends.
    """
    os.dup2(2, 1)  # libraries print to stderr instead of stdout, which is for the tables
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    memory.keep_freed_memory()
    memory.one_step_at_a_time()
    try:
        module, name = contender.split(":")
        kind = getattr(importlib.import_module(f"experiments.benchmarks.{module}"), name)
        made: Contender = kind(**options)
        made.run(1)
        pipe.send(made.translations)
        with contextlib.suppress(EOFError):  # raised if the benchmark has ended
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
