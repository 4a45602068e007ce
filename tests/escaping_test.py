"""Names and sentences that are shown stay text: in reports, on the terminal and on pages."""

import html.parser
import json

import pytest

from experiments.reporting import document
from experiments.sweep import results
from tests import sweeps
from transformer_jax.drawing import tables

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><!-- &lt;b> $data ${data} \\u003c/script>",
    "'onmouseover='alert(1)\u2028",
    "[link](javascript:alert(1)) ![i](x)",
]


class Elements(html.parser.HTMLParser):
    """Counts the elements and attributes of a page."""

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


@pytest.mark.parametrize("text", HOSTILE)
def test_no_cell_title_or_note_becomes_part_of_a_report(text):
    content = tables.markdown([tables.Printed(["row", text], [[text, "1"]], text)], [text])
    assert Elements(content).found == {}
    assert Elements(content).comments == 0
    assert "<" not in content
    plain = tables.markdown([tables.Printed(["row", "x"], [["x", "1"]], "x")], ["x"])
    assert len(content.splitlines()) == len(plain.splitlines())


@pytest.mark.parametrize("text", [*HOSTILE, "[bold]x[/bold]"])
def test_what_a_table_shows_is_no_markup_of_the_terminal(text, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    tables.show([tables.Printed(["row", text], [[text, "1"]], text)], [text])
    shown = capsys.readouterr().out
    assert shown.count(" ".join(text.split())) >= 4 or not text.isprintable()


def name_of(text):
    """A row's name that holds as much of a text as a folder's can."""
    plain = "".join(letter for letter in text if letter not in "/\\\u2028\u2029")
    return f"x {plain}"


def make_hostile(workdir, text):
    """A sweep in which a text stands wherever one can: names, sentences, errors, overrides."""
    row = name_of(text)
    rows = {"base": {}, row: {"data.train": text}, "E": {"model.position": "learned"}}
    sweeps.make(workdir, sweeps.Made(rows, seeds=1, words=[text]), missing=["E"])
    sweeps.fail(workdir, "E", 0, text)
    for name in ("base", row):
        folder = results.cell_folder(workdir, name, 0)
        sweeps.change(folder, git_commit=text, data_sha256=text, devices=[text])


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    """The elements of a report of harmless names."""
    workdir = tmp_path_factory.mktemp("harmless")
    make_hostile(workdir, "harmless")
    document.write(workdir)
    return Elements((workdir / "report.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_part_of_the_page_of_a_sweep(harmless, tmp_path, text):
    make_hostile(tmp_path, text)
    document.write(tmp_path)
    content = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert Elements(content).found == harmless.found
    assert Elements(content).comments == harmless.comments
    (table,) = tmp_path.glob("*.md")
    assert Elements(table.read_text(encoding="utf-8")).found == {}
    data = content.split('id="content-data">')[1].split("</script>")[0]
    assert json.loads(data)["rows"][2]["reasons"] == [f"failed, seed 0: {' '.join(text.split())}"]
    data = content.split('id="translations-data">')[1].split("</script>")[0]
    assert json.loads(data)["sets"][0]["references"][0].endswith(text)
