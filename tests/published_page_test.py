"""The page of a sweep that keeps less than it had: what is there is shown, and named."""

import json

import pytest

from experiments import publish
from experiments.analysis import comparison, significance
from experiments.reporting import comparison_table, content, document, headline, translations
from experiments.sweep import results
from tests import report_page_test, sweeps
from transformer_jax import config as config_lib
from transformer_jax import errors, files

SENTENCES = 30


@pytest.fixture
def sweep(tmp_path):
    """A sweep of four rows, two seeds each."""
    sweeps.make(tmp_path / "sweep", sweeps.Made(sweeps.some_rows(), sentences=SENTENCES))
    return tmp_path / "sweep"


@pytest.fixture
def published(sweep, tmp_path):
    """What is published of it."""
    publish.publish(sweep, tmp_path / "published")
    return tmp_path / "published"


def test_no_whole_path_is_published(sweep, tmp_path):
    record = json.loads((sweep / "sweep.json").read_bytes())
    record["base"]["data"]["train"] = "/secret/a/train, /secret/b/more,c/third"
    (sweep / "sweep.json").write_text(json.dumps(record))
    publish.publish(sweep, tmp_path / "published")
    found = json.loads((tmp_path / "published/sweep.json").read_bytes())
    assert found["base"]["data"]["train"] == "train, more,c/third"


def lines_of(workdir, row, seed, name):
    folder = results.cell_folder(workdir, row, seed)
    return (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def test_a_published_page_shows_its_ten_sentences_by_their_numbers(sweep, published):
    found = report_page_test.content_of(published)["translations-data"]
    (texts,) = found["sets"]
    assert (texts["sources"], texts["total"]) == ([], SENTENCES)
    assert len(texts["references"]) == publish.EXAMPLES
    assert [row["name"] for row in found["rows"]] == list(sweeps.some_rows())
    for row in found["rows"]:
        for run in row["runs"]:
            said = lines_of(sweep, row["name"], run["seed"], "hypotheses")
            assert run["hypotheses"] == {i: said[int(i)] for i in texts["references"]}
            assert len(run["scores"]) == SENTENCES


def test_published_runs_stand_beside_whole_ones_of_the_same_sentences(sweep, published):
    for name in ("sources", "references", "hypotheses"):
        lines = "".join(f"{line}\n" for line in lines_of(sweep, "A h=1", 1, name))
        (results.cell_folder(published, "A h=1", 1) / f"{name}.txt").write_text(lines)
    found = report_page_test.content_of(published)["translations-data"]
    (texts,) = found["sets"]
    assert texts["sources"] == lines_of(sweep, "A h=1", 1, "sources")
    assert texts["references"] == lines_of(sweep, "A h=1", 1, "references")
    lengths = [len(run["hypotheses"]) for row in found["rows"] for run in row["runs"]]
    assert lengths == [10, 10, 10, SENTENCES, 10, 10, 10, 10]
    other = results.cell_folder(published, "A h=1", 1) / "references.txt"
    other.write_text("another sentence\n" * SENTENCES)
    assert len(report_page_test.content_of(published)["translations-data"]["sets"]) == 2


@pytest.mark.parametrize(
    "said", [{"Sentence one": "a"}, {"Sentence 3 of 30": "a"}, {"Sentence 1,0 of": "a"}]
)
def test_damaged_examples_are_named(published, said):
    path = results.cell_folder(published, "E", 0) / translations.PUBLISHED
    path.write_text(json.dumps({"(reference)": {}, "row": said}))
    with pytest.raises(errors.UserError, match=r"E/seed0/examples\.json is damaged .*: delete it"):
        document.write(published)


def test_the_summary_counts_verdicts_and_marks_are_filled_by_them(sweep):
    rows = {
        "A h=1": significance.Difference(-5.0, 1.0, (2, 2)),  # the paper has -0.9
        "D P_drop=0.0": significance.Difference(-1.1, 1.0, (2, 2)),  # alone it excludes 0
        "E": significance.Difference(0.1, 3.0, (2, 2)),
    }
    compared = comparison.compare(results.read(sweep))
    fields = {**vars(compared), "gaps": rows}
    said = headline.summary(comparison.Comparison(**fields))
    assert "4 of 4 rows, 2 seeds; 1 reproduced, 2 undecided; hurts most: A h=1, −5.0" in said
    written = comparison_table.document(compared)
    shown = content.of_table(comparison.Comparison(**fields), written, {})
    assert [row["is_sure"] for row in shown["rows"]] == [False, True, False, False]
    assert shown["judged"]


@pytest.mark.parametrize(
    "change",
    [
        {"data.parsed": "/secret/a/one.mrg,/secret/b/two.mrg"},
        {"train.start_from": "/secret/a/seed0"},
    ],
)
def test_no_row_is_lost_by_the_folders_that_are_left_out(tmp_path, change):
    rows, digests = {"base": {}, "other": change}, {"corpus": "c" * 64, "start_from": "s" * 64}
    sweeps.make(tmp_path / "sweep", sweeps.Made(rows, table="mine", seeds=1))
    for name, own in rows.items():
        config = config_lib.replace(sweeps.base(), {**own, "train.seed": 0})
        claimed = config_lib.fingerprint(config, digests)
        folder = results.cell_folder(tmp_path / "sweep", name, 0)
        sweeps.change(folder, config_hash=claimed)
        files.write_json(folder / "run.json", {"config_hash": claimed, "digests": digests})
    publish.publish(tmp_path / "sweep", tmp_path / "published")
    found = results.read(tmp_path / "published")
    assert [(row.name, [*row.results], row.stale) for row in found.rows] == [
        ("base", [0], []), ("other", [0], [])
    ]  # fmt: skip
    assert "secret" not in (tmp_path / "published/sweep.json").read_text(encoding="utf-8")


def test_sets_are_named_without_their_folders(tmp_path):
    named = {"data.dev": "a/secret/val", "data.test": "/b/test_2016_flickr, c/d/test_2017_mscoco"}
    base = config_lib.replace(sweeps.base(), named)
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), base=base))
    for path in tmp_path.glob("*/*/bleu_counts.json"):
        path.with_name("test_bleu_counts.json").write_bytes(path.read_bytes())
        result = json.loads((path.parent / "result.json").read_bytes())
        test = {"ppl": result["ppl"], "bleu": result["bleu"]}
        sweeps.change(path.parent, test=test)
    document.write(tmp_path)
    written = (tmp_path / "table3.md").read_text(encoding="utf-8")
    assert "## Test set (test_2016_flickr, test_2017_mscoco), 12 sentences\n" in written
    assert "Development set (val) of the" in written
    assert "secret" not in written + (tmp_path / "report.html").read_text(encoding="utf-8")


def test_detectable_is_explained_below_each_table_that_has_it(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows()))
    document.write(tmp_path)
    shown = report_page_test.page_of(tmp_path).data["content-data"]["tables"]
    assert any("(detectable: " in cell for line in shown[0]["lines"] for cell in line)
    for table in shown:
        cells = " ".join(cell for line in table["lines"] for cell in line)
        assert ("(detectable: " in cells) == table["note"].startswith("Detectable: ")
        assert table["note"] in (tmp_path / "table3.md").read_text(encoding="utf-8")
