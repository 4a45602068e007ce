"""chrF against sacreBLEU's, and beside BLEU where runs have left it."""

import hypothesis
import numpy as np
import pytest
import sacrebleu
from hypothesis import strategies

from experiments.analysis import comparison
from experiments.reporting import chrf_table
from experiments.sweep import results
from tests import sweeps
from transformer_jax.evaluation import bleu, chrf, measures

TEXTS = strategies.text("aab ßü𝄞\u3000.", max_size=14)
PAIRS = strategies.lists(strategies.tuples(TEXTS, TEXTS), min_size=1, max_size=5)


@hypothesis.given(PAIRS)
@hypothesis.settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_a_corpus_and_its_sentences_score_as_sacrebleu_has_it(pairs):
    hypotheses, references = map(list, zip(*pairs, strict=True))
    counts = chrf.counts(hypotheses, references)
    expected = sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert chrf.from_counts(counts.sum(0)) == pytest.approx(expected)
    for own, (said, reference) in zip(counts, pairs, strict=True):
        expected = sacrebleu.sentence_chrf(said, [reference]).score
        assert chrf.from_counts(own) == pytest.approx(expected)


def test_the_signature_is_sacrebleus():
    metric = sacrebleu.CHRF()
    metric.corpus_score(["a"], [["b"]])
    assert str(metric.get_signature()).startswith(chrf.SIGNATURE + "|version")


def test_sides_of_different_length_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        chrf.counts(["a", "b"], ["a"])


def test_a_perfect_translation_has_100_and_nothing_has_0():
    texts = ["Der Hund sieht die Katze.", "Heute nicht."]
    assert chrf.from_counts(chrf.counts(texts, texts).sum(0)) == 100
    assert chrf.from_counts(chrf.counts(["", ""], texts).sum(0)) == 0
    assert np.all(chrf.counts(["", ""], ["", ""]) == 0)


def test_what_few_runs_have_left_is_compared_and_said(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows()))
    sweeps.set_record(tmp_path, noise_floor=2)
    whole = chrf_table.section(comparison.compare(results.read(tmp_path)))
    (results.cell_folder(tmp_path, "base", 1) / "hypotheses.txt").unlink()
    (results.cell_folder(tmp_path, "E", 0) / "hypotheses.txt").unlink()
    found = chrf_table.section(comparison.compare(results.read(tmp_path)))
    (before,), (after,) = whole.shown, found.shown
    assert "left nothing to count it of: base (1 of 2), E (1 of 2)." in after.note
    assert "chrF's intervals, unlike BLEU's, do not know of other seeds" in after.note
    assert not before.note
    assert after.lines[1][:2] == before.lines[1][:2]  # A h=1, which lacks none
    assert after.lines[1][3:] != before.lines[1][3:]


@pytest.mark.parametrize("name", [measures.CHRF, bleu.MAIN])
def test_what_is_summed_is_as_wide_as_said_and_some_of_it_the_references_alone(name):
    measure, reference = measures.MEASURES[name], "Der Hund sieht die Katze."
    found = [
        chrf.counts([text], [reference])
        if name == measures.CHRF
        else bleu.counts([text], [reference], "de", name)
        for text in (reference, "Die Katze sieht den Hund heute nicht.")
    ]
    assert found[0].shape == found[1].shape == (1, measure.width)
    same = np.flatnonzero((found[0] == found[1])[0])
    assert np.arange(measure.width)[measure.of_reference].tolist() == same.tolist()
