"""README.md, CONTRIBUTING.md and the pages of docs/, as tests read them."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PROVENANCE = sorted((ROOT / "experiments/published").glob("*/PROVENANCE.md"))


def name(path):
    """Returns a page's path in the repository, by which tests are named."""
    return path.relative_to(ROOT).as_posix()


def prose(path):
    """Returns a page without its fenced blocks and comments, which hold no links or headings."""
    text = re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(path):
    """Returns the targets of a page's links and pictures."""
    text = re.sub(r"`[^`\n]*`", "code", prose(path))
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(path):
    """Returns GitHub's anchors of a page's headings: lower case, - for spaces, no punctuation."""
    found = []
    for heading in re.findall(r"^#+ +(.+?) *$", prose(path), flags=re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return found


def tables(text):
    """Returns the tables of a text, each as a list of dicts from heads to cells."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        heads, _, *lines = [
            [cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in table.splitlines()
        ]
        found.append([dict(zip(heads, cells, strict=True)) for cells in lines])
    return found
