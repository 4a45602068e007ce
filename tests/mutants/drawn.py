"""Draws mutants of the library and counts how many of them some test kills.

  python -m tests.mutants.drawn --sample=200 --seed=0 [--only='*/training/*']

cosmic-ray names every mutant of the modules in COVER; of all of them a sample is drawn, and each is
put into a copy, where the tests of its module run. Called again, it goes on. Mutants of annotations
are left out: almost all of them die at the import, which shows nothing.
"""

import argparse
import ast
import concurrent.futures
import fnmatch
import json
import pathlib
import queue
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from tests.mutants import __main__ as listed

COSMIC_RAY = listed.ROOT / ".venv-cosmic-ray" / "bin" / "cosmic-ray"
SECONDS = 900  # after which tests count as having noticed
ENOUGH = 0.85

_MODELS, _TRAINING = "transformer_jax/models/", "transformer_jax/training/"
_DECODING, _EVALUATION = "transformer_jax/decoding/", "transformer_jax/evaluation/"
_WHOLE = ("reference", "transformer")
# Each module's tests, those that are quick and near it first.
COVER: Mapping[str, Sequence[str]] = {
    _MODELS + "__init__.py": ("config", "recurrent", *_WHOLE),
    _MODELS + "attention.py": ("attention", *_WHOLE),
    _MODELS + "convolutional.py": ("recurrent", "transformer"),
    _MODELS + "dropout.py": _WHOLE,
    _MODELS + "embedding.py": _WHOLE,
    _MODELS + "kernels.py": ("attention",),
    _MODELS + "layers.py": _WHOLE,
    _MODELS + "masks.py": ("attention", *_WHOLE),
    _MODELS + "positions.py": ("positions", *_WHOLE),
    _MODELS + "products.py": ("products", *_WHOLE),
    _MODELS + "recurrent.py": ("recurrent", "transformer"),
    _MODELS + "recurrent_cells.py": ("recurrent", "transformer"),
    _MODELS + "transformer.py": _WHOLE,
    _TRAINING + "checkpoint.py": ("checkpoint", "averaging", "bucket", "runs"),
    _TRAINING + "fitting.py": ("memory",),
    _TRAINING + "loop.py": ("runs", "step", "sharding"),
    _TRAINING + "losses.py": ("losses", "step"),
    _TRAINING + "manifest.py": ("checkpoint", "bucket", "safety"),
    _TRAINING + "metrics.py": ("runs", "damaged_files"),
    _TRAINING + "step.py": ("step", "optimizer", "memory", "sharding"),
    _TRAINING + "tensorboard.py": ("tracking", "runs"),
    _TRAINING + "tracking.py": ("tracking",),
    _DECODING + "beam_search.py": ("beam_search",),
    _DECODING + "translator.py": ("translator", "odd_text", "runs"),
    _EVALUATION + "attention_weights.py": ("attention_maps",),
    _EVALUATION + "bleu.py": ("evaluation", "paper_bleu", "significance", "fuzz"),
    _EVALUATION + "evaluators.py": ("evaluation", "averaging", "runs"),
    "experiments/analysis/significance.py": ("significance",),
}

_CONFIG = """[cosmic-ray]
module-path = {module}
timeout = {seconds}
excluded-modules = []
test-command = {command}
[cosmic-ray.distributor]
name = "local"
"""


def main() -> int:
    """Returns 1 if fewer than ENOUGH of the drawn mutants are killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.drawn", description=__doc__)
    parser.add_argument("--sample", type=int, default=200, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--folder", default="runs/mutants", help="where it is kept how far it got")
    parser.add_argument("--only", default="*", help="modules that match this shell pattern")
    arguments = parser.parse_args()
    modules = fnmatch.filter(COVER, arguments.only)
    if not modules:
        parser.error(f"no module is called {arguments.only}")
    name = f"{arguments.sample} {arguments.seed} {arguments.only}"
    folder = pathlib.Path(arguments.folder, re.sub(r"\W+", "-", name)).absolute()
    if not (folder / "drawn").exists():
        draw(folder, modules, arguments.sample, arguments.seed)
    trees: queue.SimpleQueue[pathlib.Path] = queue.SimpleQueue()
    for place in range(listed.AT_ONCE):
        tree = folder / f"tree{place}"
        shutil.copytree(folder / "whole", tree, dirs_exist_ok=True)  # a kill may have left a mutant
        trees.put(tree)
    drawn = [module for module in modules if session_of(folder, module).exists()]
    with concurrent.futures.ThreadPoolExecutor(listed.AT_ONCE) as pool:
        for done in [pool.submit(try_all, folder, module, trees) for module in drawn]:
            done.result()
    return report(folder, drawn)


def tests_of(module: str) -> list[str]:
    """The files of a module's tests."""
    return [f"tests/{name}_test.py" for name in COVER[module]]


def session_of(folder: pathlib.Path, module: str) -> pathlib.Path:
    """Where cosmic-ray keeps a module's mutants and what became of them."""
    return folder / f"{module.removesuffix('.py').replace('/', '.')}.sqlite"


def draw(folder: pathlib.Path, modules: Sequence[str], sample: int, seed: int) -> None:
    """Lists all mutants, and leaves those that are drawn."""
    shutil.rmtree(folder, ignore_errors=True)
    whole = folder / "whole"
    whole.mkdir(parents=True)
    listed.copy_tracked(whole)
    found: list[tuple[str, str]] = []
    for module in modules:
        files = tests_of(module)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
        config = session_of(folder, module).with_suffix(".toml")
        text = _CONFIG.format(
            module=json.dumps(module),
            seconds=SECONDS,
            command=json.dumps(" ".join(command + files)),
        )
        config.write_text(text, encoding="utf-8")
        cosmic_ray(whole, "init", config, session_of(folder, module))
        found += [(module, job) for job in mutants(session_of(folder, module), whole / module)]
    chosen = set(random.Random(seed).sample(found, min(sample, len(found))))
    for module in modules:
        jobs = [job for name, job in chosen if name == module]
        keep(session_of(folder, module), jobs)
    files = sorted({file for module, _ in chosen for file in tests_of(module)})
    code, output = listed.run_tests(whole, "-n", str(listed.AT_ONCE), *files)
    if code:
        sys.exit(f"{output}\nthese tests fail without any mutant")
    print(f"{len(chosen)} of {len(found)} mutants drawn", flush=True)
    (folder / "drawn").touch()


def mutants(session: pathlib.Path, source: pathlib.Path) -> list[str]:
    """The mutants that are not in annotations, in one order whoever lists them."""
    spans = list(annotations(ast.parse(source.read_text(encoding="utf-8"))))
    with sqlite3.connect(session) as database:
        rows = database.execute(
            "SELECT start_pos_row, start_pos_col, job_id FROM mutation_specs"
            " ORDER BY operator_name, operator_args, occurrence"
        ).fetchall()
    return [job for row, column, job in rows if not any(a <= (row, column) < b for a, b in spans)]


def annotations(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where each annotation begins and ends, as line and column."""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            found = getattr(node, name, None)
            if isinstance(found, ast.expr):
                end = (found.end_lineno or 0, found.end_col_offset or 0)
                yield (found.lineno, found.col_offset), end


def keep(session: pathlib.Path, jobs: Sequence[str]) -> None:
    """Leaves these mutants in a session, and no session without any."""
    if not jobs:
        session.unlink()
        return
    marks = ",".join("?" * len(jobs))
    with sqlite3.connect(session) as database:
        for table in ("mutation_specs", "work_items"):
            database.execute(f"DELETE FROM {table} WHERE job_id NOT IN ({marks})", jobs)


def try_all(folder: pathlib.Path, module: str, trees: queue.SimpleQueue[pathlib.Path]) -> None:
    """Runs what is left to run of a module's mutants, in a tree that no other uses."""
    tree, session = trees.get(), session_of(folder, module)
    try:
        total, left = counts(session)
        if left:
            cosmic_ray(tree, "exec", session.with_suffix(".toml"), session)
        print(f"{module}: {total} mutants tried", flush=True)
    finally:
        trees.put(tree)


def counts(session: pathlib.Path) -> tuple[int, int]:
    """How many mutants there are, and how many of them have not been tried."""
    with sqlite3.connect(session) as database:
        (total,) = database.execute("SELECT COUNT(*) FROM work_items").fetchone()
        (tried,) = database.execute("SELECT COUNT(*) FROM work_results").fetchone()
    return total, total - tried


def cosmic_ray(tree: pathlib.Path, *arguments: object) -> None:
    """Runs cosmic-ray in a copy."""
    subprocess.run([COSMIC_RAY, *map(str, arguments)], cwd=tree, check=True)


def report(folder: pathlib.Path, modules: Sequence[str]) -> int:
    """Prints each survivor's change and the share that was killed; returns the exit code."""
    total = survived = 0
    for module in modules:
        with sqlite3.connect(session_of(folder, module)) as database:
            rows = database.execute(
                "SELECT definition_name, operator_name, test_outcome, diff FROM mutation_specs"
                " JOIN work_results USING (job_id)"
            ).fetchall()
        for definition, operator, outcome, diff in rows:
            total += 1
            if outcome != "KILLED":
                survived += 1
                print(f"\nSURVIVES: {module}, {definition}, {operator}\n{diff}")
    killed = total - survived
    print(f"\n{killed} of {total} mutants killed: {100 * killed / total:.1f}%")
    return int(killed < ENOUGH * total)


if __name__ == "__main__":
    sys.exit(main())
