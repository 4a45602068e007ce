"""Sweeps with --launcher, as commands: results in a bucket, and unusable flags."""

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests import fake_bucket, tiny, warm_commands

# Records its calls. Its queue has no job; the message is the real one's, as tests/engines shows.
SKY = f"""#!{sys.executable}
import os, sys
with open(os.environ["CALLS"], "a") as calls:
    print(*sys.argv[1:], file=calls)
if "queue" in sys.argv:
    sys.exit("sky.exceptions.ClusterNotUpError: No in-progress managed jobs.")
"""


@pytest.fixture
def variables(bucket: fake_bucket.Server, tmp_path: pathlib.Path) -> dict[str, str]:
    """Environment variables that lead commands to the local bucket."""
    bucket.objects.clear()
    (tmp_path / "bin").mkdir()
    return {
        "STORAGE_EMULATOR_HOST": bucket.address,
        "TENSORSTORE_GCS_HTTP_URL": bucket.address,
        "GCE_METADATA_ROOT": "127.0.0.1:1",
        "CALLS": str(tmp_path / "calls"),
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }


@pytest.fixture
def sky(variables: dict[str, str], tmp_path: pathlib.Path) -> Callable[[], list[str]]:
    """A program in place of SkyPilot's; calling the fixture lists the calls of the program."""
    path = tmp_path / "bin/sky"
    path.write_text(SKY)
    path.chmod(0o755)
    return lambda: pathlib.Path(variables["CALLS"]).read_text().splitlines()


@pytest.fixture
def sweep(
    server: warm_commands.Server,
    variables: dict[str, str],
    commands_cache: pathlib.Path,
    tmp_path: pathlib.Path,
) -> Callable[..., warm_commands.Done]:
    """A function that starts a sweep of two rows, with further flags."""

    def sweep(*flags: str) -> warm_commands.Done:
        sizes = {"num_layers": 3, "num_heads": 8, "d_k": 8, "d_v": 8, "d_model": 64}
        values = {**tiny.OVERRIDES, **{f"model.{name}": size for name, size in sizes.items()}}
        return server.run(
            "experiments.table3",
            "--config=configs/toy.py",
            *(f"--config.{name}={value}" for name, value in values.items()),
            f"--workdir={tmp_path / 'sweep'}",
            f"--cache_dir={commands_cache}",
            "--config.train.num_steps=4",
            "--rows=base,E",
            "--bucket=gs://bucket/sweep",
            "--accelerator=v5litepod-8",
            *flags,
            environment=variables,
        )

    return sweep


@pytest.mark.slow
def test_submitted_runs_leave_results_in_the_bucket_that_the_next_start_reports(
    sky, sweep, variables, tmp_path
):
    workdir = tmp_path / "sweep"
    done = sweep("--launcher=skypilot", "--spot")
    assert done.code == 0, done.stderr
    launched = [line for line in sky() if "jobs launch" in line]
    assert [re.findall(r"--name=(\S+)-s0-", line) for line in launched] == [["base"], ["e"]]
    text = (workdir / "skypilot.yaml").read_text()
    run = text.split("run: |\n")[1]
    for number in ("0", "1"):  # as SkyPilot runs it, with the Python of these tests
        script = run.replace(".venv/bin/python", sys.executable)
        machine = {"RUN": number, "SKYPILOT_NODE_IPS": "10.0.0.1", "JAX_PLATFORMS": "cpu"}
        ran = subprocess.run(
            ["bash", "-c", script],
            env={**os.environ, **variables, **machine},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
    status = sweep("--status").stdout.decode()  # reads the bucket
    assert "2 runs: 2 done" in status
    again = sweep("--launcher=skypilot", "--spot")
    assert again.code == 0, again.stderr
    assert "2 of 2 runs are done" in again.stderr
    assert "| E |" in (workdir / "table3.md").read_text()
    assert not list(workdir.glob("*/seed0-*/checkpoints"))
    assert len([line for line in sky() if "jobs launch" in line]) == 2
    # A changed config submits the runs again and does not use the results in the bucket.
    edited = ("--launcher=skypilot", "--spot", "--config.train.label_smoothing=0.2")
    assert not sweep(*edited).code
    assert "2 runs: 0 done" in sweep("--status").stdout.decode()
    assert len(list(workdir.glob("*/seed0-*/run.json"))) == 2  # those of the first config
    assert not sweep(*edited).code
    # The first config still finds its results.
    assert "2 of 2 runs are done" in sweep("--launcher=skypilot").stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--launcher=xpk"], "--launcher=xpk needs xpk, which is not installed here"),
        (["--launcher=slurm"], "--bucket is not for --launcher=slurm"),
        (["--launcher=skypilot", "--bucket=runs"], "give --bucket=gs://BUCKET/FOLDER"),
        (["--launcher=skypilot", "--accelerator="], "this engine needs --accelerator"),
        (["--launcher=skypilot", "--parallel=2"], "--parallel is not for --launcher=skypilot"),
        (
            ["--launcher=skypilot", "--config.data.corpus=text", "--config.data.train=/a/train"],
            "data.train=/a/train: other machines have a copy of this directory only",
        ),
    ],
)
@pytest.mark.usefixtures("sky")
def test_unusable_flags_are_errors_of_one_line(sweep, flags, message):
    done = sweep(*flags)
    assert done.code == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
