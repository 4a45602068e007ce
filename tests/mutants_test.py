"""The list of faults fits the code."""

import pytest

from tests.mutants import __main__ as mutants
from tests.mutants import faults

LISTED = [(file, fault) for file, listed in faults.FAULTS.items() for fault in listed]


@pytest.mark.parametrize(("file", "fault"), LISTED, ids=[fault.name for _, fault in LISTED])
def test_each_faults_text_stands_once_in_its_file(file, fault):
    text = (mutants.ROOT / file).read_text(encoding="utf-8")
    assert text.count(fault.old) == 1
    assert fault.new != fault.old


def test_fault_names_are_unique():
    assert len({fault.name for _, fault in LISTED}) == len(LISTED)


@pytest.mark.slow
def test_the_tests_that_faults_name_exist():
    code, output = mutants.run_tests(
        mutants.ROOT, "--collect-only", "-n", "0", *sorted({fault.tests for _, fault in LISTED})
    )
    assert code == 0, output
