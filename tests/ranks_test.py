"""Rank correlations, against SciPy and counts by hand."""

import itertools

import numpy as np
import pytest
import scipy.stats

from experiments.stats import differences, ranks, seed_variance
from transformer_jax.evaluation import bleu


def counted(right, seeds=2, sentences=40):
    """Returns bootstrap scores of runs that have a share of their words right."""
    random = np.random.default_rng(round(1000 * right))
    found = {}
    for seed in range(seeds):
        kept = random.binomial(12, right, size=sentences)
        ngrams = [np.maximum(kept - n, 0) for n in range(4)]
        totals = [np.full(sentences, 12 - n) for n in range(4)]
        words = np.full(sentences, 12)
        found[seed] = np.stack([words, words, *ngrams, *totals], axis=1).astype(np.int32)
    return differences.bootstrap_scores(found, "bleu")


def mean_score(scores):
    return scores[:, 0].mean()


def test_orders_are_compared_as_scipy_and_hand_counts_do():
    shares = {"base": (0.6, 0.7), "a": (0.5, 0.75), "b": (0.55, 0.5), "c": (0.8, 0.9)}
    sides = [{name: counted(each[i]) for name, each in shares.items()} for i in (0, 1)]
    references = dict.fromkeys("abc", "base")
    found = ranks.agreement(sides, references)
    ours, theirs = ([mean_score(runs) for runs in side.values()] for side in sides)
    assert found.tau.value == pytest.approx(scipy.stats.kendalltau(ours, theirs)[0])
    pairs = [(i, j) for i, j in itertools.combinations(range(4), 2)]
    alike = [(ours[i] > ours[j]) == (theirs[i] > theirs[j]) for i, j in pairs]
    assert found.pairs.value == np.mean(alike)
    assert found.signs.value == pytest.approx(2 / 3)  # a turns
    assert found.num_pairs == len(pairs)
    for each in (found.tau, found.pairs, found.signs):
        assert each.low <= each.value <= each.high


def test_noise_widens_the_interval():
    def tau(sentences):
        shares = {"x": 0.5, "y": 0.55, "z": 0.6}
        side = {name: counted(share, 2, sentences) for name, share in shares.items()}
        references = {"y": "x", "z": "x"}
        return ranks.agreement([side, side], references).tau

    few, many = tau(10), tau(2000)
    assert (many.low, many.value, many.high) == (1, 1, 1)
    assert few.high - few.low > 0.5


def test_the_pooled_variance_stands_for_the_seeds_of_single_runs():
    shares = {"x": 0.5, "y": 0.55, "z": 0.6}
    side = {name: counted(share, 1, 2000) for name, share in shares.items()}
    scores = {name: mean_score(runs) for name, runs in side.items()}
    step = scores["y"] - scores["x"]

    def sign_of_y(deviation):
        estimate = seed_variance.Estimate(deviation**2, 1000)
        variance = seed_variance.SeedVariance(estimate, ["x"], deviation, {})
        return ranks.agreement([side, side], {"y": "x"}, (variance, None)).signs

    assert sign_of_y(step / 20).low == 1
    assert sign_of_y(step).low == 0  # y turns in one of Φ(-1/√2), 24%, of the draws
    assert sign_of_y(step).value == 1


def test_means_of_few_runs_vary_as_those_of_others_would():
    # Sentences are alike, of 12 words: runs differ in how many of their n-grams are right.
    right = {seed: [12 - seed - n for n in range(4)] for seed in range(3)}
    few = {seed: np.array(50 * [[12, 12, *found, 12, 11, 10, 9]]) for seed, found in right.items()}
    scores = [bleu.from_counts(run.sum(0), bleu.MAIN) for run in few.values()]
    assert len({*scores}) == 3
    means = ranks._resample({"row": differences.bootstrap_scores(few, "bleu")}, None, 2)[:, 0]
    assert means[0] == pytest.approx(np.mean(scores))
    assert means[1:].std() == pytest.approx(np.std(scores, ddof=1) / 3**0.5, rel=0.1)


@pytest.fixture(scope="module")
def rows():
    shares = {"good": (0.9, 3), "alike": (0.899, 1), "bad": (0.6, 3)}
    return {name: counted(*each, sentences=300) for name, each in shares.items()}


def test_tau_is_kendalls_over_the_pairs_that_the_paper_separates(rows):
    certain = ranks.Tau(ranks.Estimate(1.0, 1.0, 1.0), 2)
    paper = {"good": 25.8, "alike": 25.7, "bad": 24.0}
    assert ranks.tau(rows, paper) == certain
    swapped = ranks.tau(rows, {"good": 24.0, "alike": 24.1, "bad": 25.8})
    assert swapped is not None
    assert (swapped.estimate.value, swapped.num_pairs) == (-1.0, 2)
    assert ranks.tau({"good": rows["good"]}, paper) is None
    # Single seeds have no variance, but for a pooled one, which here exceeds all differences.
    ones = {name: scores[:1] for name, scores in rows.items()}
    assert ranks.tau(ones, paper) == certain
    wild = seed_variance.pool({"good": [0.0, 99.0, 50.0]}, "good")
    assert ranks.tau(ones, paper, wild) == ranks.Tau(ranks.Estimate(1.0, -1.0, 1.0), 2)
    # Few runs leave a deviation uncertain: t with 1 degree of freedom is beyond 2.5 standard
    # errors on one side in 12% of cases, the normal distribution in 0.6%.
    two = {name: ones[name] for name in ("good", "bad")}
    good, bad = (scores[0, 0] for scores in two.values())
    for freedom, low in ((1, -1.0), (100, 1.0)):
        estimate = seed_variance.Estimate(((good - bad) / 2.5) ** 2 / 2, freedom)
        variance = seed_variance.SeedVariance(estimate, ["good"], estimate.variance**0.5, {})
        found = ranks.tau(two, paper, variance)
        assert found == ranks.Tau(ranks.Estimate(1.0, low, 1.0), 1)


def test_tau_is_scipys_where_the_paper_separates_all_pairs():
    means = [3.0, 2.0, 2.0, 1.0]
    pairs = list(itertools.combinations(range(4), 2))
    order = [3, 2, 1, 0]
    ours, signs = (np.sign([[x[i] - x[j] for i, j in pairs]]) for x in (means, order))
    expected, _ = scipy.stats.kendalltau(means, order, variant="b")
    assert ranks.tau_b(ours, signs) == pytest.approx(expected)
