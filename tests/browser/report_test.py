"""The page of a sweep in Chromium: all widths, light and dark, on paper, and under axe-core."""

import base64
import pathlib

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import wait

from tests.browser import chromium

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "it can run")

AXE = pathlib.Path(".venv-axe/axe_playwright_python/axe.min.js")
WIDTHS = (400, 800, 1600)
RUN_AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(found => done([
  found.violations.map(({id, nodes}) => [id, nodes[0].html, nodes[0].failureSummary]),
  found.passes.map(({id}) => id)]));
"""
# Elements beyond the right edge, without those in a region that scrolls.
BEYOND = """
return [...document.querySelectorAll("body *")].filter(element =>
  !element.closest(".scroll") && element.checkVisibility() &&
  element.getBoundingClientRect().right > arguments[0] + 1).map(element => element.outerHTML);
"""
# Texts and marks of a figure beyond its box.
CUT = """
return [...document.querySelectorAll(".plot")].flatMap(plot => {
  const box = plot.getBoundingClientRect();
  return [...plot.querySelectorAll("text, .point")].filter(element => {
    const own = element.getBoundingClientRect();
    return own.width && (own.left < box.left - 1 || own.right > box.right + 1);
  }).map(element => element.outerHTML);
});
"""
BACKGROUND = "return getComputedStyle(document.body).backgroundColor"


def opened(driver, report):
    """Opens the page and waits for its figures."""
    driver.get(report.as_uri())
    plots = driver.find_elements(By.CSS_SELECTOR, ".plot")
    wait.WebDriverWait(driver, 60).until(
        lambda _: all(plot.find_elements(By.CSS_SELECTOR, ".main-svg") for plot in plots)
    )
    return plots


def luminance(driver):
    return min(map(int, driver.execute_script(BACKGROUND).strip("rgb()").split(",")))


def test_the_page_opens_without_errors_and_without_a_network(browser, report):
    plots = opened(browser, report)
    assert len(plots) == 3
    assert browser.get_log("browser") == []
    loaded = browser.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert loaded == []
    answer = browser.find_element(By.CLASS_NAME, "answer").text
    assert answer.startswith("18 of 20 rows, 3 seeds.")
    notes = browser.find_elements(By.CSS_SELECTOR, "details p")
    assert any("Failed: big (seed 0: out of memory)" in note.text for note in notes)


def test_an_outlier_has_an_arrow_and_leaves_the_scale_to_the_rest(browser, report):
    figure, *_ = opened(browser, report)
    traces, low, high, names = browser.execute_script(
        "const {data, layout} = arguments[0];"
        "return [data.map(({name, x}) => [name, x]), ...layout.xaxis.range, layout.yaxis.ticktext]",
        figure,
    )
    shown = dict(traces)
    (arrow,) = shown["beyond the axis"]
    assert low < arrow < min(shown["ours"])
    assert max(shown["ours"]) < high
    (outlier,) = [name for name in names if ": " in name]
    assert outlier.startswith("E: −")
    assert any(each.text == outlier for each in figure.find_elements(By.TAG_NAME, "text"))


def test_base_and_the_three_largest_effects_are_drawn_first(browser, report):
    *_, curves = opened(browser, report)
    drawn = browser.execute_script(
        "return arguments[0].data.filter(({visible}) => visible === true).map(({name}) => name)",
        curves,
    )
    assert "base" in drawn
    assert "E" in drawn
    assert len(drawn) == 4


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_and_nothing_overflows(report, width):
    with chromium.started(width, 900) as driver:
        opened(driver, report)
        assert driver.execute_script(BEYOND, width) == []
        assert driver.execute_script(CUT) == []
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_tables_scroll_and_details_open_by_keyboard(report):
    with chromium.started(400, 900) as driver:
        opened(driver, report)
        region = driver.find_element(By.CSS_SELECTOR, ".scroll")
        region.send_keys(Keys.ARROW_RIGHT)
        wait.WebDriverWait(driver, 5).until(
            lambda _: driver.execute_script("return arguments[0].scrollLeft", region)
        )
        provenance = driver.find_elements(By.CSS_SELECTOR, "details")[-1]
        summary = provenance.find_element(By.TAG_NAME, "summary")
        assert not provenance.get_attribute("open")
        summary.send_keys(Keys.ENTER)
        assert provenance.get_attribute("open")


@pytest.mark.skipif(not AXE.exists(), reason=f"{AXE} is not there: make browser fetches it")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS[::2])
def test_axe_has_no_findings(report, width, dark):
    with chromium.started(width, 900, dark) as driver:
        opened(driver, report)
        assert (luminance(driver) < 128) == dark
        driver.execute_script(
            "for (const each of document.querySelectorAll('details')) each.open = true"
        )
        driver.execute_script(AXE.read_text(encoding="utf-8"))
        findings, passes = driver.execute_async_script(RUN_AXE)
        assert findings == []
        expected = {"color-contrast"} | ({"scrollable-region-focusable"} if width < 800 else set())
        assert expected <= set(passes)


def test_texts_of_figures_follow_the_colours_of_the_page(report):
    for dark in (False, True):
        with chromium.started(800, 900, dark) as driver:
            figure, *_ = opened(driver, report)
            colour, text = (
                driver.execute_script(f"return getComputedStyle(arguments[0]).{name}", element)
                for name, element in (
                    ("color", driver.find_element(By.TAG_NAME, "body")),
                    ("fill", figure.find_element(By.CSS_SELECTOR, ".ytick text")),
                )
            )
            assert text == colour


def test_the_page_prints_white_with_its_figures_and_notes(report):
    with chromium.started(1280, 900, dark=True) as driver:
        opened(driver, report)
        driver.execute_script("dispatchEvent(new Event('beforeprint'))")
        chromium.set_scheme(driver, dark=True, media="print")
        assert luminance(driver) == 255
        assert driver.execute_script(CUT) == []
        assert all(
            each.get_attribute("open") for each in driver.find_elements(By.TAG_NAME, "details")
        )
        widths = [each.rect["width"] for each in driver.find_elements(By.CSS_SELECTOR, ".main-svg")]
        assert max(widths) <= 690  # pixels of a page of A4 between its margins
        options = {"preferCSSPageSize": True, "printBackground": False}
        pdf = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", options)["data"])
        assert pdf.startswith(b"%PDF")
        assert 2 < pdf.count(b"/Type /Page\n") < 20
        chromium.set_scheme(driver, dark=True)
        driver.execute_script("dispatchEvent(new Event('afterprint'))")
        assert luminance(driver) < 128
