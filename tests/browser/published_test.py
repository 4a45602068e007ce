"""The page of results that keep less than they had: what it shows, and what it says is missing."""

import pathlib
import re
import shutil
import statistics

import pytest
from selenium.webdriver.common.by import By

from experiments import publish
from experiments.analysis import comparison
from experiments.reporting import document
from experiments.sweep import results
from tests import sweeps
from tests.browser import chromium, report_browser_test

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "it can run")

MULTI30K = pathlib.Path("experiments/published/multi30k")
SCROLL_BAR = 15  # pixels of a window


@pytest.fixture(scope="module")
def multi30k(tmp_path_factory):
    """Real results."""
    workdir = shutil.copytree(MULTI30K, tmp_path_factory.mktemp("multi30k") / "sweep")
    document.write(workdir)
    return workdir / "report.html"


@pytest.fixture
def sweep(tmp_path):
    sweeps.make(tmp_path / "sweep", sweeps.Made(sweeps.some_rows(), sentences=30))
    document.write(tmp_path / "sweep")
    return tmp_path / "sweep"


def test_a_published_copy_shows_the_texts_that_it_has(browser, sweep):
    there = sweep.with_name("published")
    publish.publish(sweep, there)
    document.write(there)
    browser.get((there / "report.html").as_uri())
    report_browser_test.near(browser, "translations")
    report_browser_test.until(browser, lambda: report_browser_test.by_css(browser, "#texts > div"))
    place = browser.find_element(By.ID, "sentence-place").text
    assert place.startswith("Sentence 2 of 30, of which 10 are published")
    report_browser_test.press(browser, "longest")
    assert browser.get_log("browser") == []


def test_marks_are_filled_by_verdicts(browser, multi30k):
    browser.get(multi30k.as_uri())
    report_browser_test.drawn(browser, "figure-differences")
    judged, gaps, symbol, colours = browser.execute_script(
        "const [trace] = document.querySelector('#figure-differences .plot').data;"
        "return [trace.meta, trace.x, trace.marker.symbol, trace.marker.color]"
    )
    assert symbol == "circle"
    scores = {row.name: comparison.scores(row) for row in results.read(multi30k.parent).rows}
    means = [statistics.mean(scores[row]) - statistics.mean(scores["base"]) for row in judged]
    assert gaps == pytest.approx(means)
    table = (multi30k.parent / "table3.md").read_text(encoding="utf-8").split("\n\n")[0]
    verdicts = dict(re.findall(r"^\| (.+?) \|.*\| (\w+)[^|]*\|$", table, re.MULTILINE))
    decided = [verdicts[row] in ("reproduced", "contradicts") for row in judged]
    assert {*zip(decided, colours, strict=True)} == {
        (True, browser.execute_script("return colour('ours')")),
        (False, browser.execute_script("return colour('paper')")),
    }
    said = browser.find_element(By.ID, "reading-differences").text
    assert "A filled mark: surely not 0, at 95% for all rows together." in said


@pytest.mark.parametrize("which", ["report", "multi30k"])
def test_a_table_with_deviations_and_flops_fits_a_window_of_1280_pixels(request, which):
    with chromium.started(1280 - SCROLL_BAR, 900) as driver:
        driver.get(request.getfixturevalue(which).as_uri())
        box = driver.find_element(By.CSS_SELECTOR, "#tables .scroll")
        heads = [head.text for head in box.find_elements(By.CSS_SELECTOR, "thead th")]
        assert len(heads) == 14
        assert any("FLOPs" in head for head in heads)
        assert "±" in report_browser_test.column(driver, 4)[0]
        assert driver.execute_script("return arguments[0].scrollWidth", box) <= box.rect["width"]
