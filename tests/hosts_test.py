"""Several processes that train one run: they compute the same as one, and end together."""

import functools
import os
import socket

import jax
import pytest

from tests.faults import faults, processes
from transformer_jax import errors
from transformer_jax.distributed import hosts


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return faults.make_bench(tmp_path_factory.mktemp("hosts"))


@pytest.mark.slow
@pytest.mark.parametrize(("killed", "number_again"), [(0, 4), (2, 2)])
def test_a_process_that_dies_ends_the_others_and_the_run_resumes(bench, killed, number_again):
    faults.one_of_four_killed(bench, killed, number_again)


@pytest.mark.slow
def test_sigterm_to_one_process_stops_all_at_one_step(bench):
    faults.sigterm_to_one_of_two(bench)


@pytest.mark.slow
def test_a_process_that_does_not_start_ends_the_others(bench):
    faults.one_of_three_missing(bench)


@pytest.mark.slow
def test_processes_that_each_hold_all_rows_train_alike(bench):
    # A tensor axis over both processes: each holds every row of the batch.
    workdir = bench.folder / "tensor"
    runs = processes.start_together(2, workdir, bench.cache_dir, mesh__data=1, mesh__tensor=2)
    processes.end_well(runs)
    faults.same_but_for_rounding(workdir, bench)


@pytest.mark.slow
def test_a_process_with_another_corpus_than_the_first_ends(bench):
    workdir = bench.folder / "others"
    silence = f"--silence_timeout={faults.SILENCE}"
    pairs = processes.OVERRIDES["data.toy_pairs"]
    runs = processes.start_together(
        2,
        workdir,
        bench.cache_dir,
        silence,
        own=lambda process: f"--config.data.toy_pairs={pairs - 10 * process}",
    )
    codes = processes.ends(runs, 8 * faults.SILENCE)
    assert codes == [faults.RUN_AGAIN, 2], (runs[0].text(), runs[1].text())
    assert "error: the corpus of this process differs from the first process's" in runs[1].text()
    assert "process 1 (" in runs[0].text()


@pytest.mark.slow
def test_sigterm_stops_the_only_process_of_a_cluster_also_after_it_resumed(bench):
    workdir = bench.folder / "alone"
    steps = 400  # too many to be done before it is told to stop
    for printed in ("step 10 of", "resuming from"):
        (run,) = processes.start_together(1, workdir, bench.cache_dir, train__num_steps=steps)
        assert run.until_printed(printed), run.text()
        run.process.terminate()
        assert run.wait() == faults.RUN_AGAIN, run.text()
    assert processes.checkpoints(workdir)[-1] < steps


def _in_slurm(port, process):
    """Sets the environment of one of two processes that Slurm starts on one host."""
    variables = {"JOB_ID": 1, "STEP_NODELIST": "localhost", "STEP_NUM_TASKS": 2, "NTASKS": 2}
    variables |= {"PROCID": process, "LOCALID": process}
    os.environ.update({f"SLURM_{name}": str(value) for name, value in variables.items()})
    os.environ["JAX_COORDINATOR_PORT"] = str(port)
    initialize = jax.distributed.initialize

    def saying(*arguments, **keywords):
        initialize(*arguments, **keywords)
        print("visible:", jax.config.values["jax_cuda_visible_devices"], flush=True)

    jax.distributed.initialize = saying


def _start_in_slurm(process, port, workdir, cache_dir, *flags):
    """Starts one of two processes that detect each other."""
    before = functools.partial(_in_slurm, port, process)
    name = f"log{process}"
    return processes.start(workdir, cache_dir, "--distributed", *flags, name=name, before=before)


@pytest.mark.slow
def test_processes_of_a_cluster_find_each_other_and_all_devices_of_their_hosts(bench):
    workdir, port = bench.folder / "slurm", processes.free_port()
    runs = [_start_in_slurm(each, port, workdir, bench.cache_dir) for each in range(2)]
    processes.end_well(runs)
    assert "2 processes train together" in runs[0].text()
    for run in runs:
        assert "visible: all" in run.text()
    faults.same_but_for_rounding(workdir, bench)


@pytest.mark.slow
def test_a_process_without_a_cluster_ends(bench):
    run = processes.start(bench.folder / "none", bench.cache_dir, "--distributed")
    assert run.wait() == 2, run.text()
    assert "--distributed detects Cloud TPU, GKE, Slurm" in run.text()
    assert "Traceback" not in run.text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((True, "a:1", -1, -1), "leave out --coordinator"),
        ((False, "a:1", 2, -1), "belong together"),
        ((False, "a", 2, 0), "should be HOST:PORT"),
        ((False, "a:99999", 2, 0), "should be HOST:PORT, the port below 65536"),
        ((False, "a:1", 2, 2), "--process=2 should be below --processes=2"),
    ],
)
def test_incomplete_or_contradictory_flags_are_errors(arguments, message):
    with pytest.raises(errors.UserError, match=message):
        hosts.place(*arguments)


def test_a_port_in_use_is_an_error():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(errors.UserError, match=rf"on port {port} .* in --coordinator"):
            hosts.join(hosts.ProcessPlace(f"localhost:{port}", 2, 0), 5.0, 5.0)


def test_one_of_several_processes_without_flags_is_an_error(monkeypatch):
    for name in hosts.LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    assert hosts.place(False, "", -1, -1) is None
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(errors.UserError, match=r"SLURM_STEP_NUM_TASKS=4.*--distributed"):
        hosts.place(False, "", -1, -1)
