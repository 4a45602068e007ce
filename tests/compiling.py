"""Compiler options of tests: half the compile time, for slower and differently rounded programs."""

import os

# XLA's newer way to compile fused loops for a CPU takes most of the time.
_FLAG = "--xla_cpu_use_fusion_emitters=false"
QUICKLY = {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}".strip(),
}


def as_for_users() -> dict[str, str]:
    """The environment of a process that compiles as a user's does."""
    found = {name: value for name, value in os.environ.items() if name not in QUICKLY}
    flags = os.environ.get("XLA_FLAGS", "").replace(_FLAG, "").strip()
    return {**found, "XLA_FLAGS": flags} if flags else found
