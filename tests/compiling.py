"""Compiler options of tests: half the compile time, for slower and differently rounded programs."""

import os

# XLA's newer way to compile fused loops for a CPU takes most of the time, and its compiling of one
# program in several parts at once takes more time in all.
_FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
QUICKLY = {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}".strip(),
}


def as_for_users() -> dict[str, str]:
    """The environment of a process that compiles as a user's does."""
    found = {name: value for name, value in os.environ.items() if name not in QUICKLY}
    flags = os.environ.get("XLA_FLAGS", "").replace(_FLAGS, "").strip()
    return {**found, "XLA_FLAGS": flags} if flags else found
