"""A page of results, opened in Chromium."""

import pytest
from selenium.webdriver.support import expected_conditions, wait

from experiments import table3
from experiments.reporting import document
from tests import sweeps
from tests.browser import chromium


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page of three seeds of all rows of Table 3 but two, one of which has failed."""
    workdir = tmp_path_factory.mktemp("report") / "sweep"
    rows = table3.rows_for(sweeps.base())
    sweeps.make(workdir, sweeps.Made(rows, seeds=3, sentences=60), missing=["E", "big"])
    sweeps.fail(workdir, "big", 0, "out of memory")
    document.write(workdir)
    return workdir / "report.html"


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads):
    with chromium.started(downloads=downloads) as driver:
        yield driver


@pytest.fixture
def opened(browser, report):
    """The page, freshly opened, its first figure drawn; nothing may stand in the console then."""
    browser.get(report.as_uri())
    drawn = expected_conditions.presence_of_element_located(chromium.FIRST_FIGURE)
    wait.WebDriverWait(browser, 60).until(drawn)
    yield browser
    assert browser.get_log("browser") == []
