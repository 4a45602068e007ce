"""How soon a large page of a sweep stands there."""

import os

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions, wait

from experiments import table3
from experiments.reporting import document
from tests import sweeps
from tests.browser import chromium

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "it can run")

# For 1,000 sentences × 60 runs, on a machine that nothing else wants.
OPEN_SECONDS = 1.0  # words and tables, and whatever can be pressed
FIGURE_SECONDS = 3.0  # the first figure: most of it starts Plotly, 4.8 MB of code
OPENED = "return performance.getEntriesByType('navigation')[0].loadEventEnd"


def test_a_thousand_sentences_of_sixty_runs_open_in_a_second_and_figures_follow(tmp_path):
    rows = table3.rows_for(sweeps.base())
    words = ["und", "noch", "mehr", "Wörter"]
    sweeps.make(tmp_path, sweeps.Made(rows, seeds=3, sentences=1000, words=words, steps=200))
    document.write(tmp_path)
    found = {"open": [], "first figure": [], "both, the page's own": []}
    for _ in range(3):
        with chromium.started() as driver:
            driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            driver.get((tmp_path / "report.html").as_uri())
            opened = driver.execute_script(OPENED)
            table = driver.find_elements(By.CSS_SELECTOR, "#tables .scroll:first-of-type tbody tr")
            assert len(table) == 20
            stands = expected_conditions.presence_of_element_located(chromium.FIRST_FIGURE)
            wait.WebDriverWait(driver, 60, 0.05).until(stands)
            drawn = driver.execute_script("return performance.now()")
            metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            own = {each["name"]: each["value"] for each in metrics}["TaskDuration"]
            assert driver.get_log("browser") == []
        for name, seconds in zip(found, (opened / 1000, drawn / 1000, own), strict=True):
            found[name].append(seconds)
    for name, seconds in found.items():
        print(f"seconds, {name}: {', '.join(f'{each:.2f}' for each in seconds)}")
    # Where others want the processors too, what counts is what the page itself takes of them.
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        assert min(found["both, the page's own"]) < FIGURE_SECONDS
    else:
        assert min(found["open"]) < OPEN_SECONDS
        assert min(found["first figure"]) < FIGURE_SECONDS
