"""Checks that each listed fault fails some test: python -m tests.mutants [--only=PATTERN].

Each fault is put into a copy of the tracked files, and the tests named beside it run there. A fault
counts as noticed if a test ran and failed; one that cannot even be imported shows nothing.
"""

import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from tests.mutants import faults, model_faults

ROOT = pathlib.Path(__file__).parents[2]
AT_ONCE = 2
FAULTS = {**faults.FAULTS, **model_faults.FAULTS}

# The project is installed as editable: the copy must be what is imported.
_RUN = """
import importlib.util, pathlib, sys
import pytest
found = importlib.util.find_spec("transformer_jax").origin
assert pathlib.Path(found).is_relative_to(pathlib.Path.cwd()), f"{found} is not the copy"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def copy_tracked(folder: pathlib.Path) -> None:
    """Copies what git tracks, as it is now."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in names.stdout.decode().split("\0")[:-1]:
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def run_tests(folder: pathlib.Path, *arguments: str) -> tuple[int, str]:
    """Pytest's exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments],
        cwd=folder.resolve(),
        env={**os.environ, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def is_noticed(file: str, fault: faults.Fault) -> bool:
    """Runs the fault's tests in a copy that has it, and says in one line how that went."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = pathlib.Path(name)
        copy_tracked(folder)
        text = (folder / file).read_text(encoding="utf-8")
        assert text.count(fault.old) == 1, f"{fault.name}: {fault.old!r} is not once in {file}"
        (folder / file).write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        code, output = run_tests(folder, "-x", "-n", "0", fault.tests)
    failed = re.search(r"^FAILED \S+?::(\w+).*?(?: - (.*))?$", output, re.MULTILINE)
    how = " - ".join(filter(None, failed.groups())) if code == 1 and failed else ""
    print(
        f"{'noticed' if how else 'SURVIVES':8}  {time.monotonic() - start:4.0f} s  {fault.name}: "
        f"{how or f'pytest exited with {code}'}",
        flush=True,
    )
    if not how and code != 0:
        print(output, flush=True)
    return bool(how)


def main() -> None:
    """Exits with 1 if a fault survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="*", help="faults whose names match this shell pattern")
    pattern = parser.parse_args().only
    chosen = [
        (file, fault)
        for file, listed in FAULTS.items()
        for fault in listed
        if fnmatch.fnmatch(fault.name, pattern)
    ]
    if not chosen:
        parser.error(f"no fault is called {pattern}")
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy_tracked(pathlib.Path(name))
        tests = sorted({fault.tests for _, fault in chosen})
        code, output = run_tests(pathlib.Path(name), "-n", str(AT_ONCE), *tests)
    if code != 0:
        sys.exit(f"{output}\nthese tests fail without any fault")
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        noticed = list(pool.map(lambda pair: is_noticed(*pair), chosen))
    print(f"{sum(noticed)} of {len(chosen)} faults noticed")
    sys.exit(not all(noticed))


if __name__ == "__main__":
    main()
