"""The README and its pages: short, linked with each other, each table once."""

import collections
import re

import pytest

from tests import pages

every_page = pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: path.name)


@every_page
def test_links_lead_to_files_and_headings_that_are_there(path):
    for link in pages.links(path):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{path.name}: {link}"
        assert target.is_relative_to(pages.ROOT), f"{path.name}: {link}"
        if anchor:
            assert anchor in pages.anchors(target), f"{path.name}: {link}"


@every_page
def test_pages_are_short(path):
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= (150 if path == pages.README else 199)


def test_the_readme_leads_to_every_page():
    found = {(pages.ROOT / link.partition("#")[0]).resolve() for link in pages.links(pages.README)}
    assert found >= {path for path in pages.PAGES if path != pages.README}


def test_every_picture_is_shown():
    shown = {
        (path.parent / link).resolve()
        for path in pages.PAGES
        for link in pages.links(path)
        if link.endswith(".png")
    }
    assert shown == {*(pages.ROOT / "docs").glob("*.png")}


def test_two_commands_stand_at_the_top_of_the_readme():
    text = pages.README.read_text(encoding="utf-8")
    top = "\n".join(text.splitlines()[:30])
    assert re.findall(r"^(make \w+)", top, flags=re.MULTILINE) == ["make table3", "make test"]


def test_no_line_of_a_table_stands_twice():
    counted = collections.Counter(
        line
        for path in pages.PAGES
        for table in pages.tables(path)
        for line in table.splitlines()[2:]
    )
    assert [line for line, number in counted.items() if number > 1] == []


@every_page
def test_commands_are_modules_that_are_there(path):
    for name in re.findall(r"python -m ([\w.]+)", path.read_text(encoding="utf-8")):
        parts = pages.ROOT.joinpath(*name.split("."))
        assert parts.with_suffix(".py").exists() or (parts / "__main__.py").exists(), name
