"""What all tests share: eight virtual CPU devices, checked shapes, and one tiny configuration."""

import pathlib
from collections.abc import Callable

import jax
import jaxtyping
import pytest

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_disable_most_optimizations", True)  # compiling takes most of the time
# Every annotated shape and type is checked at run time, under the tests only.
jaxtyping.install_import_hook("transformer_jax", "beartype.beartype")

from configs import toy  # noqa: E402  (the package must be imported under the hook)
from tests import tiny  # noqa: E402
from transformer_jax import config as config_lib  # noqa: E402

MakeConfig = Callable[..., config_lib.Config]


@pytest.fixture
def make_config() -> MakeConfig:
    """A function from overrides, by dotted name, to a tiny configuration."""

    def make(overrides: dict[str, object] | None = None) -> config_lib.Config:
        config = toy.get_config()
        config.update_from_flattened_dict({**tiny.OVERRIDES, **(overrides or {})})
        return config_lib.from_mapping(config.to_dict())

    return make


@pytest.fixture(scope="session", autouse=True)
def compile_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What one test has compiled, no other compiles again, in any worker."""
    folder = tmp_path_factory.getbasetemp().parent / "compiled"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """One cache for all tests of a worker."""
    return tmp_path_factory.mktemp("cache")
