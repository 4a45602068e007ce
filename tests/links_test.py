"""Links, file names, fields and numbers of the pages exist."""

import importlib
import re

import pytest

from tests import pages
from transformer_jax import config as config_lib
from transformer_jax import fields

PUBLISHED = pages.ROOT / "experiments/published"
FOLDERS = "configs|docs|experiments|launch|tests|transformer_jax"
every_page = pytest.mark.parametrize("path", pages.PAGES, ids=pages.name)


@pytest.mark.parametrize("path", [*pages.PAGES, *pages.PROVENANCE], ids=pages.name)
def test_links_lead_to_files_and_headings_that_exist(path):
    for link in pages.links(path):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert target.is_relative_to(pages.ROOT), link
        if anchor:
            assert anchor in pages.anchors(target), link


@every_page
def test_files_that_pages_name_exist(path):
    text = path.read_text(encoding="utf-8")
    for name in re.findall(rf"(?<![\w/.])(?:{FOLDERS})/[\w/]+\.\w+", text):
        if name not in ("experiments/NAME.py", "experiments/warmth.py"):  # the reader's own
            assert (pages.ROOT / name).exists(), name


@every_page
def test_fields_that_pages_name_exist(path):
    sections = fields.declared(config_lib.Config)
    text = path.read_text(encoding="utf-8")
    for section, field in re.findall(rf"`({'|'.join(sections)})\.(\w+)[`=]", text):
        if field not in ("en", "de", "txt"):  # endings of files
            assert field in fields.declared(sections[section]), f"{section}.{field}"


def test_names_in_the_tour_exist():
    prose = pages.prose(pages.ROOT / "docs/tutorial/tour.md")
    paths = re.findall(r"\((?:\.\./)+([\w/]+)\.py\)", prose)
    modules = {path.split("/")[-1]: path.replace("/", ".") for path in paths}
    names = re.findall(r"`(\w+)\.([\w.]+)`", prose)
    assert names
    for first, rest in names:
        if first in modules:
            found = importlib.import_module(modules[first])
            for part in rest.split("."):
                found = getattr(found, part)


def published_cells(folder):
    """Returns the published cells of each row, and of each in brackets what it and they hold."""
    found: dict[str, set[str]] = {}
    for path in folder.glob("*.md"):
        if path.name in ("examples.md", "scores.md", "PROVENANCE.md"):
            continue
        for table in pages.tables(path.read_text(encoding="utf-8")):
            for line in table:
                head, name = next(iter(line.items()))
                cells = found.setdefault(name.removeprefix("ours: "), set())
                if head in ("row", "parser"):
                    for cell in line.values():
                        before, _, within = cell.partition(" (")
                        cells |= {cell, before, within.removesuffix(")")}
    return found


@every_page
def test_numbers_of_pages_are_the_published_ones(path):
    text = path.read_text(encoding="utf-8")
    for folders, table in re.findall(r"<!-- numbers: (.*?) -->\n((?:\|.*\n)+)", text):
        published = [published_cells(PUBLISHED / folder) for folder in folders.split()]
        (lines,) = pages.tables(table)
        for line in lines:
            name, *cells = line.values()
            row = name.partition(", BLEU")[0]
            known = set().union(*(each[row] for each in published))
            for cell in cells:
                if re.match(r"[+−]?\d", cell):
                    assert cell in known, (row, cell)
