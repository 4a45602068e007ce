"""Imports go downwards only, and to what is public."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# Each room may import those above it in this list, and itself.
ROOMS = [
    "transformer_jax.config",
    "transformer_jax.processes",
    "transformer_jax.recipe",
    "transformer_jax.files",
    "transformer_jax.sequences",
    "transformer_jax.data",
    "transformer_jax.models",
    "transformer_jax.training",
    "transformer_jax.decoding",
    "transformer_jax.evaluation",
    "transformer_jax.drawing",
    "transformer_jax.runs.run_folder",
    "transformer_jax.runs",
    "transformer_jax.distributed.cpu_memory",
    "transformer_jax.flags",
    "transformer_jax.prepare",
    "transformer_jax.train",
    "transformer_jax.translate",
    "transformer_jax.score",
    "transformer_jax.attention_maps",
]
OURS = ("transformer_jax", "configs", "experiments", "launch")


def modules(folder):
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imported(path, packages=OURS):
    """What a file imports of some packages, by default ours."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] in packages}


def room(module):
    matches = [name for name in ROOMS if module == name or module.startswith(name + ".")]
    assert len(matches) == 1, f"{module} is in no room"
    return ROOMS.index(matches[0])


@pytest.mark.parametrize(("module", "path"), list(modules("transformer_jax")), ids=str)
def test_the_package_imports_downwards_only(module, path):
    if module == "transformer_jax":
        return  # the package's face, above all rooms
    for name in imported(path):
        assert name.startswith("transformer_jax."), f"{module} imports {name}"
        assert room(name) <= room(module), f"{module} imports {name}"


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("launch", ("launch",)),
        ("configs", ("configs",)),
        ("experiments", ("experiments", "launch", "configs", "transformer_jax")),
    ],
)
def test_the_other_folders_import_what_they_may(folder, allowed):
    for module, path in modules(folder):
        for name in imported(path):
            assert name.split(".")[0] in allowed, f"{module} imports {name}"


@pytest.mark.parametrize("folder", OURS)
def test_nothing_private_of_jax_is_needed(folder):
    for module, path in modules(folder):
        for name in imported(path, ("jax", "jaxlib", "flax", "optax", "orbax")):
            assert not any(part.startswith("_") for part in name.split(".")), f"{module}: {name}"
        assert "jax._src" not in path.read_text(encoding="utf-8"), module
