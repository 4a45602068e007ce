"""Faults done to real runs, in short; `make faults` does all of them, and many more kills."""

import pytest

from tests.faults import faults

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return faults.make_bench(tmp_path_factory.mktemp("faults"))


def test_killed_at_any_moment_a_run_ends_bit_for_bit_the_same(bench):
    assert sum(faults.kills(bench, len(faults.MOMENTS), seed=0).values()) == len(faults.MOMENTS)


def test_sigterm_leaves_a_checkpoint_of_the_last_step(bench):
    faults.sigterm(bench)


def test_a_damaged_checkpoint_is_set_aside_for_the_one_before(bench):
    faults.damaged_checkpoint(bench, "a flipped bit")


def test_a_second_run_in_a_folder_is_refused(bench):
    faults.two_in_one_folder(bench)


@pytest.mark.parametrize("fault", [faults.full_disk, faults.read_only_folder])
def test_a_disk_that_takes_no_more_loses_nothing(bench, fault):
    try:
        fault(bench)
    except faults.NoDiskError:
        pytest.skip("this user may not mount a disk")
