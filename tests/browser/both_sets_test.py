"""The page of a sweep that was scored on both sets: where they differ, and the way to sentences."""

import json
import re
import shutil

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from experiments.reporting import document
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
    assert named == heads.count("D P_drop=0.0") == 2  # all rows, and the test set
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
