"""Which tests run the statement that a mutant changes, and in which order they are best run."""

import ast
import itertools
from collections.abc import Mapping
from typing import TypedDict


class Test(TypedDict):
    """What `covered` writes down of a test; `lines` are those of each file."""

    seconds: float
    elsewhere: bool
    lines: dict[str, list[int]]


def changed_lines(source: str, mutant: str) -> range:
    """The lines of the statement that differs, without its body.

    None for a statement that runs at the import, and so for every test.
    """
    pairs = itertools.zip_longest(source.splitlines(), mutant.splitlines())
    line = next(number for number, (one, other) in enumerate(pairs, 1) if one != other)
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    around = {
        (statement.lineno, statement.end_lineno or 0): statement
        for function in functions
        for statement in ast.walk(function)
        if isinstance(statement, ast.stmt) and statement is not function
        if statement.lineno <= line <= (statement.end_lineno or 0)
    }
    if not around:
        return range(0)
    start, end = max(around)  # the innermost begins last
    body = getattr(around[start, end], "body", None)
    head = body[0].lineno if body else end + 1
    return range(start, head) if line < head else range(line, line + 1)


def choose(tests: Mapping[str, Test], module: str, lines: range) -> dict[str, float]:
    """The tests to run, in order, each with the seconds that it may take.

    Args:
      tests: all that are near the module, by name.
      module: the one that is changed.
      lines: of it, those that are; none if every test runs them.
    """
    runs = {
        name
        for name, test in tests.items()
        if not lines or not set(lines).isdisjoint(test["lines"].get(module, ()))
    }
    chosen = {name: tests[name] for name in runs}
    chosen |= {name: test for name, test in tests.items() if test["elsewhere"]}
    of_file: dict[str, float] = {}
    for name, test in chosen.items():
        file = name.partition("::")[0]
        of_file[file] = of_file.get(file, 0) + test["seconds"]

    def place(name: str) -> tuple[bool, float, str, float]:
        file = name.partition("::")[0]
        return name not in runs, of_file[file], file, chosen[name]["seconds"]

    return {name: 10 + 3 * chosen[name]["seconds"] for name in sorted(chosen, key=place)}
