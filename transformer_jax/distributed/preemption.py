"""Preemption by SIGTERM, which Cloud TPU, Slurm and Kubernetes send before they stop a machine.

If SIGTERM comes during training, the run first saves a checkpoint of the current step; at any other
time there is nothing to save. In both cases the run ends with exit code 42, and the same command
resumes it.

If several processes train together, JAX notifies all of them, and they check for the signal during
training only. At other times the signal has no effect, and nothing is lost when the machine stops.
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
    """The error that ends a run after SIGTERM, once its checkpoint is written."""


_STOPPED = "stopped by SIGTERM; the same command resumes the run"

_training = threading.Event()
_received = threading.Event()
_checks = itertools.count(1)


def watch() -> None:
    """Makes this process handle SIGTERM as the module describes.

    It is for runs of a single process. If several processes train together, JAX handles SIGTERM.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # Python runs signal handlers after a compilation has ended, but writes to the pipe at once.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def listen() -> None:
        while True:
            if signal.SIGTERM in os.read(reader, 1):
                _received.set()
                if not _training.is_set():
                    print(_STOPPED, file=sys.stderr, flush=True)
                    os._exit(hosts.RUN_AGAIN)

    threading.Thread(target=listen, daemon=True).start()


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Keeps SIGTERM from ending the process while the body trains.

    The body must call `reached` after every step to find out whether SIGTERM was received.

    Raises:
      PreemptedError: SIGTERM was received after the body's last call of `reached`.
    """
    _training.set()
    try:
        yield
    finally:
        _training.clear()
    if _received.is_set():
        raise PreemptedError(_STOPPED)


def reached() -> bool:
    """Returns whether the caller should save a checkpoint after this step and stop.

    All processes must call this function after every step. All of them get the same result.
    """
    if jax.distributed.is_initialized():
        # Checks are counted, not steps: a signal before the first check makes JAX stop at number 1,
        # and a resumed run has no step 1.
        return multihost_utils.reached_preemption_sync_point(next(_checks))
    return _received.is_set()
