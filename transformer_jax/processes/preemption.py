"""SIGTERM: the notice that Cloud TPU, Slurm and Kubernetes give before they take a machine away.

While training it is answered with a checkpoint of the step just taken; at any other time there is
nothing to save. Either way the run ends with exit code 42, and the same command goes on.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

import jax
from jax.experimental import multihost_utils

from transformer_jax import config as config_lib
from transformer_jax.processes import hosts


class PreemptedError(config_lib.RunError):
    """The run was told to stop, and has saved what it had."""


_training = threading.Event()
_told = threading.Event()


def watch() -> None:
    """Begins to heed SIGTERM; where several processes train together, JAX does that."""
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
                    print("stopped by SIGTERM; the same command goes on", file=sys.stderr)
                    sys.stderr.flush()
                    os._exit(hosts.RUN_AGAIN)

    threading.Thread(target=listen, daemon=True).start()


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """Whoever is in here looks at `reached` after every step."""
    _training.set()
    try:
        yield
    finally:
        _training.clear()


def reached(step: int) -> bool:
    """Whether to save after this step and stop: the same answer in all processes."""
    if jax.process_count() > 1:
        return multihost_utils.reached_preemption_sync_point(step)
    return _told.is_set()
