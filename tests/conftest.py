"""Setup of all tests: eight virtual CPU devices, checked shapes, and one tiny configuration."""

import functools
import gc
import os
import pathlib
from collections.abc import Callable, Iterator

import jax
import jaxtyping
import pytest

from tests import compiling

os.environ.update(compiling.QUICKLY)  # also for the processes that tests start
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_disable_most_optimizations", True)  # JAX has read its variables
# Every annotated shape and type is checked at run time, under the tests only.
jaxtyping.install_import_hook("transformer_jax", "beartype.beartype")

from configs import toy as toy_config  # noqa: E402  (the package must be imported under the hook)
from tests import fake_bucket, refusals, tiny, warm_commands  # noqa: E402
from transformer_jax import config as config_lib  # noqa: E402
from transformer_jax.data import toy  # noqa: E402

MakeConfig = Callable[..., config_lib.Config]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves files that run whole commands first, so that no worker ends with a long one."""
    long = {item.path for item in items if "server" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    """Exempts imported objects from garbage collection, which took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


@pytest.fixture
def make_config() -> MakeConfig:
    """A function from overrides, by dotted name, to a tiny configuration."""

    def make(overrides: dict[str, object] | None = None) -> config_lib.Config:
        config = toy_config.get_config()
        config.update_from_flattened_dict({**tiny.OVERRIDES, **(overrides or {})})
        return config_lib.from_mapping(config.to_dict())

    return make


@pytest.fixture(scope="session", autouse=True)
def compile_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Shares compiled programs among all tests and workers."""
    folder = tmp_path_factory.getbasetemp().parent / "compiled"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(scope="session", autouse=True)
def draw_once() -> Iterator[None]:
    """Caches the toy's sentences, drawn without type checks, with which drawing takes 2 seconds."""
    draw = toy.sentences

    @functools.cache
    @functools.wraps(draw)
    def drawn(*arguments: int) -> tuple[list[toy.Sentence], list[toy.Sentence]]:
        before = jaxtyping.config.jaxtyping_disable
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            return draw(*arguments)
        finally:
            jaxtyping.config.update("jaxtyping_disable", before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy, "sentences", drawn)
        yield


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """One cache for all tests."""
    return _shared(tmp_path_factory, "cache")


def _shared(tmp_path_factory: pytest.TempPathFactory, name: str) -> pathlib.Path:
    """Returns a folder that all workers of this session share."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[warm_commands.Server]:
    """Runs commands without the seconds that each takes to start."""
    compiled = tmp_path_factory.getbasetemp().parent / "compiled_by_commands"
    with warm_commands.Server(compiled) as server:
        yield server


@pytest.fixture(scope="session")
def commands_cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The cache of commands that the server runs."""
    return _shared(tmp_path_factory, "commands_cache")


@pytest.fixture(scope="session")
def train(
    server: warm_commands.Server,
    commands_cache: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., pathlib.Path]:
    """A function from more flags to the folder of a finished run."""

    def train(*flags: str) -> pathlib.Path:
        workdir = tmp_path_factory.mktemp("trained")
        folders = (f"--workdir={workdir}", f"--cache_dir={commands_cache}")
        done = server.run("transformer_jax.train", *refusals.TOY, *folders, *flags)
        assert done.code == 0, done.stderr
        return workdir

    return train


@pytest.fixture(scope="session")
def trained(train: Callable[..., pathlib.Path]) -> pathlib.Path:
    """The folder of a finished run, to be copied and not changed."""
    return train()


@pytest.fixture(scope="module")
def bucket() -> Iterator[fake_bucket.Server]:
    """A bucket that stands in for a cloud's."""
    with fake_bucket.Server() as bucket:
        yield bucket
