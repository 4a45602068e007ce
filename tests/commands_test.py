"""Every command's mistakes: one clear line on stderr, exit code 2, nothing written."""

import os
import re
import subprocess
import sys

import pytest

TRAIN = ["transformer_jax.train", "--config=configs/toy.py"]
RNN = [*TRAIN, "--config.model.architecture=rnn", "--config.model.position=none"]


def run(module, *arguments, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([*TRAIN, "--config.model.d_kk=3"], "d_kk"),
        ([*TRAIN, "--config.model.d_k=wide"], "wide"),
        ([*TRAIN, "--config.model.d_k=1.5"], "1.5"),
        ([*TRAIN, "--config.model.num_heads=0"], "model.num_heads=0 should be at least 1"),
        (
            [*TRAIN, "--config.model.position=rotary", "--config.model.d_k=7"],
            "model.position=rotary needs an even d_k, but model.d_k=7",
        ),
        ([*TRAIN, "--config.model.position=lerned"], "did you mean learned?"),
        ([*TRAIN, "--config.data.corpus=tex"], "data.corpus='tex' is unknown"),
        ([*TRAIN, "--config.data.corpus=text"], "data.train is empty"),
        ([*TRAIN, "--config.data.vocab_size=90000"], "too small for data.vocab_size=90,000"),
        ([*TRAIN, "--config.train.batch_tokens=10"], "try train.batch_tokens="),
        ([*TRAIN, "--config.mesh.data=3"], "mesh.data=3"),
        ([*TRAIN, "--config.decode.penalty=gmnt"], "decode.penalty='gmnt' is unknown"),
        ([*TRAIN, "--config.model.position=learned", "--config.model.max_positions=9"], "of at l"),
        ([*TRAIN, "--no_such_flag"], "no_such_flag"),
        ([*TRAIN, "extra"], "unexpected argument 'extra'"),
        ([*TRAIN, "--config.train.scheduled_sampling=0.1"], "needs a recurrent model.architecture"),
        ([*RNN, "--config.model.num_heads=4"], "=rnn has no use for model.num_heads=4: leave out "),
        (
            ["experiments.table3", "--rows=A h=4", *RNN[1:]],
            "row 'A h=4': model.architecture=rnn has no use for model.num_heads=4: leave out model",
        ),
        (
            ["experiments.table3", *RNN[1:], "--config.model.d_ff=40"],
            "error: model.architecture=rnn has no use for model.d_ff=40: leave out model.d_ff",
        ),
        ([*TRAIN, "--seeds=1,x"], "--seeds=1,x: invalid literal"),
        ([*TRAIN, "--seeds=1,1"], "--seeds=1,1 names a seed twice"),
        ([*TRAIN, "--seeds=-1"], "--seeds=-1: train.seed=-1 should be at least 0"),
        ([*TRAIN, "--config.model.rematerialise=2"], "rematerialise"),
        ([*TRAIN, "--config.model.attention_pattern=windows"], "did you mean window?"),
        (["transformer_jax.train"], "--config"),
        (["transformer_jax.train", "--config=configs/none.py"], "configs/none.py"),
        (["transformer_jax.translate"], "holds no trained run: it has no config.json"),
        (["transformer_jax.attention_maps", "--source=a"], "holds no trained run"),
        (["transformer_jax.attention_maps"], "--source"),
        (["experiments.benchmark", "--workloads=tiny"], "--workloads='tiny' is unknown"),
        (["experiments.benchmark", "--workloads="], "neither --workloads nor --run"),
        (["experiments.benchmark", "--train=a"], "--train and --dev go together"),
        (["experiments.report"], "holds no sweep: it has no sweep.json"),
        (["experiments.table3", "--config=configs/toy.py", "--rows=Z"], "no row matches 'Z'"),
        (["experiments.table3", "--config=configs/toy.py", "--launcher=x"], "--launcher='x'"),
        (["experiments.table3", "--config=configs/toy.py", "--seeds=0"], "seeds"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(command, message, tmp_path):
    workdir = tmp_path / "run"
    done = run(*command, f"--workdir={workdir}")
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in done.stderr
    assert not (workdir / "config.json").exists()
    assert not re.findall(r"^[IWEF]\d{4} ", done.stderr, re.MULTILINE)  # libraries' log lines


def test_score_prints_every_variant(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("ein Hund schläft im Haus\n", encoding="utf-8")
    done = run("transformer_jax.score", f"--references={tmp_path}/a", f"--hypotheses={tmp_path}/b")
    assert done.stdout.count("100.00  nrefs:1|") == 6


def test_score_refuses_files_of_different_length(tmp_path):
    (tmp_path / "a").write_text("eins\nzwei\n")
    (tmp_path / "b").write_text("eins\n")
    done = run("transformer_jax.score", f"--references={tmp_path}/a", f"--hypotheses={tmp_path}/b")
    assert done.returncode == 2
    assert "has 2 lines, but" in done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "transformer_jax.train",
        "transformer_jax.translate",
        "transformer_jax.score",
        "transformer_jax.attention_maps",
        "experiments.table3",
        "experiments.variations",
        "experiments.eras",
        "experiments.table1",
        "experiments.benchmark",
        "experiments.on_gpu",
        "experiments.scaling",
        "experiments.report",
        "experiments.publish",
        "experiments.figures",
        "experiments.run_sweep",
    ],
)
def test_help_describes_every_flag(module):
    done = run(module, "--help")
    assert done.returncode in (0, 1)  # absl ends --help with 1
    for flag in ("--workdir", "--references"):
        assert (flag in done.stdout) == ((flag == "--references") == module.endswith("score"))


@pytest.mark.parametrize(
    "module", ["transformer_jax.train", "transformer_jax.translate", "experiments.table3"]
)
def test_no_command_imports_what_it_does_not_use(module):
    code = (
        f"import sys, {module};"
        "print([name for name in ('tensorflow', 'torch', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_reader_that_leaves_early_ends_a_command_quietly(tmp_path):
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
