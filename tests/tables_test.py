"""Renderings of tables."""

import io

import numpy as np
import pandas as pd
import pytest
import rich.console

from experiments.results import tables

FRAME = pd.DataFrame({
    "row": ["A h=1", "B"],
    "change": ["h=1 d_k=128 position=learned", "d_k=4"],
    "ppl": [5.925, 6.0],
    "ppl_sd": [0.021, np.nan],
    "difference": [-12.5, 0.001],
    "half_width": [1.25, 0.5],
    "verdict": ["undecided", "tie as in the paper"],
    "word": ["undecided", "tie"],
    "detectable": [2.1, np.nan],
})  # fmt: skip
COLUMNS = [
    tables.Column("row", main=True),
    tables.Column("change", main=True, spare=1),
    tables.Column("PPL", "ppl", ".3f", "ppl_sd", group="paper"),
    tables.Column("− base", "difference", "+.2f", "half_width", main=True),
    tables.Column("verdict", main=True, short="word"),
    tables.Column("detectable", form=".1f"),
]
TABLE = tables.Table(FRAME, COLUMNS, "A title", "A note.")
NUMBERS = ("−12.50 ± 1.25", "+0.00 ± 0.50")


def printed(width, is_terminal=True):
    text = io.StringIO()
    console = rich.console.Console(
        width=width, file=text, force_terminal=is_terminal, color_system=None
    )
    tables.show([TABLE], ["A further note."], console)
    return text.getvalue()


@pytest.mark.parametrize("width", [20, 60, 80, 100, 200])
def test_a_terminal_cuts_no_number_and_no_word(width):
    shown = printed(width)
    for text in (*NUMBERS, "A h=1", "undecided", "A title", "A further note."):
        assert text in shown, text
    if width >= 60:
        assert max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (200, ["row", "change", "ppl", "difference", "verdict", "detectable"]),
        (93, ["row", "change", "ppl", "difference", "word", "detectable"]),
        (66, ["row", "change", "difference", "word"]),
        (60, ["row", "difference", "word"]),
    ],
)
def test_a_narrow_terminal_shortens_texts_and_then_leaves_out_columns(width, heads):
    assert [column.source for column in tables.fitting(TABLE, width)] == heads


def test_a_file_gets_all_columns():
    assert "5.925 ± 0.021" in printed(80, is_terminal=False)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_table_without_lines_shows_its_heads(is_terminal):
    table = tables.Table(FRAME[:0], [*TABLE.columns[:1], tables.Column("", "ppl")])
    output = io.StringIO()
    console = rich.console.Console(file=output, width=80, force_terminal=is_terminal)
    tables.show([table], console=console)
    assert "row" in output.getvalue()


def test_markdown_has_all_columns_and_aligns_numbers():
    lines = tables.markdown([TABLE], ["A further note."]).splitlines()
    assert lines[0] == "## A title"
    assert lines[2] == "| row | change | paper: PPL | − base | verdict | detectable |"
    assert lines[3] == "| --- | --- | ---: | ---: | --- | ---: |"
    assert lines[5] == "| B | d_k=4 | 6.000 | +0.00 ± 0.50 | tie as in the paper |  |"
    assert lines[-3:] == ["A note.", "", "A further note."]


def test_csv_is_not_rounded_and_reads_back():
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(tables.csv(FRAME))), FRAME)


def test_html_groups_columns_and_names_its_region():
    content = tables.html(TABLE)
    assert content.count("<tr>") == 4  # groups, heads and two lines
    assert '<td colspan="2"></td><th colspan="1" scope="colgroup">paper</th>' in content
    assert 'role="region" tabindex="0" aria-label="A title"' in content


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (-0.004, "+.2f", "+0.00"),
        (-0.04, "+.1f", "+0.0"),
        (-1.5, "+.2f", "−1.50"),
        (0.5, "+.0%", "+50%"),
        (-0.004, ".2f", "0.00"),
        (-0.2, ".2f", "−0.20"),
        (12345.0, ",d", "12,345"),
        (2151936 / 1e6, ".3g", "2.15"),
    ],
)
def test_numbers_that_round_to_0_have_no_minus(value, form, text):
    assert tables.number(value, form) == text
