"""Several processes train one run: the losses of one, and names for those that are missing."""

import pytest

from tests.faults import faults, processes
from transformer_jax import config as config_lib
from transformer_jax.processes import hosts


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return faults.make_bench(tmp_path_factory.mktemp("hosts"))


def test_a_process_that_dies_is_named_and_two_can_go_on_where_four_were(bench):
    faults.one_of_four_killed(bench, killed=2, number_again=2)


def test_sigterm_to_one_process_stops_all_at_one_step(bench):
    faults.sigterm_to_one_of_two(bench)


def test_a_process_that_does_not_come_is_named(bench):
    faults.one_of_three_missing(bench)


def test_processes_that_hold_other_rows_than_their_share_train_alike(bench):
    # A tensor axis over both processes: each holds every row of the batch.
    workdir = bench.folder / "tensor"
    runs = processes.start_together(2, workdir, bench.cache_dir, mesh__data=1, mesh__tensor=2)
    processes.end_well(runs)
    faults.same_but_for_rounding(workdir, bench)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((True, "a:1", -1, -1), "leave out --coordinator"),
        ((True, "", -1, -1), "no cluster that JAX detects"),
        ((False, "a:1", 2, -1), "belong together"),
        ((False, "a", 2, 0), "should be HOST:PORT"),
        ((False, "a:1", 2, 2), "--process=2 should be below --processes=2"),
    ],
)
def test_flags_that_do_not_say_where_a_process_stands_are_refused(arguments, message):
    with pytest.raises(config_lib.UserError, match=message):
        hosts.place(*arguments)


def test_one_of_many_started_without_saying_so_is_refused(monkeypatch):
    assert hosts.place(False, "", -1, -1) is None
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(config_lib.UserError, match=r"SLURM_STEP_NUM_TASKS=4.*--distributed"):
        hosts.place(False, "", -1, -1)
