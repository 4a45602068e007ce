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
LABELS = """
return [...arguments[0].querySelectorAll(".annotation")].filter(element =>
  element.checkVisibility({visibilityProperty: true})).map(element => element.textContent);
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
    assert len(plots) == 10  # two measures, seven sizes, and the curves
    assert browser.get_log("browser") == []
    loaded = browser.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert loaded == []
    answer = browser.find_element(By.CLASS_NAME, "answer").text
    assert answer.endswith("18 of 20 rows run, 3 seeds each.")
    notes = browser.find_elements(By.CSS_SELECTOR, "details p")
    assert any(
        "Failed: big (seed 0: out of memory)" in note.get_attribute("textContent") for note in notes
    )


def test_an_outlier_has_an_arrow_and_leaves_the_scale_to_the_rest(browser, report):
    figure, *_ = opened(browser, report)
    traces, low, high = browser.execute_script(
        "const {data, layout} = arguments[0];"
        "return [data.map(({name, x, text}) => [name, x, text]), ...layout.xaxis.range]",
        figure,
    )
    shown = {name: (x, text) for name, x, text in traces}
    (arrow,), (outlier,) = shown["beyond the axis"]
    assert low < arrow < min(shown["ours"][0])
    assert max(shown["ours"][0]) < high
    assert outlier.startswith("−")
    assert any(each.text == outlier for each in figure.find_elements(By.TAG_NAME, "text"))


def test_panels_share_their_rows_beside_each_other_only(browser, report):
    score, log_ppl, *_ = opened(browser, report)
    assert browser.execute_script(LABELS, score)[0].endswith("A: attention heads")
    assert any(
        "C N=2 · depth 3→1 (paper 6→2)" in text for text in browser.execute_script(LABELS, score)
    )
    assert not browser.execute_script(LABELS, log_ppl)
    with chromium.started(400, 900) as narrow:
        score, log_ppl, *_ = opened(narrow, report)
        assert narrow.execute_script(LABELS, log_ppl) == narrow.execute_script(LABELS, score)


def test_curves_show_base_and_the_three_largest_effects_first(browser, report):
    *_, curves = opened(browser, report)

    def names():
        script = "return arguments[0].data.filter(({name}) => name).map(({name}) => name)"
        return browser.execute_script(script, curves)

    assert len(names()) == 4
    assert {"base", "E"} < {*names()}
    browser.find_element(By.CSS_SELECTOR, "fieldset input[value='1']").send_keys(Keys.SPACE)
    assert "A h=1" in names()
    assert len(names()) == 5
    button = browser.find_element(By.ID, "difference")
    button.send_keys(Keys.ENTER)
    assert button.get_attribute("aria-pressed") == "true"
    base = "return arguments[0].data.find(({name}) => name === 'base').y"
    assert set(browser.execute_script(base, curves)) == {0}


def test_a_row_is_chosen_for_the_sentences(browser, report):
    opened(browser, report)
    browser.find_element(By.CSS_SELECTOR, "#row option[value='B d_k=16']").click()
    terms = browser.find_elements(By.CSS_SELECTOR, ".chosen")
    assert {term.text for term in terms} == {"B d_k=16"}
    assert len(terms) == 10


def test_links_at_the_top_open_their_parts(browser, report):
    opened(browser, report)
    links = browser.find_elements(By.CSS_SELECTOR, "nav a")
    assert len(links) > 5
    for link in links:
        link.click()
        part = browser.find_element(By.CSS_SELECTOR, link.get_attribute("hash"))
        if part.tag_name == "details":
            assert part.get_attribute("open")


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
        region = driver.find_element(By.CSS_SELECTOR, "#rows .scroll")
        region.send_keys(Keys.ARROW_RIGHT)
        wait.WebDriverWait(driver, 5).until(
            lambda _: driver.execute_script("return arguments[0].scrollLeft", region)
        )
        runs = driver.find_element(By.ID, "runs")
        summary = runs.find_element(By.TAG_NAME, "summary")
        assert not runs.get_attribute("open")
        summary.send_keys(Keys.ENTER)
        assert runs.get_attribute("open")


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
                    ("fill", figure.find_element(By.CSS_SELECTOR, ".xtick text")),
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
