"""The page of results that keep less than they had: what it shows, and what it says is missing."""

import pathlib
import re
import shutil
import statistics

import pytest
from selenium.webdriver.common.by import By

from experiments import publish
from experiments.analysis import comparison, driving
from experiments.reporting import document
from experiments.sweep import results
from tests import sweeps
from tests.browser import chromium, report_browser_test
from transformer_jax.evaluation import bleu

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


def reasons(browser, workdir, row):
    """What stands there once a row's interval is pressed: headings, sentences, and their texts."""
    browser.get((workdir / "report.html").as_uri())
    browser.execute_script(
        "document.querySelector(arguments[0]).click()", f".why[data-row='{row}']"
    )
    return browser.find_element(By.ID, "reasons")


def driven(workdir, row):
    """The sentences behind a row's difference from base, and the difference's sign."""
    sweep = results.read(workdir)
    rows = {each.name: each for each in sweep.rows}
    ours, theirs = (results.counts(sweep, rows[name], bleu.MAIN) for name in (row, "base"))
    found, _ = driving.drivers(ours, theirs, bleu.MAIN)
    scores = [
        [bleu.from_counts(c.sum(0), bleu.MAIN) for c in runs.values()] for runs in (ours, theirs)
    ]
    return found, sum(scores[0]) > sum(scores[1])


def test_sentences_for_and_against_a_difference_stand_apart(browser, sweep):
    heads_seen = set()
    for row in ("A h=1", "E"):
        found, is_higher = driven(sweep, row)
        shown = reasons(browser, sweep, row)
        lists = shown.find_elements(By.TAG_NAME, "ol")
        heads = [head.text for head in shown.find_elements(By.TAG_NAME, "h3")]
        expected: dict[str, list[int]] = {}
        for each in sorted(found, key=lambda each: (each.push > 0) != is_higher):
            is_for = (each.push > 0) == is_higher
            head = "add most to the difference" if is_for else "take most from it"
            expected.setdefault(f"Sentences that {head}", []).append(each.sentence + 1)
        assert heads == list(expected)
        heads_seen |= set(heads)
        for numbers, each in zip(expected.values(), lists, strict=True):
            items = each.find_elements(By.TAG_NAME, "li")
            for item, number in zip(items, numbers, strict=True):
                assert f"sentence {number} " in item.text
    assert len(heads_seen) == 2


def test_bases_sentence_stands_where_the_rows_own_is_not_left(browser, sweep):
    for path in sweep.glob("A-h-1/*/hypotheses.txt"):
        path.unlink()
    document.write(sweep)
    shown = reasons(browser, sweep, "A h=1")
    assert "the results of A h=1 hold only its counts" in shown.text
    found, _ = driven(sweep, "A h=1")
    for name in ("sources", "references", "hypotheses"):
        for each in found:
            folder = results.cell_folder(sweep, "base", each.theirs)
            line = (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()[each.sentence]
            assert line in " ".join(shown.text.replace("‸", "").split())


def test_a_published_copy_shows_the_texts_that_it_has_and_says_what_is_missing(browser, sweep):
    there = sweep.with_name("published")
    publish.publish(sweep, there)
    document.write(there)
    shown = reasons(browser, there, "E")
    assert "the results of E" in shown.text
    assert "and base hold only its counts" in shown.text
    found, _ = driven(sweep, "E")
    places = {30 * (2 * n + 1) // 20 for n in range(publish.EXAMPLES)}
    references = (sweep / "base/seed0/references.txt").read_text(encoding="utf-8").splitlines()
    items = {
        item.text.split("sentence ")[1].split()[0]: item.text
        for item in shown.find_elements(By.TAG_NAME, "li")
    }
    assert len(items) == len(found)
    has_text = {
        each.sentence: references[each.sentence] in items[str(each.sentence + 1)] for each in found
    }
    assert has_text == {place: place in places for place in has_text}
    assert {*has_text.values()} == {True, False}
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
