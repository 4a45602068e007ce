"""Dimension names in annotations and products, all of which stand in `attention`'s key."""

import ast
import pathlib
import re

import jaxtyping

from transformer_jax.models import attention

PACKAGE = pathlib.Path(__file__).parents[1] / "transformer_jax"
PRODUCTS = {"einsum", "multiply", "_einsum", "_multiply"}


def known_names():
    """Returns the names in the key."""
    text = (attention.__doc__ or "").split("One dimension key")[1].split("\n\n")[1]
    lines = [line.strip() for line in text.splitlines()]
    return {entry.split()[0] for line in lines for entry in re.split(r"\s{2,}", line)}


def shapes(path):
    """Yields the shapes of a file's annotations and the specifications of its products."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            if hasattr(jaxtyping, node.value.id) and isinstance(node.slice, ast.Tuple):
                yield ast.literal_eval(node.slice.elts[1])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in PRODUCTS and isinstance(node.args[0], ast.Constant):
                letters = str(node.args[0].value).replace("->", "")
                yield " ".join(letters)


def test_every_dimension_stands_in_the_key():
    found = {(path.name, shape) for path in PACKAGE.rglob("*.py") for shape in shapes(path)}
    assert len(found) > 50
    for file, shape in found:
        unknown = set(re.findall(r"[A-Za-z]\w*", shape)) - known_names()
        assert not unknown, f"{file}: {shape}"
