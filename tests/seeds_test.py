"""The mixed model of rows and seeds, against statsmodels and SciPy."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats

from experiments.stats import differences, failures, scores, seeds


def unbalanced(tau, seed=0):
    """Returns rows, seeds and scores of a base with five runs and of ten rows with two or three."""
    random = np.random.default_rng(seed)
    keys = [("base", k) for k in range(5)]
    keys += [(f"row {i}", k) for i in range(10) for k in range(3 - i % 2)]
    of_seeds = random.normal(0, tau, 5)
    values = [30 + len(row) + of_seeds[k] + random.normal(0, 0.3) for row, k in keys]
    rows, numbers = zip(*keys, strict=True)
    return rows, numbers, np.array(values)


def means_of(rows, numbers, values):
    runs: dict[str, dict[int, scores.Run]] = {}
    for row, number, value in zip(rows, numbers, values, strict=True):
        runs.setdefault(row, {})[number] = scores.Run(float(value))
    return differences.Means(runs, "base")


def test_variances_and_means_are_those_of_statsmodels():
    mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    rows, numbers, values = unbalanced(0.5)
    design = seeds.Design(rows, numbers)
    found = design.fit(values)
    model = mixed.MixedLM(values, design.x, groups=np.array(numbers))
    expected = model.fit(reml=True)
    assert found
    assert found.run == pytest.approx(expected.scale, rel=1e-3)
    assert found.seed == pytest.approx(float(expected.cov_re[0, 0]), rel=1e-3)
    means = means_of(rows, numbers, values)
    assert [means.mean(row) for row in design.rows] == pytest.approx(expected.fe_params, rel=1e-5)
    gap = means.difference("row 3", "base")
    # MixedLM's standard errors include the covariance with τ²; those of GLS take it as known.
    linear = pytest.importorskip("statsmodels.regression.linear_model")
    covariance = found.run * np.eye(len(values)) + found.seed * design.z @ design.z.T
    contrast = np.zeros(11)
    contrast[[design.rows.index("row 3"), 0]] = 1, -1
    fitted = linear.GLS(values, design.x, sigma=covariance).fit()
    assert gap.mean == pytest.approx(contrast @ fitted.params)
    assert gap.standard_error**2 == pytest.approx(
        contrast @ fitted.normalized_cov_params @ contrast
    )


def test_equal_seeds_give_the_paired_t_test():
    random = np.random.default_rng(1)
    rows, numbers = zip(*itertools.product(["base", "row"], range(8)), strict=True)
    of_seeds = random.normal(0, 3, 8)
    values = np.concatenate([of_seeds, of_seeds]) + random.normal(0, 0.5, 16)
    gap = means_of(rows, numbers, values).difference("row", "base")
    test: Any = scipy.stats.ttest_rel(values[8:], values[:8])
    assert gap.mean == pytest.approx(values[8:].mean() - values[:8].mean())
    assert gap.p_value(abs(gap.mean)) == pytest.approx(test.pvalue)
    assert gap.freedom == pytest.approx(7)


def test_without_a_seed_effect_the_variance_is_that_within_groups():
    groups = {"base": [30.0, 31.0, 29.5, 30.2], "row": [31.0, 31.5], "third": [29.0, 28.0]}
    keys = [(row, 10 * i + k) for i, (row, g) in enumerate(groups.items()) for k in range(len(g))]
    rows, numbers = zip(*keys, strict=True)  # no two rows share a seed
    means = means_of(rows, numbers, np.concatenate([*groups.values()]))
    squares = sum(((np.array(g) - np.mean(g)) ** 2).sum() for g in groups.values())
    assert means.components
    assert (means.components.total, means.components.freedom) == (pytest.approx(squares / 5), 5)
    gap = means.difference("row", "base")
    assert gap.standard_error == pytest.approx((squares / 5 * (1 / 2 + 1 / 4)) ** 0.5)
    assert gap.freedom == pytest.approx(5)


def test_one_seed_has_the_variance_of_a_new_run():
    rows, numbers = ["base", "base", "base", "row"], [0, 1, 2, 0]
    gap = means_of(rows, numbers, np.array([30.0, 31.0, 32.0, 31.0])).difference("row", "base")
    # The prediction interval of one more run: s √(1 + 1/n), t with n − 1 degrees of freedom.
    assert gap.half_width == pytest.approx(scipy.stats.t.ppf(0.975, 2) * (1 + 1 / 3) ** 0.5)
    assert (gap.runs, gap.over_seeds) == ((1, 3), True)


def test_without_repeated_runs_there_is_no_variance_over_seeds():
    means = means_of(["base", "row"], [0, 0], np.array([1.0, 2.0]))
    gap = means.difference("row", "base")
    assert means.components is None
    assert (gap.mean, gap.over_seeds, gap.p_value(1.0)) == (1.0, False, 1.0)
    assert np.isnan(gap.half_width)


def test_equal_scores_are_no_evidence_of_precision():
    rows, numbers = zip(*itertools.product(["base", "row"], range(3)), strict=True)
    gap = means_of(rows, numbers, np.zeros(6)).difference("row", "base")
    assert np.isnan(gap.half_width)
    assert not gap.over_seeds


def test_variances_are_unbiased():
    found = []
    for number in range(1500):
        rows, numbers, values = unbalanced(0.5, number)
        found.append(seeds.design(rows, numbers).fit(values))
    assert np.mean([each.run for each in found]) == pytest.approx(0.3**2, rel=0.03)
    assert np.mean([each.seed for each in found]) == pytest.approx(0.5**2, rel=0.08)


def test_a_row_is_outlying_against_all_other_rows():
    random = np.random.default_rng(2)
    caught, false = [], []
    for _ in range(500):
        runs = {f"row {i}": random.normal(0, 1, 3).tolist() for i in range(18)}
        runs |= {"base": random.normal(0, 1, 5).tolist(), "wild": random.normal(0, 4, 3).tolist()}
        found = seeds.outlying(runs, "base")
        caught.append("wild" in found)
        false.append(len(found - {"wild"}) > 0)
    # Against all others, a row with four times the deviation is caught in half of all tables.
    assert np.mean(caught) > 0.5
    assert np.mean(false) < 0.07
    wild = {"base": [1.0, 99.0], "row": [1.0, 1.1, 0.9]}
    assert seeds.outlying(wild, "base") == set()


def test_an_outlying_row_has_its_own_variance():
    groups = {"base": [30.0, 30.2, 30.4, 30.1], "calm": [31.0, 31.3], "wild": [20.0, 30.0, 40.0]}
    keys = [(row, k) for row, g in groups.items() for k in range(len(g))]
    rows, numbers = zip(*keys, strict=True)
    means = means_of(rows, numbers, np.concatenate([*groups.values()]))
    assert (means.pooled, means.own) == (["base", "calm"], {"wild": pytest.approx(100.0)})
    base = np.var(groups["base"], ddof=1)
    pooled = (3 * base + np.var(groups["calm"], ddof=1)) / 4
    gap = means.difference("wild", "base")
    assert gap.standard_error == pytest.approx((100 / 3 + pooled / 4) ** 0.5)
    expected = (100 / 3 + pooled / 4) ** 2 / ((100 / 3) ** 2 / 2 + (pooled / 4) ** 2 / 4)
    assert gap.freedom == pytest.approx(expected)


@pytest.mark.parametrize(
    ("lowest", "best", "reported", "comparable", "expected"),
    [
        # Multi30k's base with big's three runs, and the highest of the other rows.
        (11.3, 5.3, True, True, True),
        (11.9, 5.3, True, True, True),
        (5.3, 5.3, True, True, False),
        (8.27, 8.27, True, True, False),
        # A row that no paper reports may be worse by nature, but its runs should agree.
        (21.3, 21.3, False, True, False),
        (113.8, 7.83, False, True, True),
        (9.82, 7.86, False, True, False),
        # Bytes: the perplexity of another unit.
        (1.8, 1.8, False, False, False),
        (2.8, 1.8, False, False, True),
    ],
)
def test_runs_fail_by_their_lowest_perplexity(lowest, best, reported, comparable, expected):
    assert (lowest > failures.limit(5.92, best, reported, comparable)) == expected
