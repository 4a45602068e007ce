"""Published tables are those of the published results."""

import pytest

from experiments.analysis import comparison
from experiments.reporting import comparison_table
from experiments.sweep import results
from tests import pages
from transformer_jax.drawing import tables

PUBLISHED = pages.ROOT / "experiments/published"
SWEEPS = sorted(path.parent for path in PUBLISHED.glob("*/sweep.json"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", SWEEPS, ids=lambda path: path.name)
def test_published_tables_are_what_their_results_say(folder):
    compared = comparison.compare(results.read(folder))
    found = (compared.table.document or comparison_table.document)(compared)
    kept = {end: folder / f"{compared.table.name}.{end}" for end in ("md", "csv")}
    assert tables.markdown(found.shown, found.notes) == kept["md"].read_text(encoding="utf-8")
    assert found.csv == kept["csv"].read_text(encoding="utf-8")
