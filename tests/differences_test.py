"""Differences and their intervals, against sacreBLEU and SciPy."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
from sacrebleu import significance as sacrebleu_significance
from sacrebleu.metrics import bleu as sacrebleu

from experiments.stats import differences, scores
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
    rows = {"row": scores.from_counts(ours, "bleu"), "base": scores.from_counts(theirs, "bleu")}
    return differences.Means(rows, "base").difference("row", "base")


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
        results: Any = test()[1]
        base, row = results["BLEU"]
        assert found.mean == pytest.approx(row.score - base.score)
        assert found.excludes_0 == (row.p_value < 0.05)
        # The jackknife's interval of one system is that of sacreBLEU's bootstrap.
        alone = scores.from_counts({0: ours[1]}, "bleu")[0]
        half = 1.96 * (alone.deviations**2).sum() ** 0.5
        assert half == pytest.approx(row.ci, rel=0.1)


def test_the_jackknife_is_the_bootstrap(runs):
    ours, theirs = runs[0.2, 0][1], runs[0.1, 0][1]
    random = np.random.default_rng(0)
    gaps = []
    for _ in range(4000):
        chosen = random.integers(len(ours), size=len(ours))
        gaps.append(
            bleu.from_counts(ours[chosen].sum(0), bleu.MAIN)
            - bleu.from_counts(theirs[chosen].sum(0), bleu.MAIN)
        )
    found = difference({0: ours}, {0: theirs})
    assert found.standard_error == pytest.approx(np.std(gaps), rel=0.05)


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(1).normal(size=(50, 1))
    found = scores.jackknife(values, lambda sums: sums[..., 0] / 50)
    # Without a sentence, the sum of the others is divided by 50 still.
    exact = (49 / 50) ** 0.5 * np.abs(values - values.mean())[:, 0] / 50
    assert np.abs(found.deviations) == pytest.approx(exact)
    tokens = np.stack([values[:, 0], np.ones(50)], axis=1)
    (of_mean,) = scores.log_perplexities({0: 1.0}, {0: tokens}).values()
    assert (of_mean.deviations**2).sum() == pytest.approx(values.var(ddof=1) / 50)


def test_a_run_of_its_own_sentences_is_counted_once():
    """With no other source of variance, the variance is that of the runs, and B adds nothing."""
    random = np.random.default_rng(3)
    of_row, of_run, number = 0.2, 0.5, 4
    rows: dict[str, dict[int, scores.Run]] = {"base": {}, "row": {}}
    for place, row in enumerate(rows):
        for seed in range(number):
            deviations = np.zeros(10)
            deviations[place] = of_row
            deviations[2 + place * number + seed] = of_run
            rows[row][seed + 10 * place] = scores.Run(random.normal(0, of_run), deviations)
    means = differences.Means(rows, "base")
    gap = means.difference("row", "base")
    assert means.of_sentences == pytest.approx(of_run**2)
    assert means.components
    over_seeds = means.components.total * 2 / number
    assert gap.standard_error**2 == pytest.approx(2 * of_row**2 + over_seeds)
    freedom = 6 * ((2 * of_row**2 + over_seeds) / over_seeds) ** 2
    assert gap.freedom == pytest.approx(freedom)


def test_draws_have_the_variances_of_differences():
    random = np.random.default_rng(4)
    rows = {
        row: {seed: scores.Run(random.normal(), random.normal(0, 0.02, 300)) for seed in range(4)}
        for row in ("base", "a", "b", "c", "d", "e")
    }
    means = differences.Means(rows, "base")
    drawn = means.draw(["a", "base"], 40_000, seed=0)
    gap = means.difference("a", "base")
    assert drawn[0, 0] - drawn[0, 1] == pytest.approx(gap.mean)
    assert means.components
    freedom = means.components.freedom
    inflated = gap.standard_error * (freedom / (freedom - 2)) ** 0.5
    assert np.std(drawn[1:, 0] - drawn[1:, 1]) == pytest.approx(inflated, rel=0.05)


@pytest.mark.slow
def test_the_interval_over_sentences_covers_the_truth_in_95_percent():
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
    truth = differences.Difference(0.0, 1.0, (3, 3), freedom).detectable()
    half = float(scipy.stats.t.ppf(0.975, freedom))
    random = np.random.default_rng(0)
    estimates = random.normal(truth, 1, 100_000)
    errors = 1.0
    if np.isfinite(freedom):
        errors = np.sqrt(random.chisquare(freedom, estimates.size) / freedom)
    detected = np.mean(np.abs(estimates) > half * errors)
    assert detected == pytest.approx(differences.POWER, abs=0.03)
