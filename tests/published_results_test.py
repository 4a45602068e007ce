"""What is published is what the results say, and pages say what is published."""

import json
import statistics

import pytest

from experiments.analysis import comparison
from experiments.reporting import comparison_table
from experiments.sweep import results
from tests import pages
from transformer_jax.drawing import tables

PUBLISHED = pages.ROOT / "experiments/published"
SWEEPS = sorted(path.parent for path in PUBLISHED.glob("*/sweep.json"))
# Of pages' tables with rows and their scores on the test sets, in their order.
SHOWN = {
    "README.md": ["multi30k"],
    "results.md": ["multi30k", "small_multi30k"],
    "captions.md": [f"families_multi30k{end}" for end in ("", "_parameters", "_flops", "_warmup")],
    "variations.md": ["variations_multi30k"],
}


@pytest.mark.slow
@pytest.mark.parametrize("folder", SWEEPS, ids=lambda path: path.name)
def test_published_tables_are_what_their_results_say(folder):
    compared = comparison.compare(results.read(folder))
    found = (compared.table.document or comparison_table.document)(compared)
    kept = {end: folder / f"{compared.table.name}.{end}" for end in ("md", "csv")}
    assert tables.markdown(found.shown, found.notes) == kept["md"].read_text(encoding="utf-8")
    assert found.csv == kept["csv"].read_text(encoding="utf-8")


def read(markdown):
    """A table's lines, each from heads to cells; of heads, what stands before a comma."""
    heads, _, *lines = [
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in markdown.splitlines()
    ]
    names = [head.partition(",")[0] for head in heads]
    return [dict(zip(names, cells, strict=True)) for cells in lines]


def cells(folder):
    """What is published of each row, by the heads of its tables."""
    (path,) = [each for each in folder.glob("*.md") if each.with_suffix(".csv").exists()]
    found: dict[str, dict[str, str]] = {}
    for table in pages.tables(path):
        for line in read(table):
            if "row" in line:
                if "test: BLEU" in line:
                    line["on test"] = line.pop("verdict", "")
                if "params ×10⁶" in line:
                    line["params"] = line["params ×10⁶"].partition(" (")[2].rstrip(")")
                found.setdefault(line["row"], {}).update(line)
    return found


def at_three_quarters(workdir, row):
    """The mean over runs of development perplexity after three quarters of their steps."""
    seen = []
    for folder in results.cell_folder(workdir, row, 0).parent.glob("seed*"):
        steps = json.loads((folder / "result.json").read_bytes())["steps"]
        lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        seen += [line["dev_ppl"] for line in lines if 4 * line["step"] == 3 * steps]
    return f"{statistics.mean(seen):.2f}"


@pytest.mark.parametrize("name", SHOWN)
def test_pages_say_what_is_published(name):
    path = next(path for path in pages.PAGES if path.name == name)
    shown = [read(table) for table in pages.tables(path) if "| test: BLEU |" in table]
    for lines, folder in zip(shown, SHOWN[name], strict=True):
        published = cells(PUBLISHED / folder)
        for line in lines:
            row = line.pop("row")
            line.pop("values", None)
            if at := line.pop("PPL at ¾", None):
                assert at == at_three_quarters(PUBLISHED / folder, row), row
            for head, cell in line.items():
                known = published[row][head]
                if head.endswith("− base"):  # pages leave out the detectable difference
                    known = known.partition(" (")[0]
                if (row, head) != ("base", "params"):
                    assert cell == known, (row, head)
