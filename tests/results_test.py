"""The answer in words, the first figure, and the change of perplexity at the end of training."""

import json

import pytest

from experiments.results import answers, comparison, convergence, documents, frames, plots
from tests import sweeps


@pytest.fixture
def compared(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=3, sentences=40, slope=0.02))
    sweeps.spoil(sweeps.folder(tmp_path, "E", 0))
    for seed in range(3):
        sweeps.spoil(sweeps.folder(tmp_path, "D P_drop=0.0", seed))
    return comparison.compare(frames.load(tmp_path))


def test_the_answer_names_each_row_once_in_plain_words(compared):
    sentences = answers.summary(compared)
    assert sentences[0].startswith("Worse than base in BLEU on the development set: no dropout (−")
    text = " ".join(sentences)
    for name in ("no dropout", "A h=1", "learned positions"):
        assert text.count(name) <= 1
    assert sentences[-1] == "4 of 4 rows run, 3 seeds each."
    assert len(sentences) <= 7


def test_the_first_figure_has_a_dot_for_each_seed(compared):
    figure = plots.differences_figure(compared)
    assert figure
    marks = {trace["name"]: len(trace["x"]) for trace in figure.to_plotly_json()["data"]}
    assert 6 <= marks["a seed"] + 3 * marks.get(plots.CLIPPED, 0) <= 9
    base = compared.sweep.counts("base", "bleu")
    assert len(plots.seed_differences(compared, "E")) == len(base) == 3


def test_convergence_is_the_change_over_the_last_quarter(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=2))
    lines = {"base": [9, 8, 6, 4], "E": [9, 8, 6, 9], "D P_drop=0.0": [9, 8, 6, 6.1]}
    for row, values in lines.items():
        for seed in range(2):
            path = sweeps.folder(tmp_path, row, seed) / "metrics.jsonl"
            curve = [
                json.dumps({"step": 10 * step, "loss": 1.0, "dev_ppl": value})
                for step, value in enumerate(values, 1)
            ]
            path.write_text("".join(f"{line}\n" for line in curve))
    compared = comparison.compare(frames.load(tmp_path))
    changes = convergence.of_rows(compared)
    assert changes["base"] == pytest.approx(4 / 6 - 1)
    texts = dict(zip(changes.index, convergence.texts(compared), strict=True))
    expected = ["−33.3% (2/2)", "+50.0% (2/2)", "+1.7% (0/2)"]
    assert [texts[row] for row in lines] == expected
    assert documents.data(compared)["dev_ppl_last_quarter_change"].iloc[0] == pytest.approx(-1 / 3)
    table = documents.rows_table(compared)
    assert "−33.3% (2/2)" in table.cells()[0]
