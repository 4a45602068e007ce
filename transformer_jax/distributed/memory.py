"""How much memory a compiled program takes, how much there is, and how a CPU's training uses it."""

import ctypes
import os
import pathlib
import platform

import jax

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # from malloc.h


def of_program(program: jax.stages.Compiled) -> int | None:
    """Bytes that a program holds on each device while it runs: arguments, results, temporaries.

    None where the device's compiler does not say.
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
    """Bytes that each device of a mesh may use.

    CPU devices divide what the machine, or the container, has. None where an accelerator does
    not say.
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

    XLA's CPU programs ask for their buffers anew at every step. glibc hands large ones back to the
    system at once, which then has to clear the pages again: a third of the time of a small step.
    All blocks now come from one heap, which only grows. Other C libraries are left as they are.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_ARENA_MAX, 1)):
        if not mallopt(option, value):
            raise OSError(f"mallopt refuses option {option}")
