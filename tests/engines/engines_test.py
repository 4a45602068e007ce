"""What SkyPilot and xpk themselves say of what they are given; each is in its own environment."""

import json
import os
import pathlib
import signal
import subprocess

import pytest

from launch import engine, skypilot, xpk

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = ["python", "-m", "transformer_jax.train", "--config=configs/toy.py", "--row=A h=1"]
JOBS = [
    engine.Job(
        f"A h=1, seed {seed}", f"a-h-1-s{seed}-0123abcd", [*COMMAND, f"--x={seed}"], pathlib.Path()
    )
    for seed in (0, 1)
]
# What prints the task as SkyPilot understands it.
SHOWN = "import json, sys, sky; print(json.dumps(sky.Task.from_yaml(sys.argv[1]).to_yaml_config()))"


@pytest.fixture(scope="module", autouse=True)
def engines():
    with pytest.MonkeyPatch.context() as patch:
        folders = [str(ROOT / f".venv-{name}" / "bin") for name in ("skypilot", "xpk")]
        patch.setenv("PATH", os.pathsep.join([*folders, os.environ["PATH"]]))
        patch.setenv("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
        yield


def render(path, **changes):
    settings = {"accelerator": "tpu-v5litepod-16", "spot": True, **changes}
    sky = skypilot.SkyPilot(engine.Settings(**settings))
    path.write_text(sky.task(engine.Submission("table3", JOBS, path.parent, []), path))
    skypilot.require_accepted(path)


def test_skypilot_reads_from_the_task_what_was_meant(tmp_path):
    path = tmp_path / "sweep.yaml"
    render(path, accelerator="H100:8", nodes=2)
    python = ROOT / ".venv-skypilot/bin/python"
    done = subprocess.run([python, "-c", SHOWN, path], capture_output=True, text=True, check=True)
    task = json.loads(done.stdout.splitlines()[-1])
    assert task["name"] == "table3"
    assert task["num_nodes"] == 2
    assert task["workdir"] == str(ROOT)
    assert task["resources"]["accelerators"] == {"H100": 8}
    assert task["resources"]["use_spot"] is True
    recovery = task["resources"]["job_recovery"]
    killed = {128 + end for end in (signal.SIGABRT, signal.SIGKILL, signal.SIGTERM)}
    assert {engine.RUN_AGAIN, *killed} <= {*recovery["recover_on_exit_codes"]}
    assert not {1, 2} & set(recovery["recover_on_exit_codes"])
    assert recovery["max_restarts_on_errors"] == 0
    assert task["envs"] == {"CELL": "0"}
    assert task["setup"].strip().endswith(engine.environment("cuda"))


@pytest.mark.parametrize("changes", [{"nodes": "two"}, {"accelerator": "[unclosed"}])
def test_a_task_that_skypilot_refuses_is_refused_in_one_line(tmp_path, changes):
    with pytest.raises(engine.EngineError, match="SkyPilot refuses the task: ") as caught:
        render(tmp_path / "sweep.yaml", **changes)
    assert "\n" not in str(caught.value)


def test_where_there_was_never_a_managed_job_none_is_in_the_queue(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    try:
        assert skypilot.SkyPilot(engine.Settings()).queue(["x"]) == {}
    finally:
        subprocess.run(["sky", "api", "stop"], check=True)


def workloads(options, **settings):
    return xpk.Xpk(engine.Settings(launcher_options=options, **settings))


def test_xpk_takes_the_commands_and_makes_of_them_what_was_meant():
    options = "--cluster=c --project=p --zone=us-central1-a --dry-run --skip-validation"
    taken = workloads(options, accelerator="v5litepod-16", spot=True, nodes=2)
    for job in JOBS:
        shown = engine.ask(taken.creation(job), "xpk", seconds=120)
        assert f"name: {job.label}" in shown
        assert f"maxRestarts: {xpk.MAX_RESTARTS}" in shown
        assert engine.environment("tpu").split(" && ")[0] in shown
        assert f" && exec {' '.join(COMMAND[:-1])} '--row=A h=1'" in shown
        assert "--distributed" in shown
        assert "replicas: 2" in shown


def test_what_xpk_refuses_is_one_line(tmp_path):
    options = "--cluster=c --project=p --zone=z --dry-run --skip-validation"
    refused = workloads(options, accelerator="v0-none")
    with pytest.raises(engine.EngineError, match="xpk workload create: ") as caught:
        refused.submit(engine.Submission("x", JOBS, tmp_path, []), lambda names: None)
    assert "\n" not in str(caught.value)
