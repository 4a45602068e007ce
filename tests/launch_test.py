"""What --launcher hands over: all cells or none, once, and as commands that really run.

The engines' own programs are stood in for by scripts that record how they are called.
"""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from tests import fake_engines, sweeps


def sky(engine):
    """A stand-in for sky whose Python takes any task."""
    return engine("sky", f"#!{sys.executable}\n" + SKY)


SKY = """
import os, sys
with open(os.environ["CALLS"], "a") as calls:
    print("sky", *sys.argv[1:], file=calls)
if "queue" in sys.argv:
    if "QUEUE" not in os.environ:  # as the real one says it (tests/engines)
        sys.exit("sky.exceptions.ClusterNotUpError: No in-progress managed jobs.")
    print(os.environ["QUEUE"])
elif os.environ["FAILS"] and os.environ["FAILS"] in sys.argv:
    sys.exit("no machines today")
"""


@pytest.fixture
def lenient_sky(engine, variables, tmp_path):
    """sky, and a module of this name for its check of tasks; tests/engines asks the real one."""
    (tmp_path / "sky.py").write_text("class Task:\n    from_yaml = print\n")
    variables["PYTHONPATH"] = str(tmp_path)
    return sky(engine)


@pytest.mark.slow
def test_a_cell_handed_over_leaves_in_the_bucket_what_the_next_start_reports(
    lenient_sky, sweep, engine, variables, tmp_path
):
    workdir = tmp_path / "sweep"
    done = sweep("--launcher=skypilot", "--spot")
    assert done.code == 0, done.stderr
    launched = [line for line in lenient_sky() if "jobs launch" in line]
    assert [re.findall(r"--name=(\S+)-s0-", line) for line in launched] == [["base"], ["e"]]
    text = (workdir / "skypilot.yaml").read_text()
    run = text.split("run: |\n")[1]
    for cell in ("0", "1"):  # what SkyPilot would run, with our own Python
        script = run.replace(".venv/bin/python", sys.executable)
        there = {"CELL": cell, "SKYPILOT_NODE_IPS": "10.0.0.1", "JAX_PLATFORMS": "cpu"}
        ran = subprocess.run(
            ["bash", "-c", script],
            env={**os.environ, **variables, **there},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
    status = sweep("--status").stdout.decode()  # which looks into the bucket
    assert "2 runs: 2 done" in status
    again = sweep("--launcher=skypilot", "--spot")
    assert again.code == 0, again.stderr
    assert "2 of 2 runs are done" in again.stderr
    assert "| E |" in (workdir / "table3.md").read_text()
    assert not list(workdir.glob("*/seed0/checkpoints"))
    assert len([line for line in lenient_sky() if "jobs launch" in line]) == 2
    # An edited sweep is handed over anew, and finds nothing of the earlier one in the bucket.
    edited = ("--launcher=skypilot", "--spot", "--config.train.label_smoothing=0.2")
    assert not sweep(*edited).code
    assert "2 runs: 0 done" in sweep("--status").stdout.decode()
    assert not list(workdir.glob("*/seed0/run.json"))
    assert not sweep(*edited).code
    for program in ("sbatch", "squeue", "scancel", "scontrol"):
        engine(program, fake_engines.SLURM)
    variables["SQUEUE"] = ""
    assert not sweep(*edited, "--launcher=slurm", "--bucket=", "--accelerator=", "--nospot").code
    # The array takes over; what lies in the bucket from before the edit is still known.
    record = json.loads((workdir / "submissions.json").read_text())
    assert record["launcher"] == "slurm"
    assert [each["there"] != "" for each in record["submissions"]] == [True, True, False, False]
    assert "2 runs: 0 done" in sweep("--status").stdout.decode()
    # And one that is as it was finds its own.
    assert "2 of 2 runs are done" in sweep("--launcher=skypilot").stderr


def test_if_one_cell_is_refused_none_is_left_with_the_engine(
    lenient_sky, sweep, variables, tmp_path
):
    variables["FAILS"] = "--env=CELL=1"
    failed = tmp_path / "sweep/E/seed0"
    failed.mkdir(parents=True)
    (failed / "failure.json").write_text('{"error": "x", "traceback": "", "step": null}')
    done = sweep("--launcher=skypilot", "--retry_failed")
    assert (failed / "failure.json").exists()  # what is not run again has still failed
    assert done.code == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert errors == ["error: sky jobs launch: no machines today (exit code 1)"]
    assert [line.split()[2] for line in lenient_sky()] == [
        "queue", "launch", "launch", "cancel", "cancel",
    ]  # fmt: skip
    names = re.findall(r"--name=(\S+)", "\n".join(lenient_sky()))
    assert names[:2] == names[2:]
    assert names[0] != names[1]
    record = json.loads((tmp_path / "sweep/submissions.json").read_text())
    assert record["submissions"] == []  # they were taken back
    variables["FAILS"] = ""
    assert not sweep("--launcher=skypilot", "--retry_failed").code
    assert [line.split()[2] for line in lenient_sky()][-3:] == ["queue", "launch", "launch"]


def test_nothing_is_handed_over_beside_a_damaged_record(lenient_sky, sweep, variables, tmp_path):
    record = tmp_path / "sweep/submissions.json"
    record.parent.mkdir()
    record.write_text("{")
    refused = sweep("--launcher=skypilot")
    assert refused.code == 2
    assert "submissions.json is damaged" in refused.stderr
    assert not (tmp_path / "calls").exists()
    record.unlink()
    assert not sweep("--launcher=skypilot", "--noise_floor=2").code
    first = re.findall(r"--name=(\S+)", "\n".join(lenient_sky()))[0]
    record.unlink()  # as one who follows the remedy
    variables["QUEUE"] = json.dumps([{"job_name": first, "status": "RUNNING"}])
    assert not sweep("--launcher=skypilot", "--rows=base").code
    status = sweep("--status").stdout.decode()
    assert re.search("base +0 +running", status)
    for asked_for_before in ("base +1 +waiting", "E +0 +waiting"):
        assert re.search(asked_for_before, status)
    assert json.loads((tmp_path / "sweep/sweep.json").read_text())["noise_floor"] == 2
    assert not sweep("--launcher=skypilot", "--rows=base", "--noise_floor=0").code
    assert json.loads((tmp_path / "sweep/sweep.json").read_text())["noise_floor"] == 0
    sweeps.set_record(tmp_path / "sweep", seeds={"no row": 1})
    assert not sweep("--launcher=skypilot", "--rows=base").code
    assert json.loads((tmp_path / "sweep/sweep.json").read_text())["seeds"] == {"base": 1}


def test_what_the_engine_has_is_not_handed_over_again(lenient_sky, sweep, variables):
    assert not sweep("--launcher=skypilot").code
    first = re.findall(r"--name=(\S+)", "\n".join(lenient_sky()))[0]
    queue = [{"job_name": first, "status": "RECOVERING"}]
    variables["QUEUE"] = json.dumps(queue)
    again = sweep("--launcher=skypilot")
    assert "1 cells are in the engine's queue already" in again.stderr
    status = sweep("--status").stdout.decode()
    assert re.search("base +0 +recovering", status)
    assert re.search("E +0 +lost", status)
    launched = [line for line in lenient_sky() if "jobs launch" in line]
    assert sum(first in line for line in launched) == 1
    assert len(launched) == 3


def test_xpk_is_given_a_workload_for_each_cell(engine, sweep, tmp_path):
    calls = engine("xpk")
    where = "--cluster=c --namespace=n --zone=z"
    options = "--zone z --namespace=n --cluster=c --cluster-size=1"
    done = sweep("--launcher=xpk", f"--launcher_options={options}")
    assert done.code == 0, done.stderr
    created = [line for line in calls() if line.startswith("xpk workload create")]
    assert len(created) == 2
    assert all("--max-restarts=100" in line and "--cluster=c" in line for line in created)
    listed = [line for line in calls() if line.startswith("xpk workload list")]
    assert len(listed) == 3
    assert all(line.endswith(where) for line in listed)
    lines = (tmp_path / "sweep/xpk.sh").read_text().splitlines()
    assert [" ".join(shlex.split(line)) for line in lines[1:]] == created


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--launcher=skypilot"], "--launcher=skypilot needs sky, which is not installed here"),
        (["--launcher=xpk"], "--launcher=xpk needs xpk, which is not installed here"),
        (["--launcher=slurm"], "--bucket is not for --launcher=slurm"),
        (["--launcher=local"], "--bucket is not for --launcher=local"),
        (["--launcher=tpu-vm", "--bucket=runs"], "give --bucket=gs://BUCKET/FOLDER"),
        (["--launcher=tpu-vm", "--accelerator="], "this engine needs --accelerator"),
        (["--launcher=tpu-vm"], "--launcher=tpu-vm needs --zone"),
        (["--launcher=tpu-vm", "--launcher_options='"], "No closing quotation"),
        (["--launcher=tpu-vm", "--nodes=2"], "--nodes is not for --launcher=tpu-vm"),
        (["--launcher=tpu-vm", "--parallel=2"], "--parallel is not for --launcher=tpu-vm"),
        (
            ["--launcher=tpu-vm", "--config.data.corpus=text", "--config.data.train=/a/train"],
            "data.train=/a/train: other machines have a copy of this folder only",
        ),
    ],
)
def test_what_cannot_be_handed_over_is_refused_in_one_line(sweep, flags, message):
    done = sweep(*flags)
    assert done.code == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
