"""The page on paper: all figures, all columns, white, and nothing to press."""

import base64

import pytest
from selenium.webdriver.common.by import By

from tests.browser import chromium

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "it can run")

PAPER = 960  # pixels
WIDER = """
return [...document.querySelectorAll("body *")].filter(element =>
  element.checkVisibility() && element.getBoundingClientRect().right > arguments[0] + 1)
  .map(element => `${element.tagName} ${element.className} ${element.textContent.slice(0, 40)}`);
"""


@pytest.mark.parametrize("width", [500, 1000, 1280])
def test_what_is_printed_is_whole_white_and_has_every_figure(report, width):
    with chromium.started(width, 900, dark=True) as driver:
        driver.get(report.as_uri())
        on_screen = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        driver.execute_script("dispatchEvent(new Event('beforeprint'))")
        chromium.set_scheme(driver, dark=True, media="print")
        size = {"width": PAPER, "height": 680, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        boxes = driver.find_elements(By.CSS_SELECTOR, "section:not([hidden]) .figure")
        assert len(boxes) > 4
        for box in boxes:
            assert not box.is_displayed() or box.find_elements(By.CSS_SELECTOR, ".main-svg")
        assert driver.execute_script(WIDER, PAPER) == []
        beside = driver.find_elements(By.CSS_SELECTOR, ".three .plot")
        ends = [
            each.rect["x"] + each.find_element(By.CSS_SELECTOR, "svg").rect["width"]
            for each in beside
        ]
        assert all(end <= then.rect["x"] for end, then in zip(ends, beside[1:], strict=False))
        printed = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert printed != on_screen
        assert min(map(int, printed.strip("rgb()").split(","))) > 240
        shown = driver.find_elements(By.CSS_SELECTOR, ".controls, .save, #downloads")
        assert shown
        assert not any(each.is_displayed() for each in shown)
        # After it all is as before.
        chromium.set_scheme(driver, dark=True)
        driver.execute_script("dispatchEvent(new Event('afterprint'))")
        again = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert again == on_screen


def test_a_browser_prints_it(report):
    with chromium.started() as driver:
        driver.get(report.as_uri())
        asked = {"preferCSSPageSize": True, "printBackground": False}
        pdf = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", asked)["data"])
        assert pdf.startswith(b"%PDF")
        assert 3 < pdf.count(b"/Type /Page\n") < 20
        assert driver.get_log("browser") == []
