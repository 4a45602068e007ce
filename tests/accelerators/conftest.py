"""What the tests for all accelerators share; they have their process to themselves."""

import os

import jax
import pytest

from tests import compiling

# Before a compiler is asked for, which reads them once.
_FOUND = compiling.as_for_users()
os.environ.clear()
os.environ.update(_FOUND)


@pytest.fixture(scope="package", autouse=True)
def as_users_compile(compile_once: None) -> None:
    """With all of the compiler's passes, which other tests leave out, and without their cache."""
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_compilation_cache_dir", None)
