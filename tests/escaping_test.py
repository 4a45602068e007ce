"""Names and sentences stay text in reports, on the terminal and on pages."""

import html.parser

import pandas as pd
import pytest

from experiments.results import report, tables
from tests import sweeps

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><!-- &lt;b> $data ${data} \\u003c/script>",
    "'onmouseover='alert(1)\u2028",
    "[link](javascript:alert(1)) ![i](x)",
]


class Elements(html.parser.HTMLParser):
    """The number of elements of a page, by tag and attributes."""

    def __init__(self, content):
        super().__init__()
        self.found = {}
        self.comments = 0
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attrs):
        key = (tag, tuple(sorted(name for name, _ in attrs)))
        self.found[key] = self.found.get(key, 0) + 1

    def handle_comment(self, data):
        self.comments += 1


def table_of(text):
    frame = pd.DataFrame({"row": [text], text: ["1"]})
    columns = [tables.Column("row"), tables.Column(text, group=text)]
    return tables.Table(frame, columns, text, text)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_cell_title_or_note_becomes_markup(text):
    content = tables.markdown([table_of(text)], [text])
    assert Elements(content).found == {}
    assert Elements(content).comments == 0
    assert "<" not in content
    assert len(content.splitlines()) == len(tables.markdown([table_of("x")], ["x"]).splitlines())
    assert Elements(tables.html(table_of(text))).found == Elements(tables.html(table_of("x"))).found


@pytest.mark.parametrize("text", [*HOSTILE, "[bold]x[/bold]"])
def test_no_cell_title_or_note_is_markup_of_the_terminal(text, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    tables.show([table_of(text)], [text])
    shown = capsys.readouterr().out
    assert shown.count(" ".join(text.split())) >= 5 or not text.isprintable()


def name_of(text):
    """Returns the name of a row with the characters of a text that a folder's name can have."""
    plain = "".join(letter for letter in text if letter not in "/\\\u2028*?[]#{}")
    return f"x {plain}"


def make_hostile(workdir, text):
    """Writes a sweep with a text in names, sentences, errors and overrides."""
    row = name_of(text)
    rows = {"base": {}, row: {"data.train": text}, "E": {"model.position": "learned"}}
    sweeps.make(workdir, sweeps.Made(rows, seeds=1, words=[text]), missing=["E"])
    sweeps.fail(workdir, "E", 0, text)
    for name in ("base", row):
        folder = sweeps.folder(workdir, name)
        sweeps.change(folder, git_commit=text, data_sha256=text, devices=[text])


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    """Returns the elements of a report of harmless names."""
    workdir = tmp_path_factory.mktemp("harmless")
    make_hostile(workdir, "harmless")
    report.write(workdir)
    return Elements((workdir / "report.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup_of_the_page(harmless, tmp_path, text):
    make_hostile(tmp_path, text)
    report.write(tmp_path)
    content = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert Elements(content).found == harmless.found
    assert Elements(content).comments == harmless.comments
    (table,) = tmp_path.glob("*.md")
    assert Elements(table.read_text(encoding="utf-8")).found == {}
