"""Several processes train one run: the losses of one, and names for those that are missing."""

import contextlib
import functools
import itertools
import os
import socket
import time
from concurrent import futures

import jax
import pytest

from tests.faults import faults, processes
from transformer_jax import errors
from transformer_jax.distributed import hosts, rendezvous, sharding


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


def test_who_calls_and_is_none_of_the_processes_does_not_count(monkeypatch):
    monkeypatch.setattr(rendezvous, "SECONDS_TO_SPEAK", 0.2)
    port = processes.free_port()
    places = [rendezvous.ProcessPlace(f"localhost:{port}", 3, each) for each in range(3)]
    with futures.ThreadPoolExecutor() as pool, contextlib.ExitStack() as opened:
        started = [pool.submit(rendezvous.wait_for_all, places[0], 20.0)]
        for said in (b"", b"GET / HTTP/1.1", b"3 stranger", b"1 "):
            stranger = opened.enter_context(_called(port))
            stranger.sendall(said)
        started += [pool.submit(rendezvous.wait_for_all, place, 20.0) for place in places[1:]]
        assert [each.result(30) for each in started] == [None] * 3


def _called(port):
    for _ in range(100):
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("localhost", port))
        time.sleep(0.05)
    raise AssertionError("nobody listens")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_processes_meet_over_either_protocol(host):
    if host == "[::1]":
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:  # as in containers, which can open such sockets and have no such address
            pytest.skip("this machine has no IPv6")
    port = processes.free_port()
    places = [rendezvous.ProcessPlace(f"{host}:{port}", 2, each) for each in range(2)]
    with futures.ThreadPoolExecutor() as pool:
        started = [pool.submit(rendezvous.wait_for_all, place, 20.0) for place in places]
        assert [each.result(30) for each in started] == [None] * 2


def test_the_missing_are_named_and_so_are_those_that_came():
    port = processes.free_port()
    places = [rendezvous.ProcessPlace(f"localhost:{port}", 3, each) for each in (0, 2)]
    here = socket.gethostname()
    message = rf"process 1 of 3 did not come within 5 .*are 0 \({here}\), 2 \({here}\): start all"
    with futures.ThreadPoolExecutor() as pool:
        for each in [pool.submit(rendezvous.wait_for_all, place, 5.0) for place in places]:
            with pytest.raises(errors.UserError, match=message):
                each.result(30)


def test_one_of_many_started_without_saying_so_is_refused(monkeypatch):
    for name in hosts.LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    assert hosts.place(False, "", -1, -1) is None
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(errors.UserError, match=r"SLURM_STEP_NUM_TASKS=4.*--distributed"):
        hosts.place(False, "", -1, -1)
