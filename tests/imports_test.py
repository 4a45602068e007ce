"""Imports go downwards only, and to what is public."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# Each room may import those above it in this list, and itself.
ROOMS = [
    "launch",
    "transformer_jax.errors",
    "transformer_jax.fields",
    "transformer_jax.config",
    "configs",
    "transformer_jax.paper",
    "transformer_jax.files",
    "transformer_jax.sequences",
    "transformer_jax.distributed",
    "transformer_jax.data",
    "transformer_jax.models",
    "transformer_jax.training",
    "transformer_jax.decoding",
    "transformer_jax.evaluation",
    "transformer_jax.drawing",
    "transformer_jax.runs",
    "transformer_jax.flags",
    "transformer_jax.prepare",
    "transformer_jax.train",
    "transformer_jax.translate",
    "transformer_jax.generate",
    "transformer_jax.parse",
    "transformer_jax.score",
    "transformer_jax.attention_maps",
    "experiments.results.tables",
    "experiments.sweep",
    "experiments.benchmarks",
    "experiments.results.frames",
    "experiments.results.labels",
    "experiments.results.comparable",
    "experiments.stats",
    "experiments.results",
    "experiments.scheduling",
    "experiments",  # the commands
]
OURS = ("transformer_jax", "configs", "experiments", "launch")


def modules(folder):
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported(path, packages=OURS):
    """Returns the names that a file imports from some packages, by default ours."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] in packages}


def room(module):
    return next(place for place, name in enumerate(ROOMS) if f"{module}.".startswith(f"{name}."))


@pytest.mark.parametrize("folder", OURS)
def test_imports_go_downwards_only(folder):
    for module, path in modules(folder):
        if module == "transformer_jax":
            continue  # the package's face, above all rooms
        for name in imported(path) - {"transformer_jax"}:
            assert room(name) <= room(module), f"{module} imports {name}"
            if folder not in ("experiments", "configs"):
                assert name.split(".")[0] == folder, f"{module} imports {name}"


@pytest.mark.parametrize("folder", OURS)
def test_nothing_private_of_jax_is_needed(folder):
    for module, path in modules(folder):
        for name in imported(path, ("jax", "jaxlib", "flax", "optax", "orbax")):
            assert not any(part.startswith("_") for part in name.split(".")), f"{module}: {name}"
        assert "jax._src" not in path.read_text(encoding="utf-8"), module
