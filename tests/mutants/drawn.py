"""Draws mutants of the library and counts how many of them some test kills.

  python -m tests.mutants.drawn --sample=200 --seed=0 [--only='*/training/*'] [--again]

cosmic-ray names every mutant of the modules in `cover`; of all of them a sample is drawn. Each is
put into a copy, where the quick tests of its module run up to the first that fails, in a fork of a
process that has imported JAX: at first those that name the changed definition and, once mutants
have survived a file of tests, of it only those that run the changed statement, as a run of the
whole has shown, the quick ones first. Called again, it goes on where it was; with --again it also
tries the survivors once more, by the tests as they are now. Mutants of annotations are left out:
almost all of them die at the import, which shows nothing.
"""

import argparse
import ast
import collections
import concurrent.futures
import contextlib
import difflib
import fnmatch
import hashlib
import json
import pathlib
import queue
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests import warm_commands
from tests.mutants import __main__ as listed
from tests.mutants import cover, equivalent, statements

COSMIC_RAY = listed.ROOT / ".venv-cosmic-ray" / "bin" / "cosmic-ray"
SECONDS = 3600  # after which tests that wait count as having noticed; `chosen` ends those that run
DIRECT = 2  # mutants that survive all tests of an entry before it is looked at which are to be run
ENOUGH = 0.85
# What tests import of others; of ours nothing, since that is what changes.
IMPORTED = (
    *("beartype", "flax.linen", "grain", "hypothesis", "jaxtyping", "ml_collections", "optax"),
    *("orbax.checkpoint", "pytest", "rich.progress", "sacrebleu", "scipy.stats", "sentencepiece"),
)

_CONFIG = """[cosmic-ray]
module-path = {modules}
timeout = 1
excluded-modules = []
test-command = "true"
[cosmic-ray.distributor]
name = "local"
"""

_CHANGE = """
import json, pathlib, sys
from cosmic_ray import mutating, plugins
texts = []
for module, _, operator, place in json.load(sys.stdin):
    text = pathlib.Path(module).read_text("utf-8")
    texts.append(mutating.mutate_code(text, plugins.get_operator(operator)(), place))
json.dump(texts, sys.stdout)
"""
_COVERING: Mapping[str, threading.Lock] = collections.defaultdict(threading.Lock)
_SURVIVED: collections.Counter[str] = collections.Counter()  # such mutants so far, of each entry


class Mutant(NamedTuple):
    """One change, by cosmic-ray's names."""

    module: str
    definition: str
    operator: str
    occurrence: int


def main() -> int:
    """Returns 1 if fewer than ENOUGH of the drawn mutants are killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.drawn", description=__doc__)
    parser.add_argument("--sample", type=int, default=200, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--folder", default="runs/mutants", help="where it is kept how far it got")
    parser.add_argument("--only", default="*", help="modules that match this shell pattern")
    parser.add_argument("--at_once", type=int, default=listed.AT_ONCE, help="tests at a time")
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    arguments = parser.parse_args()
    modules = fnmatch.filter(cover.COVER, arguments.only)
    if not modules:
        parser.error(f"no module is called {arguments.only}")
    name = f"{arguments.sample} {arguments.seed} {arguments.only}"
    folder = pathlib.Path(arguments.folder, re.sub(r"\W+", "-", name)).absolute()
    if not (folder / "drawn.json").exists():
        draw(folder, modules, arguments.sample, arguments.seed)
    drawn = [Mutant(*each) for each in json.loads((folder / "drawn.json").read_text("utf-8"))]
    for module in {mutant.module for mutant in drawn}:
        if (listed.ROOT / module).read_bytes() != (folder / "whole" / module).read_bytes():
            sys.exit(f"{module} has changed since mutants of it were drawn: remove {folder}")
    listed.copy_tracked(folder / "whole")
    if arguments.again:
        keep(folder, [result for result in results(folder) if result["killed"]])
    done = {tuple(result["mutant"]) for result in results(folder)}
    try_all(folder, [mutant for mutant in drawn if mutant not in done], arguments.at_once)
    require_sound(folder, results(folder))
    return report(results(folder))


def draw(folder: pathlib.Path, modules: Sequence[str], sample: int, seed: int) -> None:
    """Lists all mutants, and writes down those that are drawn."""
    shutil.rmtree(folder, ignore_errors=True)
    whole = folder / "whole"
    whole.mkdir(parents=True)
    listed.copy_tracked(whole)
    found = mutants(whole, modules)
    chosen = sorted(random.Random(seed).sample(found, min(sample, len(found))))
    print(f"{len(chosen)} of {len(found)} mutants drawn", flush=True)
    (folder / "drawn.json").write_text(json.dumps(chosen), encoding="utf-8")


def mutants(tree: pathlib.Path, modules: Sequence[str]) -> list[Mutant]:
    """The mutants of modules that are not in annotations, in one order whoever lists them."""
    config, session = tree.parent / "cosmic-ray.toml", tree.parent / "cosmic-ray.sqlite"
    config.write_text(_CONFIG.format(modules=json.dumps(modules)), encoding="utf-8")
    subprocess.run([COSMIC_RAY, "init", config, session], cwd=tree, check=True)
    with contextlib.closing(sqlite3.connect(session)) as database:
        rows = database.execute(
            "SELECT start_pos_row, start_pos_col, module_path, definition_name, operator_name,"
            " occurrence FROM mutation_specs ORDER BY module_path, operator_name, occurrence"
        ).fetchall()
    session.unlink()
    spans = {
        module: list(annotations(ast.parse((tree / module).read_text(encoding="utf-8"))))
        for module in modules
    }
    return [
        Mutant(module, definition or "", operator, occurrence)
        for row, column, module, definition, operator, occurrence in rows
        if not any(start <= (row, column) < end for start, end in spans[module])
    ]


def annotations(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where each annotation begins and ends, as line and column."""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            found = getattr(node, name, None)
            if isinstance(found, ast.expr):
                end = (found.end_lineno or 0, found.end_col_offset or 0)
                yield (found.lineno, found.col_offset), end


def changed(tree: pathlib.Path, wanted: Sequence[Mutant]) -> list[str]:
    """The text of each mutant's module, by one process for all."""
    done = subprocess.run(
        [COSMIC_RAY.with_name("python"), "-c", _CHANGE],
        cwd=tree,
        input=json.dumps(wanted),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@contextlib.contextmanager
def copy(folder: pathlib.Path, place: int) -> Iterator["Copy"]:
    """A copy of the whole, and a server of commands in it."""
    tree = folder / f"tree{place}"
    shutil.rmtree(tree, ignore_errors=True)  # a kill may have left a mutant
    shutil.copytree(folder / "whole", tree)
    with warm_commands.Server(folder / "compiled", IMPORTED, tree, SECONDS) as server:
        yield Copy(tree, server)


class Copy(NamedTuple):
    """Where one mutant after another is tried."""

    tree: pathlib.Path
    server: warm_commands.Server

    def run_tests(
        self, plugin: str, environment: Mapping[str, str], *arguments: str
    ) -> warm_commands.Done:
        """Runs tests under one of our plugins; what they compile, all copies share."""
        return self.server.run(
            *"pytest -q -n 0 --assert=plain -p no:cacheprovider -m".split(),
            *("not slow", "-p", f"tests.mutants.{plugin}", f"--basetemp={self.tree}.tmp"),
            *arguments,
            environment=environment,
        )

    def covered(self, entry: str) -> dict[str, statements.Test]:
        """What each test of an entry runs; found out once, and again if it changes."""
        kept = self.record_of(entry)
        with _COVERING[entry]:
            if not kept.exists():
                print(f"which statements the tests of {entry} run", flush=True)
                which = cover.file_of(entry), "-k", cover.words_of(entry)
                found = self.tree.with_suffix(".json")
                done = self.run_tests("covered", {"MUTANTS_COVERED": str(found)}, *which)
                assert done.code == 0, done.stdout.decode(errors="replace")
                kept.parent.mkdir(exist_ok=True)
                found.replace(kept)
        return json.loads(kept.read_text("utf-8"))

    def record_of(self, entry: str) -> pathlib.Path:
        """Where it is kept what the tests of an entry run, as they are now."""
        text = (self.tree / cover.file_of(entry)).read_bytes()
        digest = hashlib.sha256(entry.encode() + text).hexdigest()
        return self.tree.parent / "covered" / f"{digest}.json"

    def attempt(self, mutant: Mutant, changed_text: str) -> dict[str, Any]:
        """Whether a test kills the mutant, and by what.

        Of an entry all tests are run at first, up to one that fails: most mutants fall soon, and to
        look at what each test runs takes longer than all of them. It pays once mutants survive.
        """
        path = self.tree / mutant.module
        text = path.read_text(encoding="utf-8")
        lines = statements.changed_lines(text, changed_text)
        known = [entry for entry in cover.COVER[mutant.module] if self.record_of(entry).exists()]
        stages = [known, *([entry] for entry in cover.COVER[mutant.module] if entry not in known)]
        difference = changed_between(text, changed_text)
        by, seconds = "", 0.0
        for stage in [] if equivalent.why(mutant.module, difference) else stages:
            directly = next(filter(self.is_direct, stage), "")  # of several all are known
            tests: dict[str, statements.Test] = {}
            for entry in [] if directly else stage:
                tests |= self.covered(entry)
            chosen, start = statements.choose(tests, mutant.module, lines), time.monotonic()
            path.write_text(changed_text, encoding="utf-8")
            forget_compiled(path)
            try:
                if chosen or directly:
                    by = self.first_failure(chosen, directly, mutant.definition)
            finally:
                path.write_text(text, encoding="utf-8")
                forget_compiled(path)
            seconds += time.monotonic() - start
            if by:
                break
            _SURVIVED[directly] += 1
        return {
            "mutant": mutant,
            "killed": bool(by),
            "by": by,
            "seconds": round(seconds, 1),
            "diff": difference,
        }

    def is_direct(self, entry: str) -> bool:
        """Whether all tests of an entry are run."""
        return not self.record_of(entry).exists() and _SURVIVED[entry] < DIRECT

    def first_failure(
        self, chosen: Mapping[str, float], entry: str = "", definition: str = ""
    ) -> str:
        """Runs tests up to the first that fails, and returns its name.

        Those are the chosen ones (`statements.choose`), or all of an entry of `cover`, first of
        them those that name the definition.
        """
        order = self.tree.with_suffix(".json")
        order.write_text(json.dumps(chosen), encoding="utf-8")
        files = sorted({name.partition("::")[0] for name in chosen})
        if entry:
            files = [cover.file_of(entry), "-k", cover.words_of(entry)]
        told = {"MUTANTS_CHOSEN": str(order), "MUTANTS_DEFINITION": definition}
        done = self.run_tests("chosen", told, "-x", *files)
        output = done.stdout.decode(errors="replace")
        assert done.code != 5, output  # no test ran
        failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.MULTILINE)
        return "" if done.code == 0 else failed.group(1) if failed else f"exit code {done.code}"


def forget_compiled(path: pathlib.Path) -> None:
    """Python knows bytecode by its source's size and second, which two mutants may share."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def changed_between(one: str, other: str) -> list[str]:
    """The lines that differ, each with its sign."""
    lines = difflib.unified_diff(one.splitlines(), other.splitlines(), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def try_all(folder: pathlib.Path, left: Sequence[Mutant], at_once: int) -> None:
    """Tries mutants side by side, and writes down what became of each."""
    with contextlib.ExitStack() as stack:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for place in range(min(at_once, len(left))):
            copies.put(stack.enter_context(copy(folder, place)))

        def attempt(mutant: Mutant, text: str) -> dict[str, Any]:
            mine = copies.get()
            try:
                return mine.attempt(mutant, text)
            finally:
                copies.put(mine)

        texts = changed(folder / "whole", left)
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            waiting = [pool.submit(attempt, *pair) for pair in zip(left, texts, strict=True)]
            for done in concurrent.futures.as_completed(waiting):
                result = done.result()
                keep(folder, [*results(folder), result])
                word = "killed" if result["killed"] else "SURVIVES"
                print(f"{word:8} {result['seconds']:4.0f} s  {result['diff'][-1]}", flush=True)


def require_sound(folder: pathlib.Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Exits if a test that killed a mutant fails without any."""
    killers = sorted({result["by"] for result in found if "::" in result["by"]})
    with copy(folder, 0) as plain:
        if plain.first_failure(dict.fromkeys(killers, SECONDS)):
            sys.exit("these tests kill mutants, but fail without any")


def results(folder: pathlib.Path) -> list[dict[str, Any]]:
    """What became of the mutants that have been tried."""
    path = folder / "results.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def keep(folder: pathlib.Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Writes results down, all or nothing."""
    (folder / "results.new").write_text(json.dumps(found, indent=1), encoding="utf-8")
    (folder / "results.new").replace(folder / "results.json")


def report(found: Sequence[Mapping[str, Any]]) -> int:
    """Prints each survivor's change and the share that was killed; returns the exit code."""
    survivors = [result for result in found if not result["killed"]]
    for result in survivors:
        module, definition, operator, _ = result["mutant"]
        lines = "\n".join(result["diff"])
        why = equivalent.why(module, result["diff"])
        word = f"EQUIVALENT ({why})" if why else "SURVIVES"
        print(f"\n{word}: {module}, {definition}, {operator}\n{lines}")
    killed = len(found) - len(survivors)
    print(f"\n{killed} of {len(found)} mutants killed: {100 * killed / len(found):.1f}%")
    return int(killed < ENOUGH * len(found))


if __name__ == "__main__":
    sys.exit(main())
