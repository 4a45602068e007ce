"""The Python interface to results, on a published sweep."""

import pandas as pd
import pytest

import experiments
from tests import pages
from transformer_jax import errors

FOLDER = pages.ROOT / "experiments/published/multi30k"


@pytest.fixture(scope="module")
def sweep():
    return experiments.load(FOLDER)


def test_the_frames_are_those_of_the_files(sweep):
    assert sweep.table().to_csv(lineterminator="\n") == (FOLDER / "table3.csv").read_text()
    runs = pd.read_csv(FOLDER / "runs.csv")
    assert sweep.runs()["bleu"].tolist() == runs["bleu"].tolist()
    assert sweep.runs().groupby("row")["bleu"].mean()["E"] == pytest.approx(
        sweep.table().loc["E", "bleu"]
    )
    assert len(sweep.curves()) == len(pd.read_csv(FOLDER / "curves.csv"))


def test_two_rows_are_compared(sweep):
    found = sweep.diff("base", "E")
    assert found.loc[("configuration", "model.position")].tolist() == ["sinusoidal", "learned"]
    assert found.loc[("parameters", "position/table"), "E"] == "256 × 128"
    assert found.loc[("results", "seeds")].tolist() == [5, 3]
    with pytest.raises(errors.UserError, match="there is no row 'F'"):
        sweep.diff("base", "F")


def test_a_notebook_shows_a_short_table_and_a_figure(sweep):
    assert repr(sweep) == f"<Sweep table3 in {FOLDER}: 20 rows, 62 runs>"
    shown = sweep._repr_html_()
    assert shown.count("<tr>") == 22  # two heads
    assert len(shown) < 10_000
    shown_rows = [text for trace in sweep.plot().data for text in trace.text or ()]
    assert any("P_drop=0.0" in text for text in shown_rows)


def test_a_folder_without_a_sweep_is_named(tmp_path):
    with pytest.raises(errors.UserError, match=str(tmp_path)):
        experiments.load(tmp_path)
