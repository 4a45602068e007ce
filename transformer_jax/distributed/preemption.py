"""SIGTERM: the notice that Cloud TPU, Slurm and Kubernetes give before they take a machine away.

While training it is answered with a checkpoint of the step just taken; at any other time there is
nothing to save. Either way the run ends with exit code 42, and the same command goes on. Where
several processes train together, JAX tells all of them, and they look at it while training only: at
other times it has no effect until the machine goes, and then too nothing is lost.
"""

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator

import jax
from jax.experimental import multihost_utils

from transformer_jax import errors
from transformer_jax.distributed import hosts


class PreemptedError(errors.RunError):
    """The run was told to stop, and has saved what it had."""


_STOPPED = "stopped by SIGTERM; the same command goes on"

_training = threading.Event()
_told = threading.Event()
_questions = itertools.count(1)


def watch() -> None:
    """Begins to handle SIGTERM; where several processes train together, JAX does that."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # Python's own handlers wait until a compilation is over; the byte in the pipe comes at once.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def listen() -> None:
        while True:
            if signal.SIGTERM in os.read(reader, 1):
                _told.set()
                if not _training.is_set():
                    print(_STOPPED, file=sys.stderr, flush=True)
                    os._exit(hosts.RUN_AGAIN)

    threading.Thread(target=listen, daemon=True).start()


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Whoever is in here looks at `reached` after every step.

    Raises:
      PreemptedError: SIGTERM came too late for that.
    """
    _training.set()
    try:
        yield
    finally:
        _training.clear()
    if _told.is_set():  # after the last look
        raise PreemptedError(_STOPPED)


def reached() -> bool:
    """Whether to save after this step and stop: the same answer in all processes.

    All of them ask equally often.
    """
    if jax.distributed.is_initialized():
        # The step would not do: a notice that comes before the first is for number 1.
        return multihost_utils.reached_preemption_sync_point(next(_questions))
    return _told.is_set()
