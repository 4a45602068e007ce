"""The variance over seeds, against SciPy, and the rows that failed to train."""

import json
from typing import Any

import numpy as np
import pytest
import scipy.stats

from experiments.results import documents, frames, report
from experiments.stats import comparison, differences, seed_variance
from tests import sweeps


def test_a_pool_without_sentences_is_students_t_of_two_samples():
    random = np.random.default_rng(0)
    base, row = random.normal(30, 1, 10).tolist(), random.normal(31, 1, 4).tolist()
    variance = seed_variance.pool({"base": base, "row": row}, "base")
    assert variance
    assert variance.rows == ["base", "row"]
    found = differences.from_variances(
        np.mean(row) - np.mean(base), 0.0, (row, base), (variance.pooled, variance.pooled)
    )
    test: Any = scipy.stats.ttest_ind(row, base)
    interval = test.confidence_interval()
    assert found.p_value(abs(found.mean)) == pytest.approx(test.pvalue)
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(
        tuple(interval)
    )
    # Several rows: the mean square within groups of an analysis of variance.
    third = random.normal(29, 1, 3).tolist()
    variance = seed_variance.pool({"base": base, "row": row, "third": third}, "base")
    assert variance
    groups = (base, row, third)
    square = sum(((np.array(g) - np.mean(g)) ** 2).sum() for g in groups) / (17 - 3)
    assert (variance.pooled.variance, variance.pooled.freedom) == (pytest.approx(square), 14)


def test_one_seed_has_the_variance_of_a_new_run():
    base, row = [30.0, 31.0, 32.0], [31.0]
    variance = seed_variance.pool({"base": base, "row": row}, "base")
    assert variance
    pooled = (variance.pooled, variance.pooled)
    found = differences.from_variances(0.0, 0.0, (row, base), pooled)
    # The prediction interval of one more run: s √(1 + 1/n), t with n − 1 degrees of freedom.
    assert found.half_width == pytest.approx(scipy.stats.t.ppf(0.975, 2) * (1 + 1 / 3) ** 0.5)
    assert (found.runs, found.over_seeds) == ((1, 3), True)
    more = differences.from_variances(0.0, 0.5, (row, base), pooled)
    assert more.standard_error == pytest.approx((4 / 3 + 0.5) ** 0.5)
    assert more.freedom == pytest.approx((4 / 3 + 0.5) ** 2 / ((4 / 3) ** 2 / 2))
    without = differences.from_variances(0.0, 0.5, (row, base))
    assert (without.over_seeds, without.standard_error) == (False, pytest.approx(0.5**0.5))


def test_a_row_that_failed_to_train_is_excluded_from_the_pool():
    base, calm, wild = [30.0, 30.2, 30.4, 30.1], [31.0, 31.3], [20.0, 30.0, 40.0]
    scores = {"base": base, "calm": calm, "wild": wild, "one": [3.0]}
    variance = seed_variance.pool(scores, "base", {"wild", "one"})
    assert variance
    assert variance.rows == ["base", "calm"]
    assert variance.of("calm") is variance.of("one") is variance.of("base")
    assert variance.of("wild") == seed_variance.Estimate(100.0, 2)
    squares = sum(np.var(runs, ddof=1) * (len(runs) - 1) for runs in (base, calm))
    assert variance.pooled.variance == pytest.approx(squares / 4)
    assert seed_variance.pool({"base": [1.0], "row": [1.0, 2.0]}, "base") is None


def test_runs_fail_by_their_lowest_perplexity():
    # Multi30k's base, big's three runs, and the highest of the other rows.
    found = [seed_variance.has_failed(ppl, 5.92) for ppl in (11.3, 11.9, 5.3, 8.27)]
    assert found == [True, True, False, False]


def test_failed_rows_are_found_in_a_sweep(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=2))
    sweep = frames.load(tmp_path)
    assert comparison.failed_rows(sweep) == set()
    limit = seed_variance.FAILED * np.mean(sweep.values("base", "ppl"))
    folder = sweeps.folder(tmp_path, "A h=1", 1)
    sweeps.change(folder, ppl=2 * limit)
    for lowest, expected in ((1.01 * limit, {"A h=1"}), (0.99 * limit, set())):
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 10, "dev_ppl": lowest}) + "\n")
        assert comparison.failed_rows(frames.load(tmp_path)) == expected


def test_the_variance_of_base_widens_the_intervals_of_single_seeds(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=1, sentences=40))
    before = comparison.compare(frames.load(tmp_path))
    sweeps.describe(tmp_path, noise_floor=5)
    waiting = comparison.compare(frames.load(tmp_path))
    assert "base has 1 of 5 runs" in documents.seed_variance_note(waiting)
    sweeps.add_seeds(tmp_path, "base", 5)
    compared = comparison.compare(frames.load(tmp_path))
    deviation = np.std(compared.dev.scores["base"][:, 0], ddof=1)
    assert compared.rows["seed_sd"].tolist() == [pytest.approx(deviation)] * 4
    assert set(compared.rows["seed_sd_freedom"]) == {4}
    for row in ("A h=1", "D P_drop=0.0", "E"):
        assert compared.rows.loc[row, "half_width"] > before.rows.loc[row, "half_width"]
        assert (before.rows.loc[row, "over_seeds"], compared.rows.loc[row, "over_seeds"]) == (
            False,
            True,
        )
    note = documents.seed_variance_note(compared)
    assert f"base {deviation:.2f} over 5 runs, with 4 degrees of freedom" in note


def test_a_failed_row_is_named_below_both_tables(tmp_path):
    made = sweeps.Made(sweeps.some_rows(), seeds=1, sentences=40, noise_floor=5, tested=True)
    sweeps.make(tmp_path, made)
    sweeps.add_seeds(tmp_path, "base", 5)
    sweeps.add_seeds(tmp_path, "A h=1", 2)
    folder = sweeps.folder(tmp_path, "A h=1", 1)
    sweeps.change(folder, ppl=1000.0)
    (folder / "metrics.jsonl").unlink()
    compared = comparison.compare(frames.load(tmp_path))
    for split in ("dev", "test"):
        note = documents.seed_variance_note(compared, split)
        assert note.count("A h=1 (") == 1, note
    assert note in report.build(compared).tables[1].note
