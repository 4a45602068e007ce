"""Sweeps on a private Slurm of two nodes have the results of sweeps on this machine."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from experiments.scheduling import submissions
from experiments.sweep import store
from tests import tiny
from tests.slurm import cluster as cluster_lib

FLAGS = ["--rows=base,E", "--seeds=2"]
SETTINGS = {
    **tiny.OVERRIDES,
    "model.num_layers": 3,  # rows of table3 use a third of the layers
    "model.d_model": 64,
    "model.num_heads": 8,
    "model.d_k": 8,
    "model.d_v": 8,
    "train.num_steps": 400,
    "checkpoint.every": 50,
    "log.every": 20,
}
RUNS = [(row, seed) for row in ("base", "E") for seed in (0, 1)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if reason := cluster_lib.missing():
        pytest.skip(reason)
    private = cluster_lib.Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        private.start()
        yield private
    finally:
        private.stop()


def sweep(workdir, *flags, environment=None):
    """Starts a sweep by its command; all sweeps share a cache."""
    command = [
        sys.executable,
        "-m",
        "experiments.table3",
        "--config=configs/toy.py",
        *(f"--config.{name}={value}" for name, value in SETTINGS.items()),
        f"--workdir={workdir}",
        f"--cache_dir={workdir.parent / 'cache'}",
        *flags,
    ]
    settings = {**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "200", **(environment or {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=settings)


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    """The folder of all sweeps."""
    return tmp_path_factory.mktemp("sweeps")


@pytest.fixture(scope="module")
def here(sweeps):
    """A sweep on this machine: two runs at a time, each on one core, as on the nodes."""
    workdir = sweeps / "here"
    done = sweep(workdir, *FLAGS, "--parallel=2")
    assert done.returncode == 0, done.stderr
    return workdir


def folder_of(workdir, row_and_seed):
    """Returns the folder of a run in a sweep's folder."""
    for run in store.read(workdir).runs:
        if (run.row, run.seed) == row_and_seed:
            return store.locate(workdir, run)
    raise KeyError(row_and_seed)


def steps(workdir, run):
    """Returns the last step that a run has logged."""
    path = folder_of(workdir, run) / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def losses(workdir, run):
    lines = (folder_of(workdir, run) / "metrics.jsonl").read_text().splitlines()
    records = map(json.loads, lines)
    return {record["step"]: record["loss"] for record in records if "loss" in record}


def queued(cluster, workdir):
    """Returns the state and node of each queued run, by row and seed."""
    submitted = submissions.read(workdir)
    runs = {
        submitted[run.config_hash].job: (run.row, run.seed)
        for run in store.read(workdir).runs
        if run.config_hash in submitted
    }
    jobs = {"_".join(job[:2]): job[2:] for job in cluster.jobs()}
    return {run: jobs[job] for job, run in runs.items() if job in jobs}


def training_run(cluster, workdir, node):
    """Waits until a run on a node has trained for some steps; returns its row and seed."""
    training = []

    def is_training():
        for run, job in queued(cluster, workdir).items():
            if job == ("RUNNING", node) and 50 < steps(workdir, run) < 200:
                training.append(run)
        return bool(training)

    cluster.wait(is_training, f"a run that trains on {node}", 300)
    return training[0]


def test_a_preempted_run_and_a_killed_node_do_not_change_results(cluster, here):
    workdir = here.with_name("slurm")
    done = sweep(
        workdir,
        *FLAGS,
        "--launcher=slurm",
        "--launcher_options=--time=1:00:00",
        environment=cluster.environment,
    )
    assert done.returncode == 0, done.stderr
    assert "submitted array" in done.stderr
    again = sweep(workdir, *FLAGS, "--launcher=slurm", environment=cluster.environment)
    assert "4 runs are in the engine's queue already" in again.stderr
    assert len(queued(cluster, workdir)) == 4

    preempted = training_run(cluster, workdir, "n0")
    cluster.command(
        "sbatch",
        "--parsable",
        "--partition=high",
        "--nodelist=n0",
        "--output=/dev/null",
        "--wrap=sleep 3",
    )
    path = folder_of(workdir, preempted) / "log.txt"
    cluster.wait(lambda: "stopped by SIGTERM" in path.read_text(), "the notice of preemption", 60)

    killed = training_run(cluster, workdir, "n1")
    cluster.kill_node("n1")
    cluster.wait(lambda: cluster.states()["n1"].startswith("down"), "n1 is missed", 90)
    cluster.start_node("n1")
    cluster.wait(lambda: not cluster.jobs(), "the sweep", 900)

    for run in (preempted, killed):
        log = (folder_of(workdir, run) / "log.txt").read_text()
        assert re.search("resuming from the checkpoint of step [1-9]", log), run
    for run in RUNS:
        folders = [folder_of(folder, run) for folder in (workdir, here)]
        for name in ("hypotheses.txt", "bleu_counts.json"):
            ours, theirs = ((folder / name).read_bytes() for folder in folders)
            assert ours == theirs, run
        ours, theirs = (json.loads((folder / "result.json").read_text()) for folder in folders)
        assert ours["ppl"] == theirs["ppl"]
        assert ours["bleu"] == theirs["bleu"]
        assert losses(workdir, run)[400] == losses(here, run)[400]
    table = (workdir / "table3.md").read_text()  # written by the job that waits for the array
    assert table == (here / "table3.md").read_text()


def test_a_run_on_two_nodes_has_the_losses_of_one_node(cluster, here):
    workdir = here.with_name("two_nodes")
    done = sweep(
        workdir,
        "--rows=base",
        "--launcher=slurm",
        "--nodes=2",
        "--config.train.num_steps=200",
        environment=cluster.environment,
    )
    assert done.returncode == 0, done.stderr
    cluster.wait(lambda: not cluster.jobs(), "the run on two nodes", 600)
    log = (folder_of(workdir, ("base", 0)) / "log.txt").read_text()
    assert "2 processes train together" in log
    ours, theirs = losses(workdir, ("base", 0)), losses(here, ("base", 0))
    assert max(ours) == 200
    assert max(abs(ours[step] - theirs[step]) for step in ours) < 1e-4


def test_a_cancelled_run_is_reported_as_lost_and_submitted_again(cluster, sweeps):
    workdir = sweeps / "lost"
    flags = ["--rows=base", "--launcher=slurm"]
    assert not sweep(workdir, *flags, environment=cluster.environment).returncode
    assert list(queued(cluster, workdir)) == [("base", 0)]
    (submission,) = submissions.read(workdir).values()
    cluster.wait(lambda: steps(workdir, ("base", 0)) > 0, "the run trains", 120)
    cluster.command("scancel", submission.job)
    cluster.wait(lambda: not queued(cluster, workdir), "the end of the run", 60)
    time.sleep(15)  # longer than Slurm needs to requeue a job
    assert not queued(cluster, workdir)
    status = sweep(workdir, "--rows=base", "--status", environment=cluster.environment)
    assert re.search(r"base +0 +lost", status.stdout), status.stdout
    again = sweep(workdir, *flags, environment=cluster.environment)
    assert again.returncode == 0, again.stderr
    assert len(queued(cluster, workdir)) == 1
    changed = sweep(
        workdir, *flags, "--config.train.warmup_steps=9", environment=cluster.environment
    )
    assert changed.returncode == 0, changed.stderr  # it is another run, in another folder
    assert len(queued(cluster, workdir)) == 1
    assert len(submissions.read(workdir)) == 2
    cluster.command("scancel", "--user=root")
    cluster.wait(lambda: not cluster.jobs(), "an empty queue")


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        (["--launcher_options=--partition=none"], {}, "invalid partition"),
        (["--launcher_options=--nonsense"], {}, "unrecognized option '--nonsense'"),
        (["--launcher_options=-a 0-1"], {}, "--array is not for --launcher_options"),
        (["--launcher_options='"], {}, "No closing quotation"),
        (["--slurm_script=none.sh"], {}, "--slurm_script=none.sh is no file"),
        ([], {"PATH": "/bin/none"}, "--launcher=slurm needs sbatch, which is not installed here"),
    ],
)
def test_options_that_slurm_refuses_are_errors_of_one_line_and_submit_nothing(
    cluster, sweeps, flags, environment, message
):
    workdir = sweeps / "refused"
    settings = {**cluster.environment, **environment}
    done = sweep(workdir, "--rows=base", "--launcher=slurm", *flags, environment=settings)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert not cluster.jobs()
    assert not list(workdir.glob("slurm/*"))
