"""Memory of compiled programs and of devices, and settings for the memory of CPU programs."""

import ctypes
import os
import pathlib
import platform

import jax

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # from malloc.h


def of_program(program: jax.stages.Compiled) -> int | None:
    """Returns the bytes that a program needs on each device for arguments, results and temporaries.

    Returns None if the device's compiler does not report this number.
    """
    analysis = program.memory_analysis()
    if analysis is None:
        return None
    return (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes  # results in the memory of donated arguments
        + analysis.temp_size_in_bytes
    )


def of_device(mesh: jax.sharding.Mesh) -> int | None:
    """Returns the bytes of memory that each device of a mesh may use.

    For a CPU, this is the memory of the machine or of the container, divided by the number of CPU
    devices. Returns None if an accelerator does not report its limit.
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
    """Makes CPU programs run one after another; call it before JAX finds its devices.

    By default, JAX starts a program before the previous program has ended, and each of them has
    separate buffers. Several training steps at once then take several times the memory of one step,
    which slows large steps down. This function does not change results.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory; call it before threads start.

    XLA's CPU programs allocate their buffers at every step. By default, glibc returns blocks above
    32 MiB to the system at once, and the system clears the pages again at the next step. This takes
    a fifth of the CPU time of a step of configs/multi30k.py. With these settings, all blocks come
    from one heap, which only grows. With other C libraries, the function does nothing.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_ARENA_MAX, 1)):
        if not mallopt(option, value):
            raise OSError(f"mallopt refuses option {option}")
