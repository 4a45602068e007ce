"""What axe-core says of the page: whether it can be read and worked without eyes or a mouse."""

import pathlib
import time

import pytest
from selenium.webdriver.common.by import By

from experiments.reporting import document
from tests import sweeps
from tests.browser import both_sets_test, chromium

AXE = pathlib.Path(".venv-axe/axe_playwright_python/axe.min.js")
pytestmark = [
    pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "it can run"),
    pytest.mark.skipif(not AXE.exists(), reason=f"{AXE} is not there: make browser fetches it"),
]
RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(found => done([
  found.violations.map(({id, nodes}) => [id, nodes[0].html, nodes[0].failureSummary]),
  found.passes.map(({id}) => id)]));
"""
# Over a shade axe judges no colours.
WITHOUT_SHADE = (
    "for (const box of document.querySelectorAll('.scroll')) box.style.background = 'none'"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("axe") / "sweep"
    sweeps.make(workdir, sweeps.Made(sweeps.some_rows()), missing=["E"])
    both_sets_test.score_test(workdir)
    document.write(workdir)
    return workdir / "report.html"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_amiss(report, width, dark):
    with chromium.started(width, 900, dark) as driver:
        driver.get(report.as_uri())
        for section in driver.find_elements(By.CSS_SELECTOR, "main > section"):
            driver.execute_script("arguments[0].scrollIntoView()", section)
            time.sleep(0.3)
        driver.execute_script(WITHOUT_SHADE)
        driver.execute_script(AXE.read_text(encoding="utf-8"))
        amiss, well = driver.execute_async_script(RUN)
        assert amiss == []
        assert {"button-name", "color-contrast", "select-name"} <= set(well)  # it has looked
