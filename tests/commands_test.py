"""Commands: help, imports, mistakes of single commands, interrupts and closed pipes.

Mistakes in configurations, corpora and command lines that all commands share have their tables in
`tests/bad_input_test.py`.
"""

import os
import re
import subprocess
import sys

import pytest

from tests import pages, refusals
from transformer_jax import config as config_lib
from transformer_jax import fields

TRAIN = ["transformer_jax.train", "--config=configs/toy.py"]
RNN = [*TRAIN, "--config.model.architecture=rnn", "--config.model.position=none"]
BENCHMARK = "experiments.benchmark"
MODULES = sorted(
    f"{package}.{path.stem}"
    for package in ("transformer_jax", "experiments")
    for path in (pages.ROOT / package).glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
)
DOCUMENTED = [
    found
    for path in pages.PAGES
    for found in re.findall(
        r"python -m ((?:experiments|transformer_jax)[\w.]+)((?:\\\n|[^\n`])*)",
        re.sub(
            r"_options=([\"']).*?\1", "_options", path.read_text(encoding="utf-8")
        ),  # an engine's
    )
]


@refusals.table(
    ("no config", ["transformer_jax.train"], r"--config is required: give a file, such as"),
    ("neither yes nor no", [*TRAIN, "--config.model.rematerialise=2"], r"rematerialise"),
    ("a slip", [*TRAIN, "--config.model.attention_pattern=windows"], r"did you mean window\?"),
    (
        "a field that was removed",
        [*TRAIN, "--config.train.scheduled_sampling=0"],
        r"no config field train\.scheduled_sampling",
    ),
    (
        "a field that its architecture does not read",
        [*RNN, "--config.model.num_heads=4"],
        r"=rnn has no use for model\.num_heads=4: leave out ",
    ),
    (
        "a field that its windows do not read",
        [*TRAIN, "--config.model.window=2", "--config.model.global_every=2"],
        r"attention_pattern=window has no use for model\.global_every=2: leave out model\.gl",
    ),
    (
        "a row that sets such a field",
        ["experiments.table3", "--rows=A h=4", *RNN[1:]],
        r"row 'A h=4': model\.architecture=rnn has no use for model\.num_heads=4: leave out model",
    ),
    (
        "a sweep that sets such a field",
        ["experiments.table3", *RNN[1:], "--config.model.d_ff=40"],
        r"model\.architecture=rnn has no use for model\.d_ff=40: leave out model\.d_ff",
    ),
    (
        "a folder that Orbax reads as a pattern",
        [*TRAIN, "--workdir=/tmp/v[2]"],
        r"/tmp/v\[2\] contains '\[', which Orbax and",
    ),
    ("no run to look into", ["transformer_jax.attention_maps", "--source=a"], r"no trained run"),
    ("no such workload", [BENCHMARK, "--workloads=tiny"], r"--workloads='tiny' is unknown"),
    ("nothing to measure", [BENCHMARK, "--workloads="], r"neither --workloads nor --run"),
    ("half a corpus", [BENCHMARK, "--train=a"], r"--train and --dev go together"),
    (
        "no such engine",
        ["experiments.table3", "--config=configs/toy.py", "--launcher=x"],
        r"--launcher='x'",
    ),
)
def test_a_mistake_is_one_line_and_exit_code_2(server, tmp_path, case):
    command, message = case
    workdir = tmp_path / "run"
    refusals.assert_refused(server.run(command[0], f"--workdir={workdir}", *command[1:]), message)
    assert not (workdir / "config.json").exists()


def test_score_prints_every_variant(server, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("ein Hund schläft im Haus\n", encoding="utf-8")
    flags = (f"--references={tmp_path}/a", f"--hypotheses={tmp_path}/b")
    done = server.run("transformer_jax.score", *flags)
    assert done.stdout.count(b"100.00  nrefs:1|") == 6


@pytest.mark.parametrize("module", MODULES)
def test_help_lists_every_documented_flag(server, module):
    done = server.run(module, "--help")
    assert done.code == 0
    sections = re.findall(r"^Flags of ([\w.]+):", done.stdout.decode(), re.MULTILINE)
    assert module not in sections[1:]
    described = re.findall(r"^ +--(\[no\])?(\w+):", done.stdout.decode(), re.MULTILINE)
    known = {f"{no}{flag}" for either, flag in described for no in ("", "no" * bool(either))}
    given = {
        flag
        for name, arguments in DOCUMENTED
        if name == module
        for flag in re.findall(r"(?<![\w-])--(\w+)", arguments)
    }
    assert given <= known
    page = (pages.ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    assert {flag for _, flag in described} <= {*re.findall(r"--(?:\[no\])?(\w+)", page)}
    # Those of all tables, which are the runner's, not the module's own.
    tables = ("table2", "table3", "table4", "variations", "families", "eras", "run_sweep")
    assert ("retry_failed" in known) == module.endswith(tables)


def test_documented_commands_exist():
    for name, _ in DOCUMENTED:
        path = pages.ROOT.joinpath(*name.split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), name


def test_documented_fields_exist():
    known = {
        f"{section}.{name}"
        for section, kind in fields.declared(config_lib.Config).items()
        for name in fields.declared(kind)
    }
    given = {
        field
        for path in pages.PAGES
        for field in re.findall(r"--config\.([a-z][\w.]+)", path.read_text(encoding="utf-8"))
    }
    assert given
    assert given <= known


def test_no_command_imports_what_it_does_not_use():
    # The command of a table imports whatever the commands of single runs import.
    code = (
        "import sys, experiments.table3;"
        "print([name for name in ('tensorflow', 'torch', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_closed_pipe_ends_a_command_quietly(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("ein Hund\n", encoding="utf-8")
    read, write = os.pipe()
    os.close(read)
    arguments = [f"--references={tmp_path}/a", f"--hypotheses={tmp_path}/b"]
    done = subprocess.run(
        [sys.executable, "-m", "transformer_jax.score", *arguments],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-"])
def test_messages_do_not_enter_the_output_if_streams_are_closed(closed):
    program = """if True:
        import sys
        from transformer_jax import flags
        def main():
            print("a message", file=sys.stderr)
            print(open("/dev/null").fileno(), flush=True)
            flags.standard_input()
        flags.run(main)
    """
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.stdout == "3\n"  # the number of a file opened later: 0 to 2 are taken
    assert done.returncode == 2
    assert ("error: standard input is closed" in done.stderr) == (closed == "<&-")


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("JAX_ENABLE_X64", "1", "JAX_ENABLE_X64=1 is not supported: unset it"),
        ("JAX_PLATFORMS", "cuda", "JAX_PLATFORMS=cuda: JAX finds no device"),
        ("JAX_PLATFORMS", "nonsense", "'nonsense' is not in the list of known backends"),
    ],
)
def test_settings_of_jax_that_cannot_work_are_refused(variable, value, message):
    program = "import jax\nfrom transformer_jax import flags\nflags.run(jax.devices)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, variable: value},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode in (1, 2)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_figures_need_no_backend_of_matplotlib():
    program = "import transformer_jax.flags\nimport transformer_jax.drawing.heat_maps"
    variable = {"MPLBACKEND": "module://of_a_kernel.backend_inline"}
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **variable}, check=True)


def test_an_int_in_a_config_file_is_a_float_where_the_field_is_one(tmp_path):
    config = (
        "import ml_collections\n"
        "def get_config():\n"
        "  return ml_collections.ConfigDict({'train': {'label_smoothing': 0}})\n"
    )
    (tmp_path / "config.py").write_text(config)
    program = (
        "from transformer_jax import flags\n"
        "config = flags.define_config()\n"
        "flags.run(lambda: print(flags.read_config(config).train.label_smoothing))\n"
    )
    command = [sys.executable, "-c", program, f"--config={tmp_path / 'config.py'}"]
    overrides = ("--config.train.label_smoothing=0.1", "--config.model.d_k=16")
    for more, value in ((), "0.0"), (overrides, "0.1"):
        done = subprocess.run([*command, *more], capture_output=True, check=True)
        assert done.stdout.decode().strip() == value


def test_the_path_of_a_config_may_begin_with_the_home_folder(tmp_path):
    program = "from transformer_jax import flags\nflags.define_config()\nflags.run(lambda: 0)\n"
    command = [sys.executable, "-c", program, "--config=~/config.py"]
    home = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, env=home, capture_output=True, check=False, text=True)
    assert done.returncode == 2
    assert done.stderr == f"error: --config: no such file: {tmp_path}/config.py\n"
    config = "import ml_collections\ndef get_config(): return ml_collections.ConfigDict()\n"
    (tmp_path / "config.py").write_text(config)
    subprocess.run(command, env=home, check=True)


def test_a_terminal_that_lacks_a_character_shows_a_question_mark():
    program = "from transformer_jax import flags\nflags.run(lambda: print('5 \u2212 3'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"5 ? 3\n"


INTERRUPTED = "def main(): raise KeyboardInterrupt"


@pytest.mark.parametrize(
    ("main", "code", "message"),
    [
        (
            "import socket\ndef main():\n a, b = socket.socketpair(); b.close(); a.send(b'x')",
            1,
            "[Errno 32] Broken pipe",  # and it is not standard output's
        ),
        (INTERRUPTED, 130, "interrupted"),
        (
            f"import transformer_jax.prepare\nflags.FLAGS.config = '{TRAIN[1][9:]}'\n{INTERRUPTED}",
            130,
            "interrupted; the same command resumes from what it has saved",
        ),
    ],
    ids=["a connection", "nothing kept", "kept"],
)
def test_the_last_line_names_the_reason_for_the_end(server, tmp_path, main, code, message):
    program = f"from absl import flags\n{main}\nimport transformer_jax.flags as f\nf.run(main)"
    (tmp_path / "program.py").write_text(program)
    done = server.run("program", environment={"PYTHONPATH": str(tmp_path)})
    assert (done.code, done.stderr) == (code, f"error: {message}\n")
