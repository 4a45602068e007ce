"""One dimension key, in `attention`'s docstring, holds for every annotation and every product."""

import ast
import pathlib
import re

import jaxtyping
import pytest

from transformer_jax.models import attention

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted((ROOT / "transformer_jax").rglob("*.py"))
PRODUCTS = {"einsum", "multiply", "_einsum", "_multiply"}


def key():
    """The names of dimensions and what each means."""
    text = (attention.__doc__ or "").split("One dimension key")[1]
    lines = [line.strip() for line in text.split("\n\n")[1].splitlines()]
    entries = [entry.split(" ", 1) for line in lines for entry in re.split(r"\s{2,}", line)]
    assert len(dict(entries)) == len(entries), "a name has two meanings"
    return dict(entries)


def annotated(path):
    """The shapes of a file's annotations."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            kind = getattr(jaxtyping, node.value.id, None)
            if kind is not None and isinstance(node.slice, ast.Tuple):
                shape = node.slice.elts[1]
                assert isinstance(shape, ast.Constant), path
                yield str(shape.value)


def multiplied(path):
    """The letters of a file's products."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in PRODUCTS and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)


def test_annotations_are_found():
    found = [shape for path in FILES for shape in annotated(path)]
    assert len(found) > 200
    assert {"B T D", "#B #1 #T S", "*B 2*half"} <= set(found)
    assert {spec for path in FILES for spec in multiplied(path)} >= {"BTD,VD->BTV", "BTSU,UH->BHTS"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_shapes_have_the_keys_letters(path):
    known = set(key())
    for shape in annotated(path):
        names = set(re.findall(r"[A-Za-z]\w*", shape))
        assert names <= known, f"{shape}: {names - known}"
    for spec in multiplied(path):
        letters = set(spec) - set(",->")
        assert letters <= known, f"{spec}: {letters - known}"


def test_every_dimension_of_the_key_is_met():
    shapes = [re.findall(r"[A-Za-z]\w*", shape) for path in FILES for shape in annotated(path)]
    letters = {letter for path in FILES for spec in multiplied(path) for letter in spec}
    # G stands in no shape: B K (G T) C is B K N C.
    assert set(key()) - {name for shape in shapes for name in shape} - letters == {"G"}


def test_one_meaning_names_one_dimension():
    meanings = list(key().values())
    assert len(set(meanings)) == len(meanings)
