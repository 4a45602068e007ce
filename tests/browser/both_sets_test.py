"""The page of a sweep that was scored on both sets: where they differ, and the way to sentences."""

import json
import re
import shutil

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from experiments.analysis import driving
from experiments.reporting import document
from experiments.sweep import results
from tests import own_names_test, sweeps
from tests.browser import chromium, published_test, report_browser_test
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "it can run")


def score_test(workdir):
    """Gives each run a test set: the development set's sentences in the opposite order.

    In it A h=1 has a word of each sentence less.
    """
    for folder in {path.parent for path in workdir.glob("*/*/result.json")}:
        for name in ("sources", "references", "hypotheses"):
            lines = (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()
            text = "".join(f"test: {line}\n" for line in lines[::-1])
            (folder / f"test_{name}.txt").write_text(text, encoding="utf-8")
        counts = np.array(json.loads((folder / "bleu_counts.json").read_bytes())[bleu.MAIN])[::-1]
        if folder.parent.name == "A-h-1":
            counts[:, 2:6] = np.maximum(counts[:, 2:6] - 1, 0)
        sweeps.keep_counts(folder, counts.tolist(), "test")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Made-up results that have kept the texts of both sets."""
    workdir = tmp_path_factory.mktemp("both") / "sweep"
    sweeps.make(workdir, sweeps.Made(sweeps.some_rows(), sentences=30))
    score_test(workdir)
    document.write(workdir)
    return workdir


@pytest.fixture(scope="module")
def multi30k(tmp_path_factory):
    """Real results without texts of the test set; a row has lost its run."""
    workdir = tmp_path_factory.mktemp("multi30k") / "sweep"
    shutil.copytree(published_test.MULTI30K, workdir)
    shutil.rmtree(workdir / "C-d_ff-1024")
    document.write(workdir)
    return workdir


def opened(browser, workdir):
    """The page, its first figure drawn; it is to be read from its top."""
    browser.get((workdir / "report.html").as_uri())
    report_browser_test.drawn(browser, "figure-differences")
    report_browser_test.until(browser, lambda: report_browser_test.by_css(browser, ".marks button"))
    browser.execute_script("scrollTo(0, 0)")
    return browser


def column(workdir, title, head):
    """Cells of a table by row, of those that are not empty, as a reader of table3.md has them."""
    parts = (workdir / "table3.md").read_text(encoding="utf-8").split("## ")
    part = next(part for part in parts if part.startswith(title))
    lines = [line for line in part.splitlines() if line.startswith("|")]
    heads, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {line[0]: line[heads.index(head)] for line in lines if line[heads.index(head)]}


def test_a_row_is_called_by_its_size_here_and_the_papers_stands_in_brackets(browser, multi30k):
    page = opened(browser, multi30k)
    said = page.find_element(By.ID, "on-names").text
    assert "B d_k=4 (paper: 16). Files and commands call it B d_k=16." in said
    papers = {
        name for name, (own, _) in own_names_test.SCALED.items() if own.split(" (")[0] != name
    }
    shown = page.execute_script("return document.querySelector('main').textContent")
    for name in papers:  # of the paper's base; half of a size may be another row's name
        if name not in {"C N=2", "C N=4", "C d_model=256", "C d_ff=1024"}:
            assert not re.search(rf"{re.escape(name)}(?![\d(])", shown), name
    heads = [
        head.text.replace("\n", " ")
        for head in report_browser_test.by_css(page, "#tables tbody th")
    ]
    named = heads.count("C d_model=64 (paper: 256)")
    assert named == heads.count("D P_drop=0.0") >= 3  # all rows, what came, the test set, others
    ticks = [
        tick.text for tick in report_browser_test.by_css(page, "#figure-differences .ytick text")
    ]
    assert "C d_model=64 (paper: 256)" in ticks
    report_browser_test.near(page, "notes")
    assert "“C d_ff=256 (paper: 1024)”" in page.find_element(By.ID, "notes").text


def test_both_sets_have_their_intervals_in_the_figure_and_in_tables(browser, multi30k):
    page = opened(browser, multi30k)
    traces = page.execute_script(
        "return document.querySelector('#figure-differences .plot').data.map(each =>"
        " [each.name ?? '', each.meta, each.x, each.error_x?.array ?? []])"
    )
    for name, title, head in (("dev", "| row", "− base"), ("test", "Test set", "test: − base")):
        cells = column(multi30k, title, head)
        expected = {row: cell.split(" ± ") for row, cell in cells.items() if " ± " in cell}
        drawn_rows = {
            row: [tables.signed(mean), f"{half:.2f}"]
            for own, meta, means, halves in traces
            for row, mean, half in zip(meta, means, halves, strict=False)
            if own == name and half is not None
        }
        assert drawn_rows == expected
        bars = report_browser_test.by_css(page, f".why[data-set={name}]")
        assert {bar.get_attribute("data-row") for bar in bars} == set(expected)


def test_a_bar_far_longer_than_others_runs_out_of_the_figure(browser, multi30k):
    page = opened(browser, multi30k)
    low, high, bars = page.execute_script(
        "const plot = document.querySelector('#figure-differences .plot');"
        "return [...plot._fullLayout.xaxis.range, plot.data.flatMap(each => each.error_x"
        " ? each.meta.map((name, i) => [name, each.x[i], each.error_x.array[i]]) : [])]"
    )
    assert all(low < mean < high for _, mean, _ in bars)
    cut = {name for name, mean, half in bars if mean - half < low or mean + half > high}
    assert cut == {"big"}
    assert "cut off" in page.find_element(By.ID, "reading-differences").text


def driven(workdir, row):
    sweep = results.read(workdir)
    rows = {each.name: each for each in sweep.rows}
    ours, theirs = (results.counts(sweep, rows[name], bleu.MAIN, "test") for name in (row, "base"))
    return driving.drivers(ours, theirs, bleu.MAIN)[0]


def test_the_test_sets_sentences_stand_behind_its_interval(browser, both):
    page = opened(browser, both)
    report_browser_test.centred(
        page, report_browser_test.by_css(page, ".why[data-set=test][data-row='A h=1']")[0]
    ).click()
    shown = page.find_element(By.ID, "reasons")
    assert "Sentences behind A h=1 − base on the test set" in shown.text
    assert "were not kept" not in shown.text
    items = {
        int(item.text.split("sentence ")[1].split()[0]) - 1: item
        for item in shown.find_elements(By.TAG_NAME, "li")
    }
    found = driven(both, "A h=1")
    assert set(items) == {each.sentence for each in found}
    for each in found:
        text = " ".join(items[each.sentence].text.replace("‸", "").split())
        for row, seed in (("A h=1", each.ours), ("base", each.theirs)):
            folder = results.cell_folder(both, row, seed)
            for name in ("test_references", "test_hypotheses"):
                line = (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()
                assert line[each.sentence] in text


def test_where_the_test_sets_sentences_were_not_kept_the_page_says_so(browser, multi30k):
    page = opened(browser, multi30k)
    report_browser_test.centred(
        page, report_browser_test.by_css(page, ".why[data-set=test][data-row='E']")[0]
    ).click()
    shown = page.find_element(By.ID, "reasons").text
    assert "The texts of these test sentences were not kept: the results of E" in shown
    assert all(f"sentence {each.sentence + 1:,}" in shown for each in driven(multi30k, "E"))


def test_every_mark_is_reached_by_the_keyboard_and_shows_that_it_is(browser, both):
    page = opened(browser, both)
    reached = []
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    for _ in range(6):
        mark = page.switch_to.active_element
        reached.append((mark.get_attribute("data-row"), mark.get_attribute("data-set")))
        assert mark.accessible_name.startswith("The sentences behind the difference of ")
        assert mark.value_of_css_property("outline-style") == "solid"
        label = report_browser_test.until(
            page,
            lambda: report_browser_test.by_css(page, "#figure-differences .hoverlayer .hovertext"),
        )
        assert reached[-1][0] in label[0].text
        assert ("test set" in label[0].text) == (reached[-1][1] == "test")
        mark.send_keys(Keys.ARROW_DOWN)
    rows = ("A h=1", "D P_drop=0.0", "E")
    assert reached == [(row, name) for row in rows for name in ("dev", "test")]
    last = page.switch_to.active_element
    last.send_keys(Keys.ARROW_UP)
    assert page.switch_to.active_element.get_attribute("data-set") == "dev"
    page.switch_to.active_element.send_keys(Keys.TAB)  # one stop for all of them
    assert page.switch_to.active_element.text == "PNG"
    # Each lies over the mark that it is of.
    places = page.execute_script(
        "const middle = element => { const {left, right, top, bottom} ="
        " element.getBoundingClientRect(); return [(left + right) / 2, (top + bottom) / 2] };"
        "return [...document.querySelectorAll('.marks button')].map(middle).map(place => Math.min("
        "...[...document.querySelectorAll('#figure-differences .points path')].map(middle)"
        ".map(mark => Math.hypot(mark[0] - place[0], mark[1] - place[1]))))"
    )
    assert len(places) == 6
    assert max(places) < 1.5


def press_mark(page):
    """With the mouse, on the second row's mark of the test set."""
    report_browser_test.near(page, "figure-differences")
    traces = page.execute_script(
        "return document.querySelector('#figure-differences .plot').data.map(each => each.name)"
    )
    marks = report_browser_test.by_css(page, "#figure-differences .trace")[traces.index("test")]
    path = marks.find_elements(By.CSS_SELECTOR, ".points path")[1]
    ActionChains(page).move_to_element(path).click().perform()
    return report_browser_test.by_css(page, ".marks [data-row='D P_drop=0.0'][data-set=test]")[0]


def press_interval(page):
    interval = report_browser_test.by_css(page, ".why[data-row='D P_drop=0.0'][data-set=test]")[0]
    report_browser_test.centred(page, interval).send_keys(Keys.ENTER)
    return interval


@pytest.mark.parametrize("press", [press_mark, press_interval])
def test_sentences_open_right_below_what_was_pressed_and_escape_leads_back(browser, both, press):
    page = opened(browser, both)
    opener = press(page)
    assert opener.get_attribute("aria-expanded") == "true"
    shown, title = page.find_element(By.ID, "reasons"), page.switch_to.active_element
    assert title.text == "Sentences behind D P_drop=0.0 − base on the test set"
    box = opener.find_element(By.XPATH, "ancestor::div[contains('figure scroll', @class)]")
    below = shown.rect["y"] - box.rect["y"] - box.rect["height"]
    assert 0 <= below < 40
    top, bottom = page.execute_script(
        "const {top, bottom} = arguments[0].getBoundingClientRect(); return [top, bottom]", title
    )
    assert 0 <= top < bottom <= 900
    report_browser_test.by_css(page, "h1")[0].click()  # wherever the focus is
    ActionChains(page).send_keys(Keys.ESCAPE).perform()
    assert not shown.is_displayed()
    assert page.switch_to.active_element == opener
    assert opener.get_attribute("aria-expanded") == "false"
    assert page.execute_script(
        "const {top, bottom} = arguments[0].getBoundingClientRect();"
        "return top >= 0 && bottom <= innerHeight", opener
    )  # fmt: skip


def test_names_in_scatter_plots_are_whole_and_each_row_of_a_front_has_one(browser, multi30k):
    page = opened(browser, multi30k)
    for width in (1280, 500):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        opened(page, multi30k)
        owns = set(page.execute_script("return rows.map(row => row.own)"))
        for identity, field in (("ppl", ""), ("params", "params"), ("flops", "flops")):
            figure = report_browser_test.drawn(page, f"figure-{identity}")
            names = figure.find_elements(By.CSS_SELECTOR, ".textpoint text")
            texts = [name.text for name in names if name.text]
            assert texts
            assert set(texts) <= owns
            box = figure.find_element(By.CSS_SELECTOR, ".gridlayer").rect
            for name in (each for each in names if each.text):
                assert name.rect["x"] >= box["x"] - 1
                assert name.rect["x"] + name.rect["width"] <= box["x"] + box["width"] + 1
            best = page.execute_script(
                "const field = arguments[0]; return rows.filter(row => row.score !== null && field"
                " && rows.every(other => other.score === null || other === row || other[field] >"
                " row[field] || (other.score < row.score))).map(row => row.own)", field
            )  # fmt: skip
            assert set(best) <= set(texts)
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "width": 1280})
