"""The page of a sweep in a browser: what people do with it, at every width and in both colours."""

import time

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import select, wait

from experiments import table3
from experiments.reporting import document
from experiments.sweep import results
from tests import escaping_test, own_names_test
from tests.browser import chromium

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "it can run")

NAMES = [own_names_test.SCALED.get(name, (name, ""))[0].split(" (")[0] for name in table3.ROWS]
SECONDS = 20  # after which what should appear has not
SAVED = ("table3.csv", "table3.md", "table3.tex", "table3-differences.png",
         "table3-differences.svg", "table3-learning-curves.svg")  # fmt: skip


def by_css(driver, selector):
    return driver.find_elements(By.CSS_SELECTOR, selector)


def until(driver, condition):
    return wait.WebDriverWait(driver, SECONDS).until(lambda _: condition())


def centred(driver, element):
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    return element


def near(driver, identity):
    """An element, scrolled to, with what is drawn when it comes near."""
    return centred(driver, driver.find_element(By.ID, identity))


def drawn(driver, identity):
    element = near(driver, identity)
    until(driver, lambda: element.find_elements(By.CSS_SELECTOR, ".main-svg"))
    return element


def column(driver, place):
    return [
        cell.text.split("\n")[0]
        for cell in by_css(driver, f"#tables .scroll:first-of-type tbody tr > :nth-child({place})")
    ]


def test_the_table_stands_there_once_the_page_is_loaded_and_the_first_figure_moves_nothing(
    browser, report, opened
):
    browser.get(report.as_uri())
    assert column(opened, 1) == NAMES
    table = opened.find_element(By.ID, "tables")
    before = table.location["y"]
    until(opened, lambda: by_css(opened, "#figure-differences .main-svg"))
    assert table.location["y"] == before
    assert "20 rows, 3 seeds; " in opened.find_element(By.ID, "summary").text
    marks = by_css(opened, "#figure-differences .scatterlayer .trace:first-child .points path")
    bars = by_css(opened, "#figure-differences .xaxislayer-above, #figure-differences path.xerror")
    assert len(marks) >= 17
    assert len(bars) >= 17


def test_a_click_on_a_head_sorts_and_another_reverses(opened):
    head = by_css(opened, "#tables thead th")[3]
    assert head.text.startswith("BLEU")
    press = head.find_element(By.TAG_NAME, "button")
    press.click()
    assert head.get_attribute("aria-sort") == "ascending"
    known = [float(cell.split()[0]) for cell in column(opened, 4) if cell]
    assert known == sorted(known)
    assert column(opened, 4)[-2:] == ["", ""]  # rows without a score come last
    press.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(cell.split()[0]) for cell in column(opened, 4) if cell] == known[::-1]
    assert column(opened, 4)[-2:] == ["", ""]
    first = by_css(opened, "#tables thead th")[0]
    first.find_element(By.TAG_NAME, "button").click()
    assert column(opened, 1) == NAMES
    assert head.get_attribute("aria-sort") == "none"


def test_a_failed_row_says_why_and_a_missing_one_that_it_was_not_run(opened):
    rows = {
        row.text.split()[0]: row.text
        for row in by_css(opened, "#tables .scroll:first-of-type tbody tr")
    }
    assert "failed, seed 0: out of memory" in rows["big"]
    assert "not run" in rows["E"]


def visible_lines(driver):
    return driver.execute_script(
        "return document.querySelector('#figure-curves .plot').data"
        ".filter(trace => trace.visible !== false).length")  # fmt: skip


def test_a_rows_button_takes_its_lines_away_and_back(opened):
    drawn(opened, "figure-curves")
    whole = visible_lines(opened)
    assert whole == 18 * 3
    chip = centred(opened, by_css(opened, "#chips [data-row='A h=1']")[0])
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert visible_lines(opened) == whole - 3
    chip.click()
    assert visible_lines(opened) == whole
    by_css(opened, "#chips button")[-1].click()
    assert visible_lines(opened) == 3
    choice = select.Select(by_css(opened, "#curve-controls select")[0])
    for option in [option.text for option in choice.options]:
        choice.select_by_visible_text(option)
        assert visible_lines(opened) == 3


def test_pointing_at_a_mark_names_its_row_and_numbers(opened):
    near(opened, "figure-differences")
    mark = by_css(opened, "#figure-differences .scatterlayer .trace .points path")[0]
    ActionChains(opened).move_to_element(mark).perform()
    label = until(opened, lambda: by_css(opened, "#figure-differences .hoverlayer .hovertext"))
    assert "A h=1" in label[0].text
    assert "±" in label[0].text
    plot = drawn(opened, "figure-curves").find_element(By.CLASS_NAME, "plot")
    x, y = opened.execute_script(  # of the second point of the first line, from the middle
        "const {data, _fullLayout: {xaxis, yaxis, _size}} = arguments[0], {x, y} = data[0];"
        "return [_size.l + xaxis.d2p(x[1]) - arguments[0].clientWidth / 2,"
        " _size.t + yaxis.d2p(y[1]) - arguments[0].clientHeight / 2]",
        plot,
    )
    ActionChains(opened).move_to_element_with_offset(plot, x, y).perform()
    label = until(opened, lambda: by_css(opened, "#figure-curves .hoverlayer .hovertext"))
    assert "step" in label[0].text


def background(driver):
    return driver.execute_script("return getComputedStyle(document.body).backgroundColor")


def paper(driver):
    return driver.execute_script(
        "return document.querySelector('#figure-differences .plot').layout?.paper_bgcolor"
    )


def test_colours_follow_the_system_and_figures_follow_them(opened):
    light = background(opened)
    assert paper(opened) == light
    chromium.set_scheme(opened, dark=True)
    dark = until(opened, lambda: background(opened) != light and background(opened))
    until(opened, lambda: paper(opened) == dark)
    chromium.set_scheme(opened, dark=False)
    until(opened, lambda: (background(opened), paper(opened)) == (light, light))


def press(driver, text):
    button = next(b for b in by_css(driver, "#translations button") if b.text == text)
    centred(driver, button).click()


def shown_rows(driver):
    return [line.text.split("\n") for line in by_css(driver, "#texts > div")]


def shown_gap(driver):
    """What the chosen row's score is less base's."""
    return float(shown_rows(driver)[1][1].split("(")[1].strip(")").replace("−", "-"))


def test_translations_are_found_by_length_score_number_and_words(opened, report):
    near(opened, "translations")
    until(opened, lambda: by_css(opened, "#texts > div"))
    folder = results.cell_folder(report.parent, "A h=1", 0)
    names = ("sources", "references", "hypotheses")
    sources, references, said = (
        (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines() for name in names
    )
    choice = select.Select(by_css(opened, "#translations select")[0])
    choice.select_by_visible_text("A h=1")
    press(opened, "longest")
    longest = max(range(60), key=lambda i: (len(sources[i].split(" ")), -i))
    assert sources[longest] in opened.find_element(By.ID, "sentence").text
    base, chosen, *others = shown_rows(opened)
    assert (base[0], chosen[0]) == ("base", "A h=1")
    assert chosen[2] == said[longest]
    assert len(others) == 16
    gaps = []
    press(opened, "worst against base")
    for _ in range(3):
        gaps.append(shown_gap(opened))
        press(opened, "next →")
    assert gaps == sorted(gaps)
    press(opened, "best against base")
    assert gaps[0] < 0 < shown_gap(opened)
    number = opened.find_element(By.ID, "sentence-number")
    number.send_keys(Keys.CONTROL, "a")
    number.send_keys("17", Keys.ENTER)
    assert references[16] in opened.find_element(By.ID, "sentence").text
    search = opened.find_element(By.ID, "sentence-search")
    search.send_keys(references[41])
    assert "1 found" in opened.find_element(By.ID, "sentence-hits").text
    by_css(opened, "#sentence-hits button")[0].click()
    assert number.get_attribute("value") == "42"


def test_words_that_differ_are_marked(opened):
    near(opened, "translations")
    until(opened, lambda: by_css(opened, "#texts > div"))
    found = opened.execute_script(
        "return compareWords('the big dog sees', 'the dog sees it now')"
        ".map(({word, isNew, missing}) => [word, isNew, missing])"
    )
    assert found == [["the", False, []], ["big", True, []], ["dog", False, []],
                     ["sees", False, []], ["", False, ["it", "now"]]]  # fmt: skip
    marks = [mark.text for mark in by_css(opened, "#texts > div:nth-child(2) mark")]
    base, chosen = (row[2].replace("‸", "").split(" ") for row in shown_rows(opened)[:2])
    assert [word for word in chosen if word not in base] == [w for w in marks if w not in base]
    assert not by_css(opened, "#texts > div:nth-child(1) mark")  # base does not differ from itself
    choice = select.Select(by_css(opened, "#translations select")[2])
    choice.select_by_visible_text("the reference")
    assert by_css(opened, "#texts > div:nth-child(1) mark")


def test_the_table_and_the_figures_can_be_saved(opened, downloads):
    drawn(opened, "figure-curves")
    near(opened, "downloads")
    for button in by_css(opened, "#downloads button"):
        button.click()
    for identity, formats in (("figure-differences", "PNG SVG"), ("figure-curves", "SVG")):
        near(opened, identity)
        for button in by_css(opened, f"#{identity} .save button"):
            if button.text in formats:
                button.click()
    until(opened, lambda: {path.name for path in downloads.iterdir()} == set(SAVED))
    contents = {name: (downloads / name).read_bytes() for name in SAVED}
    assert contents["table3.csv"].startswith(b"row,values,seeds")
    assert b"\\toprule" in contents["table3.tex"]
    assert contents["table3-differences.png"].startswith(b"\x89PNG")
    assert all(b"<svg" in contents[name] for name in SAVED if name.endswith(".svg"))
    curves = contents["table3-learning-curves.svg"]
    assert b"legend" in curves  # which stands on the page as buttons
    assert b"A h=1" in curves


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_overflows_a_phone(report, dark):
    with chromium.started(360, 740, dark) as driver:
        driver.get(report.as_uri())
        for section in by_css(driver, "main > section"):
            driver.execute_script("arguments[0].scrollIntoView()", section)
            time.sleep(0.3)
        too_wide = driver.execute_script(
            "return [...document.querySelectorAll('body *')].filter(element =>"
            " element.getBoundingClientRect().right > 361 && !element.closest('.scroll, .plot'))"
            ".map(element => element.tagName + '.' + element.className)"
        )
        assert too_wide == []
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 360
        widths = driver.execute_script(
            "return [...document.querySelectorAll('.plot')].map(plot => plot.scrollWidth)"
        )
        assert max(widths) <= 360
        assert driver.get_log("browser") == []


@pytest.mark.parametrize("text", escaping_test.HOSTILE)
def test_no_text_of_a_sweep_runs_or_becomes_markup(browser, tmp_path, text):
    escaping_test.make_hostile(tmp_path, text)
    document.write(tmp_path)
    browser.get((tmp_path / "report.html").as_uri())
    for section in by_css(browser, "main > section"):
        browser.execute_script("arguments[0].scrollIntoView()", section)
    until(browser, lambda: by_css(browser, "#texts > div"))
    chart = drawn(browser, "figure-differences")
    assert not by_css(browser, "img, iframe, main svg a, main script, [onload], [onerror]")
    shown = " ".join(text.split())
    names = [name.text for name in by_css(browser, "#tables tbody th")]
    assert any(" ".join(escaping_test.name_of(text).split()) in name for name in names)
    assert shown in " ".join(browser.find_element(By.ID, "sentence").text.split())
    assert chart.is_displayed()
    assert browser.get_log("browser") == []  # a refused script would stand there
