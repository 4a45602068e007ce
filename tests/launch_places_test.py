"""A sweep that has another launcher than before, or another cluster, or one that fails midway."""

import json
import re
import shutil

import pytest

from launch import engine as engine_lib
from launch import slurm, xpk
from tests import fake_engines

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


def test_another_place_takes_over_once_the_first_has_no_job_left(
    engine, sweep, variables, tmp_path
):
    calls = engine("xpk", XPK)
    variables["SILENT"] = ""
    one, two = (("--launcher=xpk", f"--launcher_options=--cluster={place}") for place in "12")
    assert not sweep(*one).code
    created = [line for line in calls() if "workload create" in line]
    assert len(created) == 2
    for other in (two, ("--launcher=local", "--bucket=", "--accelerator=")):
        done = sweep(*other)
        assert done.code == 2
        message = "base, seed 0: its launcher has changed, and xpk --cluster=1 has a job of it"
        assert message in done.stderr
        assert "as with xpk workload delete --force --workload=base-s0-" in done.stderr
    assert "2 cells are in the engine's queue already" in sweep(*one).stderr
    variables["SILENT"] = "--cluster=1"
    done = sweep(*two)
    assert done.code == 2
    message = r"xpk --cluster=1 still .* \(xpk .*no such cluster.*\): .* delete \S+/submissions"
    assert re.search(message, done.stderr)
    status = sweep("--status")
    assert "2 runs: 0 done, 0 running, 0 failed, 2 waiting" in status.stdout.decode()
    assert "what follows is what the files say: xpk workload list" in status.stderr
    assert [line for line in calls() if "workload create" in line] == created
    variables["SILENT"] = ""
    (tmp_path / "calls").unlink()  # with which the stand-in has no workload any more
    assert not sweep(*two, "--rows=base").code
    created = [line for line in calls() if "workload create" in line]
    assert len(created) == 1
    assert "--cluster=2" in created[0]
    status = sweep("--status", "--rows=*").stdout.decode()
    assert re.search("base +0 +queued", status)


def test_a_launcher_that_cannot_be_asked_is_left_once_the_record_is_deleted(
    sweep, engine, tmp_path
):
    engine("xpk")
    where = "--launcher_options=--zone=z --runtime-version=v"
    assert not sweep("--launcher=tpu-vm", where).code
    assert not sweep("--launcher=tpu-vm", where).code  # gives the same lines again
    done = sweep("--launcher=xpk")
    assert done.code == 2
    assert "tpu-vm --zone=z was given cells of this sweep, and cannot be asked" in done.stderr
    record = tmp_path / "sweep/submissions.json"
    assert f"delete {record}" in done.stderr
    record.unlink()
    assert not sweep("--launcher=xpk").code


@pytest.mark.parametrize(
    ("queue", "answers", "names", "expected"),
    [
        (
            xpk.Xpk(engine_lib.Settings(launcher_options="--cluster=c")),
            {"EVERYTHING": "a b c d", "RUNNING": "b", "FINISHED": "c"},
            "abce",
            {"a": "queued", "b": "running"},
        ),
        (
            slurm.Slurm(engine_lib.Settings()),
            {
                "": "7|0|RUNNING|None\n7|1|COMPLETING|None\n7|2|PENDING|Priority\n"
                "7|3|PENDING|QOSMaxJobsPerUserLimit\n8|0|RUNNING|None\n"
            },
            ["7_0", "7_1", "7_2", "7_3", "7_4"],
            {
                "7_0": "running",
                "7_1": "running",
                "7_2": "queued",
                "7_3": "queued: QOSMaxJobsPerUserLimit",
            },
        ),
    ],
    ids=["xpk", "slurm"],
)
def test_what_has_ended_is_in_no_queue_and_what_waits_says_for_what(
    monkeypatch, queue, answers, names, expected
):
    def ask(command, *_, **__):
        return next(
            said for state, said in answers.items() if any(state in each for each in command)
        )

    monkeypatch.setattr(engine_lib, "ask", ask)
    assert queue.queue(names) == expected


def test_runs_of_a_sweep_are_told_their_project_where_they_share_this_disk(
    engine, sweep, variables, tmp_path
):
    (tmp_path / "wandb.py").write_text("init = None")  # in place of the package
    variables |= {"PYTHONPATH": str(tmp_path), "SQUEUE": "", "FAILS": ""}
    for program in ("sbatch", "squeue", "scancel", "scontrol", "xpk"):
        engine(program, fake_engines.SLURM)
    done = sweep("--launcher=xpk", "--wandb=parts")
    assert done.code == 2
    assert "error: --wandb is for --launcher=local and slurm" in done.stderr
    flags = ("--launcher=slurm", "--bucket=", "--accelerator=", "--wandb=parts")
    assert not sweep(*flags).code
    for cell in ("0", "1"):
        script = (tmp_path / f"sweep/slurm/1/{cell}.sh").read_text()
        assert "--wandb=parts --wandb_group=sweep" in script


def test_an_array_that_cannot_be_released_is_taken_back(engine, sweep, variables, tmp_path):
    flags = ("--launcher=slurm", "--bucket=", "--accelerator=")
    variables |= {"FAILS": "scontrol scancel", "SQUEUE": ""}
    for program in ("sbatch", "squeue", "scancel", "scontrol"):
        calls = engine(program, fake_engines.SLURM)
    done = sweep(*flags)
    assert done.code == 2
    assert re.search("error: scontrol: Socket .*: give scancel 1 2 before you start", done.stderr)
    record, folder = tmp_path / "sweep/submissions.json", tmp_path / "sweep/slurm"
    assert (folder / "1/0.sh").exists()  # Slurm may have it still
    assert json.loads(record.read_text())["submissions"]
    shutil.rmtree(folder)
    record.unlink()
    (tmp_path / "calls").unlink()
    variables["FAILS"] = "scontrol"
    done = sweep(*flags)
    assert done.code == 2
    assert "error: scontrol: Socket timed out" in done.stderr
    assert calls()[-1] == "scancel 1 2"
    assert json.loads(record.read_text())["submissions"] == []
    assert not list(folder.iterdir())
    variables["FAILS"] = ""
    done = sweep(*flags)
    assert done.code == 0, done.stderr
    assert "submitted as array 3 of 2 tasks" in done.stderr
    variables["SQUEUE"] = "3|0|RUNNING|None\\n"
    status = sweep("--status").stdout.decode()
    assert re.search("base +0 +running", status)
