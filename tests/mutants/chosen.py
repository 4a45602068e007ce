"""A plugin of pytest that runs chosen tests, in their order, each with a limit of time.

MUTANTS_CHOSEN names a file with the tests and the limit of each, in seconds of the processor, which
do not depend on what else the machine does: a mutant may turn round for ever. It may also ask for
all memory there is. If the file names no test, all are run, first those in whose text the
definition stands that MUTANTS_DEFINITION names.
"""

import ast
import functools
import json
import os
import pathlib
import re
import resource
import signal
from typing import Any

import pytest

SECONDS = 40  # for a test of which it is not known how long it takes
BYTES = 8 * 2**30  # of addresses

_SECONDS: dict[str, float] = json.loads(pathlib.Path(os.environ["MUTANTS_CHOSEN"]).read_text())
resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Leaves out the others."""
    if not _SECONDS:
        items.sort(key=lambda item: not _names_it(item.path, item.originalname))
        return
    place = {name: number for number, name in enumerate(_SECONDS)}
    items[:] = sorted(
        (item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid]
    )


@functools.cache
def _names_it(path: pathlib.Path, test: str) -> bool:
    text = path.read_text(encoding="utf-8")
    found = next(n for n in ast.walk(ast.parse(text)) if getattr(n, "name", "") == test)
    word = re.escape(os.environ["MUTANTS_DEFINITION"])
    return re.search(rf"\b{word}\b", ast.get_source_segment(text, found) or "") is not None


def pytest_runtest_setup(item: Any) -> None:
    """Begins to count anew; at the end a signal comes that nobody catches."""
    signal.setitimer(signal.ITIMER_PROF, _SECONDS.get(item.nodeid, SECONDS))
