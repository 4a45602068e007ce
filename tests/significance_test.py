"""Significance against sacreBLEU's own tests, and verdicts against the rules in words."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats
from sacrebleu import significance as sacrebleu_significance
from sacrebleu.metrics import bleu as sacrebleu

from experiments.analysis import noise_floor, ranks, significance
from transformer_jax.data.toy import generator
from transformer_jax.evaluation import bleu


def degrade(sentences, share, seed):
    """Sentences of which a share of words is missing."""
    random = np.random.default_rng(seed)
    return [
        " ".join(word for word in sentence.split() if random.random() >= share) or "."
        for sentence in sentences
    ]


@pytest.fixture(scope="module")
def references():
    return [pair.german for pair in generator.sentences(300, 1, 0)[0]]


@pytest.fixture(scope="module")
def runs(references):
    """Counts and translations of three systems of three seeds each; the first two are alike."""
    hypotheses = {
        (share, seed): degrade(references, share, 10 * seed + place)
        for place, share in enumerate((0.1, 0.101, 0.2))
        for seed in range(3)
    }
    return {
        key: (text, bleu.counts(text, references, "de", bleu.MAIN))
        for key, text in hypotheses.items()
    }


def test_counts_of_sentences_sum_to_corpus_bleu(runs, references):
    for variant in (bleu.MAIN, bleu.PAPER):
        hypotheses = runs[0.2, 0][0]
        summed = bleu.counts(hypotheses, references, "de", variant).sum(0)
        whole = bleu.score(hypotheses, references, "de")[variant]["score"]
        assert bleu.from_counts(summed, variant) == pytest.approx(whole)


def test_one_run_each_agrees_with_sacrebleu(runs, references):
    for other in (0.101, 0.2):
        ours, theirs = runs[other, 0], runs[0.1, 0]
        found = significance.difference({0: ours[1]}, {0: theirs[1]}, bleu.MAIN)
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
    one = significance.difference({0: runs[0.2, 0][1]}, {0: runs[0.1, 0][1]}, bleu.MAIN)
    ours, theirs = ({seed: runs[share, seed][1] for seed in range(3)} for share in (0.2, 0.1))
    several = significance.difference(ours, theirs, bleu.MAIN)
    alike = [dict(enumerate([runs[share, 0][1]] * 3)) for share in (0.2, 0.1)]
    same = significance.difference(alike[0], alike[1], bleu.MAIN)
    assert (one.runs, several.runs) == ((1, 1), (3, 3))
    assert same.half == pytest.approx(one.half)  # seeds that do not differ add nothing
    scores = [
        [bleu.from_counts(run.sum(0), bleu.MAIN) for run in side.values()]
        for side in (ours, theirs)
    ]
    assert several.mean == pytest.approx(np.mean(scores[0]) - np.mean(scores[1]))
    # Without sentences it is Welch's; with them, their variance is added, known exactly.
    welch: Any = scipy.stats.ttest_ind(*scores, equal_var=False)
    over_seeds = (several.mean / welch.statistic) ** 2
    weights = significance.samples(300)[1:]
    samples = [
        np.mean([significance.scores(run, bleu.MAIN, weights) for run in side.values()], axis=0)
        for side in (ours, theirs)
    ]
    over_sentences = np.var(samples[0] - samples[1], ddof=1)
    freedom = welch.df * ((over_seeds + over_sentences) / over_seeds) ** 2
    expected = scipy.stats.t.ppf(0.975, freedom) * (over_seeds + over_sentences) ** 0.5
    assert several.half == pytest.approx(expected)
    assert several.half > 1.96 * over_sentences**0.5


def test_an_interval_over_seeds_alone_is_welchs():
    # Means 10 and 7, variances 1 and 4, three runs each.
    found = significance.estimated(3.0, 0.0, ([9, 10, 11], [5, 7, 9]))
    interval = scipy.stats.ttest_ind([9, 10, 11], [5, 7, 9], equal_var=False).confidence_interval()
    assert found.half == pytest.approx((interval.high - interval.low) / 2)
    # By hand: standard error sqrt(5/3), 50/17 degrees of freedom, t at 97.5% about 3.22.
    assert found.half == pytest.approx(3.22 * (5 / 3) ** 0.5, rel=2e-3)
    for sides in (([9], [5, 7, 9]), ([5, 7, 9], [9]), ([9, 9], [5, 5])):  # which know of no noise
        assert significance.estimated(2.0, 0.0, sides).half == 0


@pytest.mark.parametrize(("half", "written"), [(0.404, "−1.23 ± 0.40 *"), (1.5, "−1.23 ± 1.50")])
def test_a_star_says_that_the_interval_excludes_0(half, written):
    assert significance.Difference(-1.234, half, runs=(1, 1)).written == written


@pytest.mark.slow
def test_the_bootstraps_interval_covers_the_truth_as_often_as_it_says():
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
        found = significance.difference({0: sides[0]}, {0: sides[1]}, bleu.MAIN)
        covered += not found.excludes_0
    assert 0.93 <= covered / 400 <= 0.97


@pytest.mark.parametrize(
    ("mean", "half", "seeds", "paper", "expected"),
    [
        (-1.0, 0.5, 3, -0.9, "reproduced"),
        (1.0, 0.5, 3, 0.4, "reproduced"),
        (1.0, 0.5, 3, -0.9, "contradicts"),
        (-1.0, 0.5, 3, -0.1, "contradicts"),
        (-1.0, 0.5, 3, 0.0, "contradicts"),
        (0.1, 0.3, 3, -0.1, "tie as in the paper"),
        (0.3, 0.2, 3, 0.0, "tie as in the paper"),
        (0.1, 0.5, 3, -0.1, "undecided"),
        (0.1, 0.3, 3, -0.9, "undecided"),
        (0.1, 0.3, 3, 0.3, "undecided"),  # no tie: the paper's is 0.3 or more
        (-1.0, 0.5, 3, -0.3, "reproduced"),
        (-1.0, 0.5, 1, -0.9, "undecided"),
    ],
)
def test_verdicts(mean, half, seeds, paper, expected):
    difference = significance.Difference(mean, half, (seeds, seeds))
    found = significance.verdicts({"row": difference}, {"row": paper})
    assert found["row"].word == expected


def test_verdicts_of_many_rows_ask_more_of_each():
    surely, barely = (significance.Difference(-1.0, half, (3, 3)) for half in (0.4, 0.9))
    tie = significance.Difference(0.1, 0.39, (3, 3))
    for row, paper, word in ((barely, -0.9, "reproduced"), (tie, 0.0, "tie as in the paper")):
        alone = significance.verdicts({"row": row}, {"row": paper})
        assert (alone["row"].word, alone["row"].level) == (word, 0.05)
        among = significance.verdicts({"row": row, "twin": row}, {"row": paper, "twin": paper})
        assert among["row"].word == significance.UNDECIDED
        assert among["row"].level == 0.025
    # What is surely there leaves its share to the others, and one seed takes none.
    one = dataclasses.replace(surely, runs=(1, 1))
    rows = {"surely": surely, "barely": barely, "one": one}
    found = significance.verdicts(rows, dict.fromkeys(rows, -0.9))
    assert [each.word for each in found.values()] == ["reproduced", "reproduced", "undecided"]
    assert [each.is_sure for each in found.values()] == [True, True, False]


@pytest.mark.parametrize("freedom", [3, 8, np.inf])
def test_a_detectable_difference_is_mostly_detected(freedom):
    """As in an experiment that draws the difference and its standard error again and again."""
    half = float(scipy.stats.t.ppf(0.975, freedom))  # of a standard error of 1
    truth = significance.Difference(0.0, half, (3, 3), freedom).detectable()
    random = np.random.default_rng(0)
    estimates = random.normal(truth, 1, 100_000)
    errors = 1.0
    if np.isfinite(freedom):
        errors = np.sqrt(random.chisquare(freedom, estimates.size) / freedom)
    shown = np.mean(np.abs(estimates) > half * errors)
    assert shown == pytest.approx(significance.POWER, abs=0.03)


def test_means_of_few_runs_vary_as_those_of_others_would():
    # Sentences are alike, of 12 words: runs differ in how many of their n-grams are right.
    right = {seed: [12 - seed - n for n in range(4)] for seed in range(3)}
    few = {seed: np.array(50 * [[12, 12, *found, 12, 11, 10, 9]]) for seed, found in right.items()}
    scores = [bleu.from_counts(run.sum(0), bleu.MAIN) for run in few.values()]
    assert len({*scores}) == 3
    means = ranks._resampled({"row": few}, bleu.MAIN, None, seed=2)[:, 0]
    assert means[0] == pytest.approx(np.mean(scores))
    assert means[1:].std() == pytest.approx(np.std(scores, ddof=1) / 3**0.5, rel=0.1)


def test_tau_is_kendalls_over_the_pairs_that_the_paper_separates(runs):
    rows = {
        "good": {seed: runs[0.1, seed][1] for seed in range(3)},
        "alike": {0: runs[0.101, 0][1]},
        "bad": {seed: runs[0.2, seed][1] for seed in range(3)},
        "not run": {},
    }
    paper = {"good": 25.8, "alike": 25.7, "bad": 24.0, "not run": 20.0}
    found = ranks.tau(rows, paper, bleu.MAIN)
    assert found == (1.0, 1.0, 1.0, 2)
    swapped = ranks.tau(rows, {"good": 24.0, "alike": 24.1, "bad": 25.8}, bleu.MAIN)
    assert swapped is not None
    assert (swapped[0], swapped[3]) == (-1.0, 2)
    assert ranks.tau({"good": rows["good"]}, paper, bleu.MAIN) is None
    # One seed of each says nothing of others, but for a noise floor, which here drowns all order.
    ones = {name: {0: run[0]} for name, run in rows.items() if run}
    assert ranks.tau(ones, paper, bleu.MAIN) == (1.0, 1.0, 1.0, 2)
    wild = noise_floor.measure({"good": [0.0, 99.0, 50.0]}, "good")
    assert ranks.tau(ones, paper, bleu.MAIN, wild) == (1.0, -1.0, 1.0, 2)
    # Two runs say little of how far others go: t with 1 degree of freedom is beyond 2.5 of its
    # errors on one side in 12% of cases, the normal in 0.6%.
    two = {name: ones[name] for name in ("good", "bad")}
    good, bad = (bleu.from_counts(run[0].sum(0), bleu.MAIN) for run in two.values())
    for freedom, low in ((1, -1.0), (100, 1.0)):
        spread = noise_floor.Spread(((good - bad) / 2.5) ** 2 / 2, freedom)
        floor = noise_floor.Floor(spread, ["good"], spread.variance**0.5, {})
        assert ranks.tau(two, paper, bleu.MAIN, floor) == (1.0, low, 1.0, 1)
    # Where the paper separates all pairs, it is scipy's tau-b.
    means = [3.0, 2.0, 2.0, 1.0]
    pairs = list(itertools.combinations(range(4), 2))
    order = [3, 2, 1, 0]
    ours, signs = (np.sign([[x[i] - x[j] for i, j in pairs]]) for x in (means, order))
    expected, _ = scipy.stats.kendalltau(means, order, variant="b")
    assert ranks.tau_b(ours, signs) == pytest.approx(expected)
