"""Measurements of compiled programs: time, memory, operations and sequential operations."""

import dataclasses
import datetime
import math
import os
import pathlib
import resource
import sys
import timeit
from collections.abc import Callable, Sequence

import jax
import jax.extend
import numpy as np

from experiments.benchmarks import hlo
from experiments.sweep import cost
from transformer_jax import errors

# CPU flags of bfloat16 instructions: two of x86 processors, and one of Arm processors.
BFLOAT16 = {"amx_bf16", "avx512_bf16", "bf16"}
SECONDS_A_SAMPLE = 0.002  # least duration of a sample; shorter calls are repeated within a sample
# Opcodes that compute nothing: they name, group, repeat or rearrange existing values.
_FREE = set(
    "parameter constant iota tuple get-tuple-element after-all bitcast reshape transpose copy "
    "broadcast slice pad concatenate reverse".split()
)


@dataclasses.dataclass(frozen=True)
class TimedProgram:
    """A compiled program with random arguments."""

    run: Callable[[], object]  # runs the program and waits for its result
    flops: int  # floating-point operations of the matrix products
    temporary_bytes: int  # most memory at a time, without arguments and result
    output_bytes: int  # memory of the result
    sequential_operations: int  # length of the longest chain of dependent instructions


def prepare(function: Callable[..., jax.Array], shapes: Sequence[tuple[int, ...]]) -> TimedProgram:
    """Compiles a function for random arguments.

    Args:
      function: a function of arrays.
      shapes: the shapes of its arguments. Arguments are drawn from a normal distribution with
        variance 1 / shape[-1].

    Raises:
      RunError: the compiler does not report the text or the memory of the program.
    """
    rng = np.random.default_rng(0)
    arguments = [
        jax.device_put(rng.standard_normal(shape, np.float32) * shape[-1] ** -0.5)
        for shape in shapes
    ]
    traced = jax.jit(function).trace(*arguments)
    compiled = traced.lower().compile()
    memory, text = compiled.memory_analysis(), compiled.as_text()
    if memory is None or text is None:
        raise errors.RunError("the compiler of this device shows neither memory nor program")
    return TimedProgram(
        lambda: jax.block_until_ready(compiled(*arguments)),
        flops=cost.matrix_flops(traced.jaxpr.jaxpr),
        temporary_bytes=memory.temp_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        sequential_operations=longest_chain(text),
    )


def longest_chain(text: str) -> int:
    """Returns the length of the longest chain of dependent instructions in a program.

    An instruction counts as 1, whatever the sizes of its arrays. A fusion or call counts as the
    longest chain inside it, a conditional as its longest branch, and a while loop as the chain of
    its body times the trip count. Instructions that only name, group, repeat or move values count
    as 0, since their number depends on the compiler.

    Args:
      text: the text of the program; see `hlo.read`.

    Raises:
      ValueError: there is no entry computation, or a loop's trip count is unknown.
    """
    module = hlo.read(text)

    def longest(computation: str, starts: Sequence[int]) -> int:
        """Returns the longest chain that ends in a computation.

        `starts` has the length of the chain before each argument; an empty one stands for zeros.
        """
        ends: dict[str, int] = {}
        for one in module.computations[computation]:
            if one.opcode == "parameter":
                ends[one.name] = starts[int(one.arguments)] if starts else 0
            else:
                ends[one.name] = end(one, [ends[name] for name in one.operands])
        return max(ends.values(), default=0)

    def end(one: hlo.Instruction, before: Sequence[int]) -> int:
        start = max(before, default=0)
        match one.opcode:
            case "fusion" | "call":
                return longest(one.called[0], before)
            case "conditional":
                return max(longest(branch, [start]) for branch in one.called)
            case "while":
                return start + module.turns(one) * longest(one.called[0], [0])
            case opcode if opcode in _FREE or opcode.endswith("-done"):
                return start
            case _:
                return start + 1

    return longest(module.entry, [])


def sampler(program: Callable[[], object]) -> Callable[[], float]:
    """Returns a function that measures the seconds of one call of a program.

    `sampler` itself calls the program twice: to compile it, and to choose the number of calls whose
    mean is one sample.

    Args:
      program: runs the program and waits for its result.
    """
    program()
    calls = max(1, math.ceil(SECONDS_A_SAMPLE / timeit.timeit(program, number=1)))
    return lambda: timeit.timeit(program, number=calls) / calls


def interleave(
    samplers: Sequence[Callable[[], float]], repeats: int, on_round: Callable[[int], None]
) -> list[list[float]]:
    """Calls each sampler once in every round, and returns the samples of each sampler.

    A temporary slowdown of the machine thus affects all samplers alike.

    Args:
      samplers: functions that return a measurement.
      repeats: the number of rounds.
      on_round: called after each round with the number of rounds done.
    """
    rounds = []
    for done in range(1, repeats + 1):
        rounds.append([sample() for sample in samplers])
        on_round(done)
    return list(map(list, zip(*rounds, strict=True)))


def describe_machine() -> str:
    """Returns a text with the device, the version of JAX and the date."""
    device = jax.devices()[0]
    kind = device.device_kind
    if device.platform == "cpu":
        fast = ", ".join(sorted(BFLOAT16 & processor_flags())) or "no bfloat16 in hardware"
        kind = f"{os.cpu_count()} CPU cores ({fast})"
    return f"{kind}, JAX {jax.__version__}, {datetime.date.today()}"


def processor_flags() -> set[str]:
    """Returns the words of Linux's /proc/cpuinfo, which include the CPU's flags.

    The set is empty on other systems.
    """
    about = pathlib.Path("/proc/cpuinfo")
    return set(about.read_text(encoding="utf-8").split()) if about.exists() else set()


def peak_resident_bytes() -> int:
    """Returns the peak memory of this process so far, in bytes."""
    # In KiB on Linux, and in bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def peak_device_bytes() -> int | None:
    """Returns the peak memory of the accelerator so far, in bytes; None on a CPU."""
    stats = jax.devices()[0].memory_stats()
    return stats["peak_bytes_in_use"] if stats else None
