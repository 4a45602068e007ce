"""A page of results in Chromium."""

import pytest

from experiments import table3
from experiments.results import report as report_lib
from tests import sweeps
from tests.browser import chromium


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """Returns the page of all rows of Table 3, one an outlier, one failed and one not run."""
    workdir = tmp_path_factory.mktemp("report") / "sweep"
    rows = table3.rows_for(sweeps.base())
    made = sweeps.Made(rows, seeds=3, sentences=60, slope=0.02, tested=True)
    sweeps.make(workdir, made, missing=["C N=4", "big"])
    sweeps.fail(workdir, "big", 0, "out of memory")
    for seed in range(made.seeds):
        sweeps.spoil(sweeps.folder(workdir, "E", seed))
    report_lib.write(workdir)
    return workdir / "report.html"


@pytest.fixture(scope="session")
def browser():
    with chromium.started() as driver:
        yield driver
