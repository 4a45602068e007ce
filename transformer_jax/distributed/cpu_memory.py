"""How a training on a CPU uses memory; both settings change its speed, neither its results.

JAX begins the next program before the last has ended and gives it buffers of its own: with several
steps in flight a training takes several times the memory of one, and large steps slow down on it.

XLA's CPU programs ask for their buffers anew at every step. glibc hands large ones back to the
system at once, which then has to clear the pages again: a third of the time of a small step.
"""

import ctypes
import platform

import jax

# From malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def one_step_at_a_time() -> None:
    """Makes CPU programs wait for each other; call it before JAX finds its devices."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def keep_freed_memory() -> None:
    """Lets the process keep the memory it frees; call it before threads start.

    All blocks then come from one heap, which only grows. Other C libraries than glibc are left as
    they are.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_ARENA_MAX, 1)):
        if not mallopt(option, value):
            raise OSError(f"mallopt refuses option {option}")
