"""What --launcher hands over: all cells or none, once, and as commands that really run.

The engines' own programs are stood in for by scripts that record how they are called.
"""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from experiments.engines import cells, elsewhere, launcher
from launch import jobs as jobs_lib
from launch import skypilot, slurm, tpu_vm
from tests import fake_bucket, tiny

FLAGS = ["--rows=base,E", "--bucket=gs://bucket/sweep", "--accelerator=v5litepod-8"]
SIZES = {
    "train.num_steps": 4,
    "model.num_layers": 3,
    "model.num_heads": 8,
    "model.d_k": 8,
    "model.d_v": 8,
    "model.d_model": 64,
}
# Writes its arguments down; fails when asked to for the CELLth time.
RECORD = """#!/bin/bash
printf '%s\\n' "$(basename "$0") $*" >> "$CALLS"
case "$*" in
  *queue*) echo "${QUEUE:-[]}" ;;
  *"$FAILS"*) [ -z "$FAILS" ] || { echo "no $FAILS today" >&2; exit 3; } ;;
esac
"""


@pytest.fixture(scope="module")
def bucket():
    with fake_bucket.Server() as bucket:
        yield bucket


@pytest.fixture
def variables(bucket, tmp_path):
    """What leads a command to the bucket that stands in, and to programs that do."""
    bucket.objects.clear()
    (tmp_path / "bin").mkdir()
    return {
        "STORAGE_EMULATOR_HOST": bucket.address,
        "TENSORSTORE_GCS_HTTP_URL": bucket.address,
        "GCE_METADATA_ROOT": "127.0.0.1:1",
        "CALLS": str(tmp_path / "calls"),
        "FAILS": "",
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }


@pytest.fixture
def engine(tmp_path):
    """A function that makes a program, and returns the function that lists its calls."""

    def make(name, text=RECORD):
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return lambda: (tmp_path / "calls").read_text().splitlines()

    return make


@pytest.fixture
def sweep(server, variables, commands_cache, tmp_path):
    """A function that starts a sweep with more flags, as a user does."""

    def sweep(*flags):
        values = {**tiny.OVERRIDES, **SIZES}
        return server.run(
            "experiments.table3",
            "--config=configs/toy.py",
            *(f"--config.{name}={value}" for name, value in values.items()),
            f"--workdir={tmp_path / 'sweep'}",
            f"--cache_dir={commands_cache}",
            *FLAGS,
            *flags,
            environment=variables,
        )

    return sweep


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
        engine(program, SLURM)
    variables["SQUEUE"] = ""
    assert not sweep(*edited, "--launcher=slurm", "--bucket=", "--accelerator=", "--nospot").code
    assert not json.loads((workdir / "clouds.json").read_text())["submissions"][1:]
    assert "2 runs: 0 done" in sweep("--status").stdout.decode()
    # And one that is as it was finds its own.
    assert "2 of 2 runs are done" in sweep("--launcher=skypilot").stderr


def test_machines_of_one_cell_train_it_together(tmp_path, monkeypatch):
    monkeypatch.setattr(skypilot, "check", lambda path: None)
    job = jobs_lib.Remote("x", "x", ["echo", "run"])
    settings = {"name": "x", "setup": "true", "accelerator": "a", "spot": False, "nodes": 2}
    skypilot.render([job], tmp_path / "x.yaml", **settings)
    run = (tmp_path / "x.yaml").read_text().split("run: |\n")[1]
    variables = {"CELL": "0", "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8", "SKYPILOT_NODE_RANK": "1"}
    ran = subprocess.run(["bash", "-c", run], env={**os.environ, **variables}, capture_output=True,
                         text=True, check=True)  # fmt: skip
    assert ran.stdout == "run --coordinator=10.0.0.7:8476 --processes=2 --process=1\n"
    ran = subprocess.run(
        ["bash", "-c", run], env={**os.environ, **variables, "CELL": "7"}, check=False
    )
    assert ran.returncode == 2


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
    variables["FAILS"] = ""
    assert not sweep("--launcher=skypilot", "--retry_failed").code
    assert [line.split()[2] for line in lenient_sky()][-3:] == ["queue", "launch", "launch"]


def test_nothing_is_handed_over_beside_a_damaged_record(lenient_sky, sweep, variables, tmp_path):
    record = tmp_path / "sweep/clouds.json"
    record.parent.mkdir()
    record.write_text("{")
    refused = sweep("--launcher=skypilot")
    assert refused.code == 2
    assert "clouds.json is damaged" in refused.stderr
    assert not (tmp_path / "calls").exists()
    record.unlink()
    assert not sweep("--launcher=skypilot").code
    first = re.findall(r"--name=(\S+)", "\n".join(lenient_sky()))[0]
    record.unlink()  # as one who follows the remedy
    variables["QUEUE"] = json.dumps([{"job_name": first, "status": "RUNNING"}])
    assert not sweep("--launcher=skypilot", "--rows=base").code
    assert re.search("base +0 +running", sweep("--status").stdout.decode())


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
    where = "--cluster=c --zone=z --namespace=n"
    done = sweep("--launcher=xpk", f"--launcher_options={where} --priority=low")
    assert done.code == 0, done.stderr
    created = [line for line in calls() if line.startswith("xpk workload create")]
    assert len(created) == 2
    assert all("--max-restarts=100" in line and "--cluster=c" in line for line in created)
    listed = [line for line in calls() if line.startswith("xpk workload list")]
    assert len(listed) == 3
    assert all(line.endswith(where) for line in listed)
    lines = (tmp_path / "sweep/xpk.sh").read_text().splitlines()
    assert [" ".join(shlex.split(line)) for line in lines[1:]] == created


XPK = """#!/bin/bash
printf '%s\\n' "$(basename "$0") $*" >> "$CALLS"
case "$*" in
  *list*"$SILENT"*) [ -z "$SILENT" ] || { echo "no such cluster" >&2; exit 1; } ;;
esac
case "$*" in  # all that was created in the cluster is there, in no state that has a filter
  *list*EVERYTHING*) grep create "$CALLS" | grep -e "${*: -1}" | grep -o 'workload=[^ ]*' \\
    | cut -d= -f2; exit 0 ;;
esac
"""


def test_what_another_place_has_is_not_handed_over_a_second_time(
    engine, sweep, variables, tmp_path
):
    calls = engine("xpk", XPK)
    variables["SILENT"] = ""
    for place in ("one", "two"):
        done = sweep("--launcher=xpk", f"--launcher_options=--cluster={place}")
        assert done.code == 0, done.stderr
    assert "2 cells are in the engine's queue already" in done.stderr
    assert "xpk --cluster=one has base-s0-" in done.stderr
    created = [line for line in calls() if "workload create" in line]
    assert len(created) == 2
    variables["SILENT"] = "--cluster=one"
    done = sweep("--launcher=xpk", "--launcher_options=--cluster=two")
    assert done.code == 2
    message = r"xpk --cluster=one still .* \(xpk .*no such cluster.*\): .* delete \S+/clouds"
    assert re.search(message, done.stderr)
    status = sweep("--status")
    assert "2 runs: 0 done, 0 running, 0 failed, 2 waiting" in status.stdout.decode()
    assert "what follows is what the files say: xpk workload list" in status.stderr
    assert [line for line in calls() if "workload create" in line] == created


SLURM = """#!/bin/bash
printf '%s\\n' "$(basename "$0") $*" >> "$CALLS"
case $(basename "$0") in
  sbatch) cat "$CALLS" | grep -c sbatch ;;
  squeue) printf "$SQUEUE" ;;
esac
case " $FAILS " in *" $(basename "$0") "*) echo "Socket timed out" >&2; exit 1 ;; esac
"""


def test_an_array_that_cannot_be_released_is_taken_back(engine, sweep, variables, tmp_path):
    flags = ("--launcher=slurm", "--bucket=", "--accelerator=")
    variables |= {"FAILS": "scontrol scancel", "SQUEUE": ""}
    for program in ("sbatch", "squeue", "scancel", "scontrol"):
        calls = engine(program, SLURM)
    done = sweep(*flags)
    assert done.code == 2
    assert re.search("error: scontrol: Socket .*: give scancel 1 2 before you start", done.stderr)
    record = tmp_path / "sweep/slurm/submissions.json"
    assert (record.parent / "1/0.sh").exists()  # Slurm may have it still
    shutil.rmtree(record.parent)
    (tmp_path / "calls").unlink()
    variables["FAILS"] = "scontrol"
    done = sweep(*flags)
    assert done.code == 2
    assert "error: scontrol: Socket timed out" in done.stderr
    assert calls()[-1] == "scancel 1 2"
    assert json.loads(record.read_text()) == {"submissions": []}
    assert [path.name for path in record.parent.iterdir()] == ["submissions.json"]
    variables["FAILS"] = ""
    done = sweep(*flags)
    assert done.code == 0, done.stderr
    assert "submitted as array 3 of 2 tasks" in done.stderr
    # One that Slurm has is not lost because a cloud, tried before, has it no more.
    engine("xpk")
    assert not sweep("--launcher=xpk", "--launcher_options=--cluster=c", "--rows=base").code
    variables["SQUEUE"] = "3|0|RUNNING|None\\n"
    status = sweep("--status").stdout.decode()
    assert re.search("base +0 +running", status)


def test_what_was_run_again_keeps_no_word_of_its_earlier_failure(tmp_path):
    paths = [tmp_path / name / "failure.json" for name in ("done", "failed", "stopped")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("earlier")

    def run():
        with cells.without_failures(paths):
            (tmp_path / "done/result.json").touch()
            paths[1].write_text("later")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert not paths[0].exists()
    assert [path.read_text() for path in paths[1:]] == ["later", "earlier"]


def test_what_was_left_elsewhere_is_found_from_anywhere(tmp_path, make_config):
    cell = cells.Cell("base", 0, make_config(), {}, tmp_path / "sweep/base/seed0", "0f3a9c12" * 8)
    place = elsewhere.place(cell, str(tmp_path / "bucket"))
    there = pathlib.Path(place.there)
    there.mkdir(parents=True)
    (there / "run.json").write_text(json.dumps({"config_hash": cell.digest, "digests": {}}))
    (there / "result.json").write_text("{}")
    (tmp_path / "sweep").mkdir()
    elsewhere.remember(tmp_path / "sweep", [elsewhere.Submission("xpk", [], [place])])
    other = dataclasses.replace(cell, digest="1" * 64)
    launcher.Launcher().fetch([other], tmp_path / "sweep")
    assert not cell.folder.exists()
    launcher.Launcher().fetch([cell], tmp_path / "sweep")
    assert (cell.folder / "result.json").exists()
    elsewhere.forget(tmp_path / "sweep", [cell])
    assert elsewhere.remembered(tmp_path / "sweep") == []


@pytest.mark.parametrize("row", ["A h=1", "1", "Ä", "x" * 90, "-"])
def test_labels_are_names_that_engines_take(row, make_config):
    cell = cells.Cell(row, 3, make_config(), {}, pathlib.Path("x"), "0f3a9c12" * 8)
    label = elsewhere.label(cell)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", label)  # GKE's
    assert len(label) <= 40


def test_the_lines_for_a_slice_run_every_cell_until_it_is_done(tmp_path):
    """Runs the script with a gcloud that runs here what it would run on the slice."""
    stand_in = """#!/bin/bash
echo "$*" >> calls
case "$*" in
  *describe*) echo ACTIVE ;;
  *"ssh"*"cell"*) for last; do :; done; bash -c "${last#--command=cd transformer_jax && }" ;;
esac
"""
    (tmp_path / "gcloud").write_text(stand_in)
    (tmp_path / "gcloud").chmod(0o755)
    first = "test -e stopped && echo cell 1 >> done || { touch stopped; exit 42; }"
    jobs = [
        jobs_lib.Remote("one", "one", ["bash", "-c", first, "cell"]),
        jobs_lib.Remote("two", "two", ["bash", "-c", "exit 1", "cell"]),
        jobs_lib.Remote("three", "three", ["bash", "-c", "echo cell 3 >> done", "cell"]),
    ]
    options = ["--zone=z", "--project=p", "--runtime-version=v2-alpha-tpuv5-lite", "--network=n"]
    script = tpu_vm.render(
        jobs, name="x", setup="true", accelerator="v5litepod-8", spot=True, options=options
    )
    (tmp_path / "x.sh").write_text(script)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    settings = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "deleted").touch()
    subprocess.run(["git", "add", "deleted"], cwd=tmp_path, check=True)
    (tmp_path / "deleted").unlink()  # one that git still tracks
    ran = subprocess.run(["bash", "x.sh"], cwd=tmp_path, env=settings, capture_output=True,
                         text=True, check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "done").read_text() == "cell 1\ncell 3\n"
    assert "failed, exit code 1: " in ran.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert all("--zone=z --project=p" in call for call in calls)
    assert "--network=n --spot" in calls[0]
    assert "--spot" not in "".join(calls[1:])
    assert "queued-resources delete x" in calls[-1]
    assert script.splitlines()[-1] == f"# gcloud {calls[-1]}"
    (tmp_path / "calls").unlink()
    shutil.rmtree(tmp_path / ".git")
    ran = subprocess.run(["bash", "x.sh"], cwd=tmp_path, env=settings, capture_output=True,
                         check=False)  # fmt: skip
    assert ran.returncode != 0  # what cannot be packed costs nothing
    assert not (tmp_path / "calls").exists()


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
        (["--launcher=tpu-vm", "--pack_seeds"], "--pack_seeds is for --launcher=local and slurm"),
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


def test_slurm_is_given_an_array_and_a_report_that_waits_for_it(tmp_path):
    jobs = [
        jobs_lib.Job(
            f"cell {i}", ["echo", "a b", str(i)], tmp_path / f"{i}/log.txt", [tmp_path / str(i)]
        )
        for i in range(3)
    ]
    array, report = slurm.render(
        jobs, ["echo", "report"], tmp_path / "slurm", name="x", nodes=2, parallel=2,
        options=["--partition=gpu", "--gpus-per-node=4", "-t", "60"], script=slurm.SCRIPT,
    )  # fmt: skip
    assert "--array=0-2%2" in array
    assert "--nodes=2" in array
    assert "--gpus-per-node=4" in array
    assert "--partition=gpu" in report
    assert report[report.index("-t") + 1] == "60"
    assert not any("gpus" in option for option in report)
    script = tmp_path / "slurm/1.sh"
    subprocess.run(["bash", script], check=True)
    assert (tmp_path / "1/log.txt").read_text() == "a b 1\n"
    subprocess.run(["bash", script, "died", "2"], check=True)  # refused: it has said so itself
    assert not (tmp_path / "1/failure.json").exists()
    subprocess.run(["bash", script, "died", "9"], check=True)
    failure = json.loads((tmp_path / "1/failure.json").read_text())
    assert failure["error"] == "exit code 9 (see log.txt)"
    subprocess.run(["bash", script, "died", "10"], check=True)  # the first word stands
    assert json.loads((tmp_path / "1/failure.json").read_text()) == failure
    for path in (slurm.SCRIPT, tmp_path / "slurm/submit.sh", pathlib.Path("tests/debian.sh")):
        subprocess.run(["bash", "-n", path], check=True)
