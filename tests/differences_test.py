"""Differences and their intervals, against sacreBLEU and SciPy."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
from sacrebleu import significance as sacrebleu_significance
from sacrebleu.metrics import bleu as sacrebleu

from experiments.stats import differences
from transformer_jax.data import toy
from transformer_jax.evaluation import bleu


def degrade(sentences, share, seed):
    """Returns sentences without a share of their words."""
    random = np.random.default_rng(seed)
    return [
        " ".join(word for word in sentence.split() if random.random() >= share) or "."
        for sentence in sentences
    ]


@pytest.fixture(scope="module")
def references():
    return [pair.german for pair in toy.sentences(300, 1, 0)[0]]


@pytest.fixture(scope="module")
def runs(references):
    """Returns translations and counts of three systems with three seeds; two are alike."""
    hypotheses = {
        (share, seed): degrade(references, share, 10 * seed + place)
        for place, share in enumerate((0.1, 0.101, 0.2))
        for seed in range(3)
    }
    return {
        key: (text, bleu.counts(text, references, "de", bleu.MAIN))
        for key, text in hypotheses.items()
    }


def difference(ours, theirs):
    """Returns the difference of two rows by the counts of their runs."""
    scores = [differences.bootstrap_scores(side, "bleu") for side in (ours, theirs)]
    return differences.difference(scores[0], scores[1])


def test_counts_of_sentences_sum_to_corpus_bleu(runs, references):
    for variant in (bleu.MAIN, bleu.PAPER):
        hypotheses = runs[0.2, 0][0]
        summed = bleu.counts(hypotheses, references, "de", variant).sum(0)
        whole = bleu.score(hypotheses, references, "de")[variant]["score"]
        assert bleu.from_counts(summed, variant) == pytest.approx(whole)


def test_one_run_each_agrees_with_sacrebleu(runs, references):
    for other in (0.101, 0.2):
        ours, theirs = runs[other, 0], runs[0.1, 0]
        found = difference({0: ours[1]}, {0: theirs[1]})
        test = sacrebleu_significance.PairedTest(
            [("base", theirs[0]), ("row", ours[0])],
            {"BLEU": sacrebleu.BLEU(references=[references], tokenize="13a")},
            None,
            test_type="bs",
            n_samples=2000,
        )
        scores: Any = test()[1]
        base, row = scores["BLEU"]
        assert found.mean == pytest.approx(row.score - base.score)
        # A difference is significant for the paired bootstrap where our interval excludes 0.
        assert found.excludes_0 == (row.p_value < 0.05)


def test_sentences_and_seeds_both_widen_the_interval(runs):
    one = difference({0: runs[0.2, 0][1]}, {0: runs[0.1, 0][1]})
    ours, theirs = ({seed: runs[share, seed][1] for seed in range(3)} for share in (0.2, 0.1))
    several = difference(ours, theirs)
    alike = [dict(enumerate([runs[share, 0][1]] * 3)) for share in (0.2, 0.1)]
    same = difference(alike[0], alike[1])
    assert (one.runs, several.runs) == ((1, 1), (3, 3))
    assert same.half_width == pytest.approx(one.half_width)  # seeds that do not differ add nothing
    scores = [
        [bleu.from_counts(run.sum(0), bleu.MAIN) for run in side.values()]
        for side in (ours, theirs)
    ]
    assert several.mean == pytest.approx(np.mean(scores[0]) - np.mean(scores[1]))
    # Without sentences it is Welch's; with them, their variance is added, known exactly.
    welch: Any = scipy.stats.ttest_ind(*scores, equal_var=False)
    over_seeds = (several.mean / welch.statistic) ** 2
    samples = [differences.bootstrap_scores(side, "bleu")[:, 1:].mean(0) for side in (ours, theirs)]
    over_sentences = np.var(samples[0] - samples[1], ddof=1)
    freedom = welch.df * ((over_seeds + over_sentences) / over_seeds) ** 2
    expected = scipy.stats.t.ppf(0.975, freedom) * (over_seeds + over_sentences) ** 0.5
    assert several.half_width == pytest.approx(expected)
    assert several.half_width > 1.96 * over_sentences**0.5


def test_an_interval_over_seeds_alone_is_that_of_welch():
    # Means 10 and 7, variances 1 and 4, three runs each.
    found = differences.from_variances(3.0, 0.0, ([9, 10, 11], [5, 7, 9]))
    interval = scipy.stats.ttest_ind([9, 10, 11], [5, 7, 9], equal_var=False).confidence_interval()
    assert found.half_width == pytest.approx((interval.high - interval.low) / 2)
    # By hand: standard error sqrt(5/3), 50/17 degrees of freedom, t at 97.5% about 3.22.
    assert found.half_width == pytest.approx(3.22 * (5 / 3) ** 0.5, rel=2e-3)
    for sides in (([9], [5, 7, 9]), ([5, 7, 9], [9]), ([9, 9], [5, 5])):  # no variance is known
        assert differences.from_variances(2.0, 0.0, sides).half_width == 0


@pytest.mark.slow
def test_the_interval_of_the_bootstrap_covers_the_truth_in_95_percent():
    # Systems that are equally good by construction: their difference should lie within the
    # interval in 95% of many small corpora.
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        sides = []
        for _ in range(2):
            words = random.integers(8, 30, size=(200, 1))
            totals = np.concatenate([words - n for n in range(4)], 1)
            matches = random.binomial(totals, [0.6, 0.4, 0.3, 0.2])
            sides.append(np.concatenate([words, words, matches, totals], 1).astype(np.int32))
        found = difference({0: sides[0]}, {0: sides[1]})
        covered += not found.excludes_0
    assert 0.93 <= covered / 400 <= 0.97


@pytest.mark.parametrize("freedom", [3, 8, np.inf])
def test_a_detectable_difference_is_mostly_detected(freedom):
    """Simulates estimates with their standard errors."""
    half = float(scipy.stats.t.ppf(0.975, freedom))  # of a standard error of 1
    truth = differences.Difference(0.0, half, (3, 3), freedom).detectable()
    random = np.random.default_rng(0)
    estimates = random.normal(truth, 1, 100_000)
    errors = 1.0
    if np.isfinite(freedom):
        errors = np.sqrt(random.chisquare(freedom, estimates.size) / freedom)
    detected = np.mean(np.abs(estimates) > half * errors)
    assert detected == pytest.approx(differences.POWER, abs=0.03)
