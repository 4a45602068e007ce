"""launch/gpu.sh, which runs a sweep in pieces; on a CPU, where MPS is not started."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests import tiny

ROOT = pathlib.Path(__file__).parents[1]
SCRIPT = ROOT / "launch/gpu.sh"
ENVIRONMENT = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}


def start(folder, seconds, *command, workdir="runs"):
    """Runs the script in a folder, with the archive `saved/sweep`."""
    return subprocess.run(
        [SCRIPT, str(seconds), "saved/sweep", workdir, *command],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def names(folder):
    """Returns the names of the files in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def contents(folder):
    """Returns the contents of all files below a folder, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_finished_runs_of_a_stopped_sweep_are_on_the_next_machine(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    first = """
        mkdir -p runs/base/seed0/checkpoints runs/E/seed0
        echo rows > runs/sweep.json
        head -c 20000000 /dev/urandom > runs/base/seed0/hypotheses.txt
        echo weights > runs/base/seed0/checkpoints/state
        echo done > runs/base/seed0/result.json
        echo half > runs/E/seed0/metrics.jsonl
        sleep 600
    """
    stopped = start(here, 2, "bash", "-c", first)
    assert stopped.returncode == 124
    assert "finished runs saved: 1" in stopped.stdout
    assert names(here / "saved") == ["sweep.00", "sweep.01"]

    shutil.copytree(here / "saved", there / "saved")
    second = "mkdir -p runs/E/seed0; echo done > runs/E/seed0/result.json; rm runs/base/seed0/h*"
    assert start(there, 60, "bash", "-c", second).returncode == 0
    assert names(there / "saved") == ["sweep.00"]  # it is smaller now
    assert contents(there / "runs") == {
        "sweep.json": b"rows\n",
        "base/seed0/result.json": b"done\n",
        "E/seed0/result.json": b"done\n",
    }


def test_the_exit_code_is_the_commands_and_the_archive_stays(tmp_path):
    runs = tmp_path / "runs"  # as an absolute path
    write = f"mkdir -p {runs}/base; touch {runs}/sweep.json {runs}/base/result.json"
    assert start(tmp_path, 60, "bash", "-c", write, workdir=runs).returncode == 0
    shutil.rmtree(runs)
    assert start(tmp_path, 60, "bash", "-c", "exit 7", workdir=runs).returncode == 7
    assert names(tmp_path / "saved") == ["sweep.00"]
    assert (runs / "base/result.json").is_file()


def test_an_archive_of_which_a_part_is_missing_is_an_error(tmp_path):
    write = "mkdir -p runs/a; touch runs/sweep.json; head -c 20000000 /dev/urandom > runs/a/b"
    finish = "; touch runs/a/result.json"
    assert start(tmp_path, 60, "bash", "-c", write + finish).returncode == 0
    whole = (tmp_path / "runs/a/b").read_bytes()
    last = tmp_path / "saved/sweep.01"
    last.rename(tmp_path / "elsewhere")
    assert start(tmp_path, 60, "touch", "started").returncode == 2
    assert not (tmp_path / "started").exists()
    (tmp_path / "elsewhere").rename(last)
    assert start(tmp_path, 60, "touch", "started").returncode == 0
    assert (tmp_path / "runs/a/b").read_bytes() == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_sweep_and_saves_its_runs(tmp_path, number):
    command = """
        trap 'touch runs/base/result.json; exit 1' TERM
        mkdir -p runs/base
        touch runs/sweep.json runs/started
        sleep 600 & wait
    """
    arguments = [SCRIPT, "600", "saved/sweep", "runs", "bash", "-c", command]
    with subprocess.Popen(arguments, cwd=tmp_path, env=ENVIRONMENT) as process:
        while not (tmp_path / "runs/started").exists():
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) == 1
    assert names(tmp_path / "saved") == ["sweep.00"]


@pytest.mark.slow
def test_a_sweep_does_not_repeat_runs_of_an_earlier_piece(tmp_path):
    overrides = [
        f"--config.{name}={value}"
        for name, value in tiny.OVERRIDES.items()
        if not name.startswith("model.")  # Table 3 cannot be scaled to the tiny model
    ]
    config = f"--config={ROOT / 'configs/toy.py'}"
    command = [sys.executable, "-m", "experiments.table3", config, "--workdir=runs", *overrides]
    first = start(tmp_path, 300, *command, "--rows=base")
    assert first.returncode == 0, first.stderr
    (result,) = (tmp_path / "runs").glob("*/*/result.json")
    before = result.read_bytes()
    shutil.rmtree(tmp_path / "runs")
    second = start(tmp_path, 300, *command, "--rows=base,E")
    assert second.returncode == 0, second.stderr
    assert result.read_bytes() == before
    assert len(list((tmp_path / "runs").glob("*/*/result.json"))) == 2
    assert (tmp_path / "runs/table3.csv").is_file()
