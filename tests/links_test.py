"""Links of the README and its pages, and the names in the tour."""

import importlib
import re

import pytest

from tests import pages
from transformer_jax import config as config_lib
from transformer_jax import fields


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings_that_exist(path):
    for link in pages.links(path):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{path.name}: {link}"
        assert target.is_relative_to(pages.ROOT), f"{path.name}: {link}"
        if anchor:
            assert anchor in pages.anchors(target), f"{path.name}: {link}"


def test_names_in_the_tour_exist():
    prose = pages.prose(pages.ROOT / "docs" / "tour.md")
    paths = re.findall(r"\(\.\./([\w/]+)\.py\)", prose)
    modules = {path.split("/")[-1]: path.replace("/", ".") for path in paths}
    sections = fields.declared(config_lib.Config)
    names = re.findall(r"`(\w+)\.([\w.]+)`", prose)
    assert names
    for first, rest in names:
        if rest in ("html", "json", "md"):
            continue
        if first in modules:
            found = importlib.import_module(modules[first])
            for part in rest.split("."):
                found = getattr(found, part)
        else:
            assert rest in fields.declared(sections[first]), f"{first}.{rest}"
