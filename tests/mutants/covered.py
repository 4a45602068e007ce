"""A plugin of pytest that writes down which lines of the library each test runs, and how long.

  MUTANTS_COVERED=FILE pytest -p tests.mutants.covered …

What a fixture of several tests runs counts for each test that asks for it, and nothing is kept that
a test before has traced or cached. What is run in another process is not seen: a test that starts
one, or asks a server of commands, is written down as such.
"""

import collections
import json
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest

from tests.mutants import cover

_ROOT = pathlib.Path.cwd()
_WATCHED = frozenset(str(_ROOT / module) for module in cover.COVER)
# Where tests keep what they have traced, besides their own modules; memory_test in the second.
_KEEPING = ("tests.random_parameters", "transformer_jax.training.step")
_STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn")

Lines = dict[str, set[int]]

# What runs now writes here; at first the imports, whose lines are every test's.
_now: Lines = collections.defaultdict(set)
_of_fixtures: dict[str, Lines] = {}
_tests: dict[str, dict[str, Any]] = {}
_started = False


def _on_call(frame: Any, _event: str, _argument: object) -> Callable[..., Any] | None:
    return _on_line if frame.f_code.co_filename in _WATCHED else None


def _on_line(frame: Any, event: str, _argument: object) -> Callable[..., Any]:
    if event == "line":
        _now[frame.f_code.co_filename].add(frame.f_lineno)
    return _on_line


def _on_audit(event: str, _arguments: object) -> None:
    global _started
    _started |= event in _STARTS


def pytest_configure() -> None:
    """Begins to watch."""
    sys.addaudithook(_on_audit)
    threading.settrace(_on_call)
    sys.settrace(_on_call)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    """Keeps what a fixture of several tests runs apart from what its first test runs."""
    global _now
    if fixturedef.scope == "function":
        return (yield)
    before, _now = _now, _of_fixtures.setdefault(fixturedef.argname, collections.defaultdict(set))
    try:
        return (yield)
    finally:
        _now = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    """Watches one test, its fixtures included."""
    global _now, _started
    jax.clear_caches()
    for module in (item.module, *(sys.modules.get(name) for name in _KEEPING)):
        for value in vars(module).values() if module else ():
            if callable(forget := getattr(value, "cache_clear", None)):
                forget()
    before, _now, _started = _now, collections.defaultdict(set), False
    start = time.process_time()
    try:
        return (yield)
    finally:
        _tests[item.nodeid] = {
            "seconds": round(time.process_time() - start, 2),
            "fixtures": item.fixturenames,
            "elsewhere": _started or "server" in item.fixturenames,
            "lines": _now,
        }
        _now = before


def pytest_sessionfinish() -> None:
    """Writes everything down."""
    sys.settrace(None)
    for test in _tests.values():
        for name in test.pop("fixtures"):
            for file, lines in _of_fixtures.get(name, {}).items():
                test["lines"][file] |= lines
        test["lines"] = {
            pathlib.Path(file).relative_to(_ROOT).as_posix(): sorted(lines)
            for file, lines in test["lines"].items()
        }
    path = pathlib.Path(os.environ["MUTANTS_COVERED"])
    path.write_text(json.dumps(_tests), encoding="utf-8")
