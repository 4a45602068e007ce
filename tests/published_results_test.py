"""Published tables are those of the published results."""

import pytest

from experiments.results import comparison, frames, report, tables
from tests import pages

PUBLISHED = pages.ROOT / "experiments/published"
SWEEPS = sorted(path.parent for path in PUBLISHED.glob("*/sweep.json"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", SWEEPS, ids=lambda path: path.name)
def test_published_tables_are_those_of_the_published_results(folder):
    compared = comparison.compare(frames.load(folder))
    document = report.build(compared)
    markdown, csv = ((folder / f"{compared.table.name}.{end}") for end in ("md", "csv"))
    expected = tables.markdown(document.tables, document.notes)
    assert markdown.read_text(encoding="utf-8") == expected
    assert csv.read_text(encoding="utf-8") == tables.csv(document.data)
