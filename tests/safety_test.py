"""Nothing that is read can run code, and no name leads out of a workdir.

What is shown stays text: `tests/escaping_test.py`.
"""

import ast
import json
import pathlib
import pickle
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from experiments import table3
from experiments.sweep import results
from tests import refusals
from transformer_jax import errors

ROOT = pathlib.Path(__file__).parents[1]
SOURCES = sorted(
    path for folder in ("transformer_jax", "experiments", "launch") for path in
    (ROOT / folder).rglob("*.py")
)  # fmt: skip

DANGEROUS_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "pty"}
DANGEROUS_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.load",
                   "torch.load", "runpy.run_path", "runpy.run_module", "subprocess.getoutput",
                   "subprocess.getstatusoutput"}  # fmt: skip
# Modules by name: PyTorch's, CTranslate2's and wandb, which are not always there, in literal names;
# and the contenders of the benchmark, whose names stand in its own table.
IMPORTERS = {
    "experiments/benchmarks/ctranslate2_peer.py",
    "experiments/benchmarks/torch_peer.py",
    "experiments/benchmarks/worker.py",
    "experiments/sweep/table.py",
    "transformer_jax/training/tracking.py",
}
# The file that the user names with --sweep, which no report and no resumed run reads.
RUNNERS = {("experiments/sweep/rows.py", "runpy.run_path")}


def dotted(node):
    """The name that is called: os.path.join, or "" for what has none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def dangers(source, name):
    """What of a module could run what it reads, one line each."""
    tree, whole = ast.parse(source), {}  # whole: names' own, as os.system of `system`
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            whole |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for imported in names:
                if imported.split(".")[0] in DANGEROUS_MODULES:
                    yield f"line {node.lineno}: imports {imported}"
        if isinstance(node, ast.Call):
            first, *rest = dotted(node.func).split(".")
            called = ".".join([whole.get(first, first), *rest])
            keywords = {k.arg: k.value for k in node.keywords}
            if called in DANGEROUS_CALLS and (name, called) not in RUNNERS:
                yield f"line {node.lineno}: calls {called}"
            if called == "importlib.import_module" and name not in IMPORTERS:
                yield f"line {node.lineno}: imports a module by name"
            for keyword in ("shell", "allow_pickle"):
                value = keywords.get(keyword)
                is_off = isinstance(value, ast.Constant) and not value.value
                if value is not None and not is_off:
                    yield f"line {node.lineno}: {keyword}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_can_run_what_it_reads(path):
    name = str(path.relative_to(ROOT))
    assert list(dangers(path.read_text(encoding="utf-8"), name)) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import numpy as np; np.load(path, allow_pickle=True)",
        "eval(text)",
        "exec(text)",
        "import yaml; yaml.load(text)",
        "import subprocess; subprocess.run(text, shell=True)",
        "import os; os.system(text)",
        "import importlib; importlib.import_module(name)",
        "from os import system; system(text)",
        "from runpy import run_path as run; run(path)",
        "from importlib import import_module; import_module(name)",
        "import subprocess; subprocess.getoutput(text)",
    ],
)
def test_the_reading_of_modules_finds_each_danger(line):
    assert list(dangers(line, "a.py"))


class Bomb:
    """Unpickled, it leaves a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path(self.marker),))


def plant(folder, marker):
    """Puts into every folder below one what would leave a file if anything ran or unpickled it.

    Not into checkpoints: one with a file too many is set aside.
    """
    code = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\ndef get_config(): pass\n"
    array = np.empty(1, object)
    array[0] = Bomb(str(marker))
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for place in folders:
        if any(parent.name == "checkpoints" for parent in place.relative_to(folder).parents):
            continue
        for name in ("config.py", "sitecustomize.py", "usercustomize.py", "conftest.py",
                     "__init__.py", "base.py", "json.py", "table3.py", "evil.pth"):  # fmt: skip
            (place / name).write_text(code)
        for name in ("config.pkl", "cache.pickle", "state.pkl", "checkpoint.pkl", "tokenizer.pkl"):
            if not (place / name).exists():
                (place / name).write_bytes(pickle.dumps(Bomb(str(marker))))
        np.savez(place / "tokens.npz", array)
        np.save(place / "source-ids.npy", array)


def test_what_is_planted_goes_off_where_it_is_run(tmp_path):
    plant(tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    pickle.loads((tmp_path / "config.pkl").read_bytes())
    assert (tmp_path / "run").exists()


# Python tells of what it opens, unpickles and runs: code that lies in the folder ends the command.
WATCHED = textwrap.dedent("""
    import runpy, sys
    folder, module, *arguments = sys.argv[1:]

    def watch(event, details):
        if event == "pickle.find_class" and details[0] != "numpy":
            raise SystemExit(f"unpickles {details}")
        if event == "open" and str(details[0]).startswith(folder):
            if str(details[0]).endswith((".py", ".pyc", ".pth", ".pkl", ".pickle", ".npz", ".npy")):
                raise SystemExit(f"opens {details[0]}")
        if event == "exec" and str(details[0].co_filename).startswith(folder):
            raise SystemExit(f"runs {details[0].co_filename}")

    sys.addaudithook(watch)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
""")


def watched(server, folder, *arguments):
    return subprocess.run(
        [sys.executable, "-c", WATCHED, str(folder), *arguments],
        input="A dog sleeps.\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=server.environment,
    )


@pytest.mark.parametrize("name", ["config.pkl", "config.py"])
def test_the_watch_sees_what_is_opened(server, tmp_path, name):
    plant(tmp_path, tmp_path / "it ran")
    reader = "pickle" if name.endswith("pkl") else "tokenize"
    done = watched(server, tmp_path, reader, str(tmp_path / name))
    assert done.returncode == 1
    assert f"opens {tmp_path / name}" in done.stderr
    assert not (tmp_path / "it ran").exists()


def test_a_checkpoint_with_something_planted_is_refused_and_nothing_is_run(
    server, trained, tmp_path
):
    run, marker = tmp_path / "run", tmp_path / "it ran"
    shutil.copytree(trained, run)
    (newest,) = (path.parent for path in (run / "checkpoints").glob("*/manifest.json"))
    plant(newest / "state", marker)
    done = server.run("transformer_jax.translate", f"--workdir={run}", stdin=b"A dog sleeps.\n")
    assert done.code == 2
    assert "was not there when it was written" in done.stderr
    assert not marker.exists()


@pytest.mark.parametrize("command", ["resume", "translate", "report"])
def test_nothing_in_a_run_or_sweep_is_run(server, trained, commands_cache, tmp_path, command):
    folder, marker = tmp_path / "sweep", tmp_path / "it ran"
    run = folder / "base" / "seed0"
    shutil.copytree(trained, run)
    cache = shutil.copytree(commands_cache, folder / "cache")
    config = json.loads((run / "config.json").read_bytes())
    record = {"table": "table3", "base": config, "rows": {"base": {}}, "tune": {}}
    (folder / "sweep.json").write_text(json.dumps(record))
    if command == "resume":
        (run / "result.json").unlink()
    plant(folder, marker)
    train = [*refusals.TOY, f"--workdir={run}", f"--cache_dir={cache}"]
    arguments = {
        "resume": ["transformer_jax.train", *train],
        "translate": ["transformer_jax.translate", f"--workdir={run}"],
        "report": ["experiments.report", f"--workdir={folder}"],
    }[command]
    done = watched(server, folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert not marker.exists()
    expected = {"resume": run / "result.json", "report": folder / "table3.md"}
    assert command == "translate" or expected[command].exists()


NAMES_THAT_LEAD_OUT = [
    "../x",
    "../../x",
    "a/../../x",
    "/abs",
    "/",
    ".",
    "..",
    "",
    " ",
    "=",
    "a\0b",
    "a\nb",
    "a\x1b[2Jb",
    "a/b",
    "a\\b",
    "-rf",
    ".hidden",
    "~",
    "x" * 201,
    "ü" * 101,
    "a\u2028b",
    "\udcff",
]


@pytest.mark.parametrize("row", NAMES_THAT_LEAD_OUT)
def test_no_row_leads_out_of_the_workdir(trained, tmp_path, row):
    with pytest.raises(errors.UserError, match="a row cannot be called"):
        results.cell_folder(tmp_path, row, 0)
    record = {
        "table": "table3",
        "base": json.loads((trained / "config.json").read_bytes()),
        "rows": {"base": {}, row: {}},
        "tune": {},
    }
    (tmp_path / "sweep.json").write_text(json.dumps(record))
    with pytest.raises(errors.UserError, match=r"sweep\.json is damaged \(a row cannot be called"):
        results.read(tmp_path)


@pytest.mark.parametrize("table", ["../x", "/tmp/x", "", ".", "a/b", "a\0b", "a b", "table3\n"])
def test_no_table_leads_out_of_the_workdir(trained, tmp_path, table):
    base = json.loads((trained / "config.json").read_bytes())
    record = {"table": table, "base": base, "rows": {"base": {}}, "tune": {}}
    (tmp_path / "sweep.json").write_text(json.dumps(record))
    with pytest.raises(errors.UserError, match="no table is called"):
        results.read(tmp_path)


@pytest.mark.parametrize("row", [*table3.ROWS, "D P_drop=0.0", "K rotary", "Ä ö", "a.b", "b, c"])
def test_a_rows_folder_lies_in_the_workdir(tmp_path, row):
    folder = results.cell_folder(tmp_path, row, 0)
    assert folder.resolve().parents[1] == tmp_path.resolve()


def test_rows_of_one_folder_are_refused():
    results.require_folders(["A h=1", "A h=2"])
    with pytest.raises(errors.UserError, match="'A h=1' and 'A-h 1' would share the folder"):
        results.require_folders(["base", "A h=1", "A-h 1"])
    for one, other in (("a", "A"), ("\u00e9", "e\u0301")):  # which some disks take for the same
        with pytest.raises(errors.UserError, match="would share the folder"):
            results.require_folders([one, other])


@pytest.mark.parametrize("row", ["sweep.json", "cache", "Report.html", "table3.md", "slurm"])
def test_no_row_takes_the_place_of_a_sweeps_own_files(row):
    with pytest.raises(errors.UserError, match=r"the sweep's own .* lies there; rename it"):
        results.require_folders(["base", row])
