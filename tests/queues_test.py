"""Engines that queue jobs: their commands, submission of all jobs or none, and states of jobs."""

import json
import os
import pathlib
import subprocess

import pytest

from launch import engine, skypilot, slurm, xpk


def job(name, *command, folder=pathlib.Path("x")):
    return engine.Job(name, name, command, folder / "log.txt")


class Program:
    """Answers the commands of an engine; those that contain a text of `failing` fail."""

    def __init__(self, answers, failing):
        self.answers = answers
        self.failing = failing
        self.commands = []

    def __call__(self, command, *_, **__):
        line = " ".join(command)
        self.commands.append(line)
        if any(text in line for text in self.failing):
            raise engine.EngineError(f"{command[0]}: timed out")
        return next((answer for text, answer in self.answers.items() if text in line), "")


@pytest.fixture
def program(monkeypatch):
    """A function that replaces engines' programs."""

    def program(answers=None, failing=()):
        replacement = Program(answers or {}, failing)
        monkeypatch.setattr(engine, "ask", replacement)
        return replacement

    return program


def test_if_a_job_is_refused_those_before_are_cancelled(program, tmp_path):
    calls = program(failing=["create --quiet --workload=c"])
    jobs = [job(name, "echo") for name in "abcd"]
    records = []
    queue = xpk.Xpk(engine.Settings(launcher_options="--cluster=k"))
    with pytest.raises(engine.EngineError, match=r"^xpk: timed out$"):
        queue.submit(engine.Submission("x", jobs, tmp_path, []), records.append)
    assert records == [["a", "b", "c", "d"], []]
    assert [line for line in calls.commands if "delete" in line] == [
        f"xpk workload delete --force --workload={name} --cluster=k" for name in "cba"
    ]


def test_jobs_that_cannot_be_cancelled_stay_recorded_and_are_named(program, tmp_path):
    program(failing=["create --quiet --workload=c", "delete"])
    jobs = [job(name, "echo") for name in "abc"]
    records = []
    message = "not cancelled: .*run xpk workload delete .*=b; .*run xpk workload delete .*=a before"
    with pytest.raises(engine.EngineError, match=message):
        xpk.Xpk(engine.Settings()).submit(
            engine.Submission("x", jobs, tmp_path, []), records.append
        )
    assert records == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("failing", "records", "cancelled"),
    [
        ("--array", [], []),
        ("--dependency", [[]], ["scancel 7"]),
        ("release", [["7_0", "7_1"], []], ["scancel 8", "scancel 7"]),
    ],
)
def test_an_array_is_cancelled_unless_slurm_takes_its_report_and_releases_it(
    program, tmp_path, failing, records, cancelled
):
    calls = program({"--hold": "7\n", "--dependency=afterany:7": "8;cluster\n"}, [failing])
    submission = engine.Submission("x", [job("one"), job("two")], tmp_path, ["echo"])
    recorded = []
    with pytest.raises(engine.EngineError, match="timed out"):
        slurm.Slurm(engine.Settings()).submit(submission, recorded.append)
    assert recorded == records
    assert [line for line in calls.commands if "scancel" in line] == cancelled
    assert not list((tmp_path / "slurm").iterdir())


@pytest.mark.parametrize(
    ("queue", "answers", "jobs", "expected"),
    [
        (
            xpk.Xpk(engine.Settings(launcher_options="--cluster=c")),
            {"EVERYTHING": "a b c d", "RUNNING": "b", "FINISHED": "c"},
            "abce",
            {"a": "queued", "b": "running"},
        ),
        (
            slurm.Slurm(engine.Settings()),
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
        (
            skypilot.SkyPilot(engine.Settings()),
            {"": 'D 1 job\n[{"job_name": "a", "status": "RECOVERING"}]'},
            "ab",
            {"a": "recovering"},
        ),
    ],
    ids=["xpk", "slurm", "skypilot"],
)
def test_states_are_those_of_unfinished_jobs(program, queue, answers, jobs, expected):
    program(answers)
    assert queue.states(jobs) == expected


def test_xpk_creates_a_workload_for_a_run():
    settings = engine.Settings(
        launcher_options="--zone z --cluster=c", accelerator="v5litepod-8", spot=True, nodes=2
    )
    command = xpk.Xpk(settings).create_command(job("a-h-1-s0", "python", "-m", "x"))
    assert command[:3] == ["xpk", "workload", "create"]
    assert command[-3:] == ["--zone", "z", "--cluster=c"]
    assert {
        "--workload=a-h-1-s0",
        "--tpu-type=v5litepod-8",
        "--num-slices=2",
        "--max-restarts=100",
        "--spot",
    } < set(command)
    (run,) = [part for part in command if part.startswith("--command=")]
    assert run.endswith(" && exec python -m x --distributed")


def test_all_machines_of_a_skypilot_job_train_its_run_together(tmp_path):
    submission = engine.Submission("x", [job("x", "echo", "run")], tmp_path, [])
    sky = skypilot.SkyPilot(engine.Settings(accelerator="a", nodes=2))
    script = sky.task(submission, tmp_path / "x.yaml").split("run: |\n")[1]

    def start(run):
        machines = {"SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8", "SKYPILOT_NODE_RANK": "1"}
        return subprocess.run(
            ["bash", "-c", script],
            env={**os.environ, **machines, "RUN": run},
            capture_output=True,
            text=True,
            check=False,
        )

    assert start("0").stdout == "run --coordinator=10.0.0.7:8476 --processes=2 --process=1\n"
    assert start("7").returncode == 2


def test_where_a_queue_is_does_not_depend_on_the_spelling_of_options():
    spellings = (
        "--zone=z --cluster c --priority=low",
        "--priority low --cluster=c --zone z",
        "--zone z --clus=c",
    )
    for options in spellings:
        place = xpk.Xpk(engine.Settings(launcher_options=options)).where
        assert place == ["--cluster=c", "--zone=z"]


@pytest.mark.parametrize("option", ["--dependency=x", "--depend x", "--depend=x", "-d x", "-dx"])
def test_options_that_the_sweep_sets_are_errors_in_any_spelling(option, monkeypatch):
    monkeypatch.setattr(slurm.Slurm, "programs", ())
    slurm.Slurm(engine.Settings(launcher_options="--nodelist=a --deadline=now -t 60")).check()
    with pytest.raises(engine.EngineError, match="--dependency is not for --launcher_options"):
        slurm.Slurm(engine.Settings(launcher_options=f"-t 60 {option}")).check()


def test_slurm_runs_an_array_and_a_report_after_it(tmp_path):
    jobs = [job(f"run {i}", "echo", "a b", str(i), folder=tmp_path / str(i)) for i in range(3)]
    options = "--part=gpu --gpus-per-node=4 -t 60"
    queue = slurm.Slurm(engine.Settings(nodes=2, parallel=2, launcher_options=options))
    submission = engine.Submission("x", jobs, tmp_path, ["echo", "report"])
    array = queue.array_command(submission, tmp_path)
    assert {"--array=0-2%2", "--nodes=2", "--hold", "--part=gpu", "--gpus-per-node=4"} < set(array)
    report = queue.report_command(submission, tmp_path, "7")
    assert {"--dependency=afterany:7", "--partition=gpu", "--time=60"} < set(report)
    assert not any("gpus" in option or "nodes" in option for option in report)


def test_a_slurm_script_logs_its_run_and_notes_how_it_died(tmp_path):
    jobs = [job("run", "echo", "a b", folder=tmp_path / "run")]
    queue = slurm.Slurm(engine.Settings(nodes=2))
    queue.write_scripts(engine.Submission("x", jobs, tmp_path, ["echo", "report"]), tmp_path)
    script = tmp_path / "0.sh"
    subprocess.run(["bash", script], check=True)
    assert (tmp_path / "run/log.txt").read_text() == "a b --distributed\n"
    failure = tmp_path / "run/failure.json"
    subprocess.run(["bash", script, "died", "2"], check=True)  # a refused run notes nothing
    assert not failure.exists()
    for code in ("9", "10"):  # the first note stays
        subprocess.run(["bash", script, "died", code], check=True)
        assert json.loads(failure.read_text())["error"] == "exit code 9 (see log.txt)"
    report = subprocess.run(["bash", tmp_path / "report.sh"], check=True, capture_output=True)
    assert report.stdout == b"report\n"
    subprocess.run(["bash", "-n", slurm.SCRIPT], check=True)
