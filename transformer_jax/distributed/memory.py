"""The memory that a compiled program takes, that of a device, and how CPU programs use it."""

import ctypes
import os
import pathlib
import platform

import jax

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # from malloc.h


def of_program(program: jax.stages.Compiled) -> int | None:
    """Returns the bytes of arguments, results and temporaries on each device.

    None where the device's compiler does not report them.
    """
    analysis = program.memory_analysis()
    if analysis is None:
        return None
    return (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes  # results that take the place of arguments
        + analysis.temp_size_in_bytes
    )


def of_device(mesh: jax.sharding.Mesh) -> int | None:
    """Returns the bytes that each device of a mesh may use.

    CPU devices divide the memory of the machine, or of the container. None where an accelerator
    does not report its limit.
    """
    device = mesh.local_devices[0]
    stats = device.memory_stats() or {}
    if device.platform != "cpu":
        return stats.get("bytes_limit")
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    container = pathlib.Path("/sys/fs/cgroup/memory.max")
    if container.exists() and (text := container.read_text().strip()).isdigit():
        limits.append(int(text))
    return min(limits) // len(mesh.local_devices)


def one_step_at_a_time() -> None:
    """Makes CPU programs wait for each other; call it before JAX finds its devices.

    JAX begins the next program before the last has ended and gives it buffers of its own: with
    several steps in flight a training takes several times the memory of one, and large steps slow
    down on it. The results are the same.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def keep_freed_memory() -> None:
    """Lets the process keep the memory it frees; call it before threads start.

    XLA's CPU programs allocate their buffers anew at every step. glibc returns those above 32 MiB
    to the system at once, which has to clear their pages again: a fifth of the CPU time of a step
    of configs/multi30k.py. With these settings all blocks come from one heap, which only grows.
    Other C libraries are left as they are.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_ARENA_MAX, 1)):
        if not mallopt(option, value):
            raise OSError(f"mallopt refuses option {option}")
