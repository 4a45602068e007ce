"""Rank correlations, against SciPy and counts by hand."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats

from experiments.stats import differences, ranks, scores


def means_of(values, deviation=0.0, sentences=0.0, runs=2):
    """Returns means of rows with a standard deviation over seeds and over sentences."""
    rows = {}
    for place, (name, value) in enumerate(values.items()):
        shifts = deviation * np.linspace(-1, 1, runs) / max(np.std(np.linspace(-1, 1, runs)), 1e-9)
        own = np.zeros(len(values))
        own[place] = sentences
        # Seeds differ between rows, which therefore share no seed effect.
        rows[name] = {
            10 * place + number: scores.Run(value + shift, own)
            for number, shift in enumerate(shifts if runs > 1 else [0.0])
        }
    return differences.Means(rows, next(iter(values)))


def test_orders_are_compared_as_scipy_and_hand_counts_do():
    ours = {"base": 60.0, "a": 50.0, "b": 55.0, "c": 80.0}
    theirs = {"base": 70.0, "a": 75.0, "b": 50.0, "c": 90.0}
    found = ranks.agreement(
        [means_of(ours, 0.1), means_of(theirs, 0.1)], dict.fromkeys("abc", "base")
    )
    expected = scipy.stats.kendalltau([*ours.values()], [*theirs.values()])[0]
    assert found.tau.value == pytest.approx(expected)
    pairs = list(itertools.combinations(ours, 2))
    alike = [(ours[i] > ours[j]) == (theirs[i] > theirs[j]) for i, j in pairs]
    assert found.pairs.value == np.mean(alike)
    assert found.signs.value == pytest.approx(2 / 3)  # a turns
    assert found.num_pairs == len(pairs)
    for each in (found.tau, found.pairs, found.signs):
        assert each.low <= each.value <= each.high


@pytest.mark.parametrize("noise", [{"deviation": 1.0}, {"sentences": 1.0}])
def test_noise_widens_the_interval(noise):
    def tau(scale):
        side = means_of({"x": 50, "y": 51, "z": 52}, **{k: v * scale for k, v in noise.items()})
        return ranks.agreement([side, side], {"y": "x", "z": "x"}).tau

    assert (tau(0.01).low, tau(0.01).value, tau(0.01).high) == (1, 1, 1)
    assert tau(1.0).high - tau(1.0).low > 0.5


def test_tau_is_kendalls_over_the_pairs_that_the_paper_separates():
    rows = means_of({"good": 90.0, "alike": 89.0, "bad": 60.0}, 0.1)
    paper = {"good": 25.8, "alike": 25.7, "bad": 24.0}
    found = ranks.tau(rows, paper)
    assert found
    assert (found.estimate, found.num_pairs) == (ranks.Estimate(1.0, 1.0, 1.0), 2)
    swapped = ranks.tau(rows, {"good": 24.0, "alike": 24.1, "bad": 25.8})
    assert swapped
    assert (swapped.estimate.value, swapped.num_pairs) == (-1.0, 2)
    without = ranks.tau(rows, paper, ["alike"])
    assert without
    assert without.num_pairs == 1
    assert ranks.tau(rows, paper, ["bad"]) is None


def test_the_permutation_test_is_scipys():
    random = np.random.default_rng(0)
    ours = {str(i): float(value) for i, value in enumerate(random.normal(0, 1, 7))}
    paper = {name: 100 * value + 80 * random.normal() for name, value in ours.items()}
    found = ranks.tau(means_of(ours, 0.01), paper)
    exact: Any = scipy.stats.kendalltau([*ours.values()], [*paper.values()], method="exact")
    assert found
    assert found.estimate.value == pytest.approx(exact.statistic)
    assert found.p_value == pytest.approx(exact.pvalue, abs=0.015)


def test_tau_is_scipys_where_the_paper_separates_all_pairs():
    means = [3.0, 2.0, 2.0, 1.0]
    pairs = list(itertools.combinations(range(4), 2))
    order = [3, 2, 1, 0]
    ours, signs = (np.sign([[x[i] - x[j] for i, j in pairs]]) for x in (means, order))
    expected, _ = scipy.stats.kendalltau(means, order, variant="b")
    assert ranks.tau_b(ours, signs) == pytest.approx(expected)
