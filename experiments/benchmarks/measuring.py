"""Measurements of a compiled program: time, memory, operations and sequential operations."""

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

BFLOAT16 = {"amx_bf16", "avx512_bf16", "bf16"}  # a processor's flags, the last of Arm's
SECONDS_A_SAMPLE = 0.002  # a shorter call is repeated within a sample, as the clock needs it
# They name, group, repeat or lay out anew values that are there already.
_FREE = set(
    "parameter constant iota tuple get-tuple-element after-all bitcast reshape transpose copy "
    "broadcast slice pad concatenate reverse".split()
)


@dataclasses.dataclass(frozen=True)
class TimedProgram:
    """A compiled program with random arguments."""

    run: Callable[[], object]  # one call, until its result is there
    flops: int  # of its matrix products
    temporary_bytes: int  # what it holds at most besides its arguments and its result
    output_bytes: int  # its result
    sequential_operations: int  # its longest chain of dependent instructions


def prepare(function: Callable[..., jax.Array], shapes: Sequence[tuple[int, ...]]) -> TimedProgram:
    """Compiles a function for normal arguments of variance 1 / (last dimension).

    Raises:
      RunError: the device's compiler exposes neither the program nor its memory.
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
    """Returns the length of the longest chain of dependent instructions.

    Each instruction counts one, whatever its arrays' sizes. Fusions and calls count as the
    instructions that they hold, a conditional as its longest branch, and a while loop as its body
    times its trip count. Instructions that only name, group, repeat or move values count nothing:
    their number is the compiler's choice.

    Raises:
      ValueError: there is no entry computation, or a loop's trip count is unknown.
    """
    module = hlo.read(text)

    def longest(computation: str, starts: Sequence[int]) -> int:
        """Returns the longest chain of a computation whose arguments end chains of `starts`."""
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
    """Returns a function that times calls of a program, which two calls have warmed.

    A sample is in seconds a call; a call lasts until its result is there.
    """
    program()
    calls = max(1, math.ceil(SECONDS_A_SAMPLE / timeit.timeit(program, number=1)))
    return lambda: timeit.timeit(program, number=calls) / calls


def interleave(
    samplers: Sequence[Callable[[], float]], repeats: int, on_round: Callable[[int], None]
) -> list[list[float]]:
    """Returns the samples of each sampler, taken in turns: one sample of each a round.

    A temporary slowdown of the machine so affects all alike. `on_round` is called with the number
    of rounds done.
    """
    rounds = []
    for done in range(1, repeats + 1):
        rounds.append([sample() for sample in samplers])
        on_round(done)
    return list(map(list, zip(*rounds, strict=True)))


def describe_machine() -> str:
    """Returns device, JAX version and date, which are kept with each measurement."""
    device = jax.devices()[0]
    kind = device.device_kind
    if device.platform == "cpu":
        fast = ", ".join(sorted(BFLOAT16 & processor_flags())) or "no bfloat16 in hardware"
        kind = f"{os.cpu_count()} CPU cores ({fast})"
    return f"{kind}, JAX {jax.__version__}, {datetime.date.today()}"


def processor_flags() -> set[str]:
    """Returns the words of Linux's /proc/cpuinfo, CPU flags among them; empty elsewhere."""
    about = pathlib.Path("/proc/cpuinfo")
    return set(about.read_text(encoding="utf-8").split()) if about.exists() else set()


def peak_resident_bytes() -> int:
    """Returns the most memory that this process has had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts bytes
    return peak if sys.platform == "darwin" else 1024 * peak


def peak_device_bytes() -> int | None:
    """Returns the most memory that arrays have taken on the accelerator so far; None on a CPU."""
    stats = jax.devices()[0].memory_stats()
    return stats["peak_bytes_in_use"] if stats else None
