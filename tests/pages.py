"""README.md and the pages of docs/, as tests read them."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def prose(path):
    """A page without its fenced blocks and comments, in which nothing is a link or a heading."""
    text = re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(path):
    """The targets of a page's links and pictures."""
    text = re.sub(r"`[^`\n]*`", "code", prose(path))
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(path):
    """What GitHub makes of a page's headings: lower case, - for spaces, no punctuation."""
    found = []
    for heading in re.findall(r"^#+ +(.+?) *$", prose(path), flags=re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return found


def tables(path):
    """A page's tables, each as its lines."""
    return re.findall(r"(?:^\|.*\n)+", prose(path), flags=re.MULTILINE)
