"""SkyPilot and xpk, each in its own environment, accept what is submitted to them."""

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
# Prints a task as SkyPilot parses it.
PARSE = "import json, sys, sky; print(json.dumps(sky.Task.from_yaml(sys.argv[1]).to_yaml_config()))"


@pytest.fixture(scope="module", autouse=True)
def engines(tmp_path_factory):
    """Finds both programs; SkyPilot keeps its state in a new home, where its server is stopped."""
    with pytest.MonkeyPatch.context() as patch:
        folders = [str(ROOT / f".venv-{name}" / "bin") for name in ("skypilot", "xpk")]
        patch.setenv("PATH", os.pathsep.join([*folders, os.environ["PATH"]]))
        patch.setenv("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield
        subprocess.run(["sky", "api", "stop"], check=False)


def sky(**settings):
    return skypilot.SkyPilot(engine.Settings(**settings))


def test_skypilot_parses_the_task_as_meant(tmp_path):
    path = tmp_path / "sweep.yaml"
    queue = sky(accelerator="H100:8", nodes=2, spot=True)
    path.write_text(queue.task(engine.Submission("table3", JOBS, tmp_path, []), path))
    python = ROOT / ".venv-skypilot/bin/python"
    done = subprocess.run([python, "-c", PARSE, path], capture_output=True, text=True, check=True)
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
    assert task["envs"] == {"RUN": "0"}
    assert task["setup"].strip().endswith(engine.environment("cuda"))


def test_a_task_that_skypilot_refuses_is_an_error_of_one_line(tmp_path):
    queue = sky(accelerator="H100:many")
    with pytest.raises(engine.EngineError, match=r"sky jobs launch: .*H100:many") as caught:
        queue.submit(engine.Submission("x", JOBS, tmp_path, []), lambda jobs: None)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_without_any_managed_job_no_job_is_unfinished():
    assert sky().states(["x"]) == {}


def workloads(options, **settings):
    return xpk.Xpk(engine.Settings(launcher_options=options, **settings))


def test_xpk_creates_the_workloads_that_are_meant():
    options = "--cluster=c --project=p --zone=us-central1-a --dry-run --skip-validation"
    queue = workloads(options, accelerator="v5litepod-16", spot=True, nodes=2)
    for job in JOBS:
        output = engine.ask(queue.create_command(job))
        assert f"name: {job.label}" in output
        assert f"maxRestarts: {xpk.MAX_RESTARTS}" in output
        assert engine.environment("tpu").split(" && ")[0] in output
        assert f" && exec {' '.join(COMMAND[:-1])} '--row=A h=1'" in output
        assert "--distributed" in output
        assert "replicas: 2" in output


def test_a_workload_that_xpk_refuses_is_an_error_of_one_line(tmp_path):
    options = "--cluster=c --project=p --zone=z --dry-run --skip-validation"
    queue = workloads(options, accelerator="v0-none")
    with pytest.raises(engine.EngineError, match="xpk workload create: ") as caught:
        queue.submit(engine.Submission("x", JOBS, tmp_path, []), lambda jobs: None)
    assert "\n" not in str(caught.value)
