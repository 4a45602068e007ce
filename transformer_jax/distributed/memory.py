"""How much memory a compiled program takes, and how much there is."""

import os
import pathlib

import jax


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

    CPU devices share out what the machine, or the container, has. None where an accelerator does
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
