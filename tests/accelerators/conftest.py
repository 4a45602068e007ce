"""What the tests for all accelerators share; they have their process to themselves."""

import jax
import pytest


@pytest.fixture(scope="package", autouse=True)
def as_users_compile(compile_once: None) -> None:
    """With all of the compiler's passes, which other tests leave out, and without their cache."""
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_compilation_cache_dir", None)
