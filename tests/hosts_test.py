"""Several processes train one run: the losses of one, and names for those that are missing."""

import functools
import itertools
import os
import socket

import jax
import pytest

from tests.faults import faults, processes
from transformer_jax import errors
from transformer_jax.distributed import hosts, sharding


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return faults.make_bench(tmp_path_factory.mktemp("hosts"))


@pytest.mark.slow
def test_a_process_that_dies_is_named_and_two_can_go_on_where_four_were(bench):
    faults.one_of_four_killed(bench, killed=2, number_again=2)


@pytest.mark.slow
def test_sigterm_to_one_process_stops_all_at_one_step(bench):
    faults.sigterm_to_one_of_two(bench)


@pytest.mark.slow
def test_a_process_that_does_not_come_is_named(bench):
    faults.one_of_three_missing(bench)


@pytest.mark.slow
def test_processes_that_hold_other_rows_than_their_share_train_alike(bench):
    # A tensor axis over both processes: each holds every row of the batch.
    workdir = bench.folder / "tensor"
    runs = processes.start_together(2, workdir, bench.cache_dir, mesh__data=1, mesh__tensor=2)
    processes.end_well(runs)
    faults.same_but_for_rounding(workdir, bench)


def _fail_at_step_10():
    """Makes the process that calls it raise in the middle of training."""
    put, calls = sharding.put, itertools.count()

    def failing(*arguments):
        if next(calls) == 10:
            raise MemoryError("of this process alone")
        return put(*arguments)

    sharding.put = failing


@pytest.mark.slow
def test_an_error_in_one_process_ends_all(bench):
    workdir = bench.folder / "error"
    runs = processes.start_together(
        2,
        workdir,
        bench.cache_dir,
        f"--silence_timeout={faults.SILENCE}",
        before=(None, _fail_at_step_10),
        checkpoint__every=4,
    )
    assert runs[0].until_printed("step 10 of"), runs[0].text()
    assert 0 not in processes.ends(runs, 8 * faults.SILENCE)
    assert "of this process alone" in runs[1].text()
    assert "process 1 (" in runs[0].text()


@pytest.mark.slow
def test_processes_that_read_other_text_than_the_first_are_refused(bench):
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
    assert "error: this process has not the first one's corpus" in runs[1].text()
    assert "process 1 (" in runs[0].text()


@pytest.mark.slow
def test_a_lone_process_of_a_cluster_heeds_sigterm_also_after_it_was_resumed(bench):
    workdir = bench.folder / "alone"
    steps = 400  # too many to be done before it is told to stop
    for printed in ("step 10 of", "going on from"):
        (run,) = processes.start_together(1, workdir, bench.cache_dir, train__num_steps=steps)
        assert run.until_printed(printed), run.text()
        run.process.terminate()
        assert run.wait() == faults.RUN_AGAIN, run.text()
    assert processes.checkpoints(workdir)[-1] < steps


def _in_slurm(port, process):
    """Makes the process that calls it one of two that Slurm has started on one host."""
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
    """Starts one of two processes that are to find each other."""
    before = functools.partial(_in_slurm, port, process)
    name = f"log{process}"
    return processes.start(workdir, cache_dir, "--distributed", *flags, name=name, before=before)


@pytest.mark.slow
def test_processes_of_a_cluster_find_each_other_and_see_all_devices_of_their_hosts(bench):
    workdir, port = bench.folder / "slurm", processes.free_port()
    runs = [_start_in_slurm(each, port, workdir, bench.cache_dir) for each in range(2)]
    processes.end_well(runs)
    assert "2 processes train together" in runs[0].text()
    for run in runs:
        assert "visible: all" in run.text()
    faults.same_but_for_rounding(workdir, bench)


@pytest.mark.slow
def test_of_a_cluster_each_process_that_came_says_where_it_is(bench):
    workdir, port = bench.folder / "late", processes.free_port()
    run = _start_in_slurm(1, port, workdir, bench.cache_dir, "--start_timeout=5")
    assert run.wait() == 2, run.text()
    (line,) = [line for line in run.text().splitlines() if line.startswith("error: ")]
    assert line.startswith(f"error: {socket.gethostname()}: not all processes came within 5 sec")


@pytest.mark.slow
def test_a_process_of_no_cluster_is_refused(bench):
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
def test_flags_that_do_not_say_where_a_process_stands_are_refused(arguments, message):
    with pytest.raises(errors.UserError, match=message):
        hosts.place(*arguments)


def test_one_of_many_started_without_saying_so_is_refused(monkeypatch):
    assert hosts.place(False, "", -1, -1) is None
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(errors.UserError, match=r"SLURM_STEP_NUM_TASKS=4.*--distributed"):
        hosts.place(False, "", -1, -1)
