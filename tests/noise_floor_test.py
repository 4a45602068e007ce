"""The noise floor, Holm's correction, and what both come to over thousands of simulated tables."""

import csv
import itertools
import json
import re
import statistics
from typing import Any

import numpy as np
import pytest
import scipy.stats

from experiments.analysis import comparison, intervals, noise_floor, significance
from experiments.reporting import document, verdict_words
from experiments.sweep import results
from tests import sweeps
from transformer_jax.evaluation import bleu

TABLES = 2000
ROWS = [f"row {number}" for number in range(19)]


def judge(scores, sentences, paper, pooled=True):
    """The verdicts of a table, by the scores of its rows' runs; the first is base.

    Each row's deviation is that of its own runs, where it is not `pooled`.
    """
    base, *rows = scores
    floor = noise_floor.measure(scores, base)
    assert floor
    gaps = {}
    for row in rows:
        sides = scores[row], scores[base]
        mean = statistics.fmean(sides[0]) - statistics.fmean(sides[1])
        spreads = (floor.spread(row), floor.spread(base)) if pooled else None
        gaps[row] = significance.estimated(mean, sentences, sides, spreads)
    return gaps, significance.verdicts(gaps, paper), floor


def simulated(random, truth, runs, deviation=0.4, sentences=0.1, tables=TABLES):
    """Scores of many tables: seeds differ, and sentences move all runs of a row alike.

    Args:
      random: NumPy's.
      truth: each row's difference from base.
      runs: of base, and of each row.
      deviation: over seeds.
      sentences: variance of a difference over sentences, half of which is base's and so shared.
      tables: how many.
    """
    means = np.array([0.0, *truth.values()])
    for _ in range(tables):
        moved = means + random.normal(37, (sentences / 2) ** 0.5, len(means))
        yield {
            row: random.normal(mean, deviation, runs[place > 0]).tolist()
            for place, (row, mean) in enumerate(zip(["base", *truth], moved, strict=True))
        }


def test_holm_is_bonferroni_in_every_family_that_holds_the_row():
    random = np.random.default_rng(0)
    for number in range(1, 7):
        chances = {str(i): p for i, p in enumerate(random.uniform(0, 0.3, number))}
        closed = {
            name: max(
                min(1, size * min(chances[each] for each in family))
                for size in range(1, number + 1)
                for family in itertools.combinations(chances, size)
                if name in family
            )
            for name in chances
        }
        assert intervals.holm(chances) == pytest.approx(closed)
    assert intervals.holm({}) == {}


def test_holm_corrects_as_rs_p_adjust():
    # R 4: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm")
    chances = {str(i): i / 100 for i in range(1, 6)}
    assert [*intervals.holm(chances).values()] == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])


def test_a_pool_without_sentences_is_students_t_of_two_samples():
    random = np.random.default_rng(0)
    base, row = random.normal(30, 1, 10).tolist(), random.normal(31, 1, 4).tolist()
    floor = noise_floor.measure({"base": base, "row": row}, "base")
    assert floor
    assert floor.rows == ["base", "row"]
    found = significance.estimated(
        np.mean(row) - np.mean(base), 0.0, (row, base), (floor.pooled, floor.pooled)
    )
    test: Any = scipy.stats.ttest_ind(row, base)
    interval = test.confidence_interval()
    assert found.chance(abs(found.mean)) == pytest.approx(test.pvalue)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx(tuple(interval))
    # Several rows: the mean square within groups of an analysis of variance.
    third = random.normal(29, 1, 3).tolist()
    floor = noise_floor.measure({"base": base, "row": row, "third": third}, "base")
    assert floor
    groups = (base, row, third)
    square = sum(((np.array(g) - np.mean(g)) ** 2).sum() for g in groups) / (17 - 3)
    assert (floor.pooled.variance, floor.pooled.freedom) == (pytest.approx(square), 14)


def test_one_seed_has_the_noise_of_a_new_run():
    base, row = [30.0, 31.0, 32.0], [31.0]
    floor = noise_floor.measure({"base": base, "row": row}, "base")
    assert floor
    pooled = (floor.pooled, floor.pooled)
    found = significance.estimated(0.0, 0.0, (row, base), pooled)
    # The prediction interval of one more run: s √(1 + 1/n), t with n − 1 degrees of freedom.
    assert found.half == pytest.approx(scipy.stats.t.ppf(0.975, 2) * (1 + 1 / 3) ** 0.5)
    assert (found.runs, found.over_seeds) == ((1, 3), True)
    more = significance.estimated(0.0, 0.5, (row, base), pooled)
    assert more.error == pytest.approx((4 / 3 + 0.5) ** 0.5)
    assert more.freedom == pytest.approx((4 / 3 + 0.5) ** 2 / ((4 / 3) ** 2 / 2))
    without = significance.estimated(0.0, 0.5, (row, base))
    assert (without.over_seeds, without.error) == (False, pytest.approx(0.5**0.5))


def test_a_row_that_failed_to_train_is_excluded_from_the_pool():
    base, calm, wild = [30.0, 30.2, 30.4, 30.1], [31.0, 31.3], [20.0, 30.0, 40.0]
    scores = {"base": base, "calm": calm, "wild": wild, "one": [3.0]}
    floor = noise_floor.measure(scores, "base", {"wild", "one"})
    assert floor
    assert floor.rows == ["base", "calm"]
    assert floor.spread("calm") is floor.spread("one") is floor.spread("base")
    assert floor.spread("wild") == noise_floor.Spread(100.0, 2)
    squares = sum(np.var(runs, ddof=1) * (len(runs) - 1) for runs in (base, calm))
    assert floor.pooled.variance == pytest.approx(squares / 4)
    assert noise_floor.measure({"base": [1.0], "row": [1.0, 2.0]}, "base") is None


def test_runs_fail_by_their_lowest_perplexity():
    # Multi30k's base, big's three runs, and the highest of the other rows.
    found = [noise_floor.has_failed(ppl, 5.92) for ppl in (11.3, 11.9, 5.3, 8.27)]
    assert found == [True, True, False, False]


def test_failed_rows_are_found_in_a_sweep(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=2))
    sweep = results.read(tmp_path)
    assert comparison.failed_rows(sweep) == set()
    limit = noise_floor.FAILED * np.mean(sweep.rows[0].of("ppl"))
    folder = results.cell_folder(tmp_path, "A h=1", 1)
    sweeps.change(folder, ppl=2 * limit)
    for lowest, expected in ((1.01 * limit, {"A h=1"}), (0.99 * limit, set())):
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 10, "dev_ppl": lowest}) + "\n")
        assert comparison.failed_rows(results.read(tmp_path)) == expected


@pytest.mark.parametrize(
    ("runs", "sentences"),
    [((10, 1), 0.1), pytest.param((10, 3), 0.02, marks=pytest.mark.slow)],
)
def test_of_tables_without_differences_5_percent_show_one(runs, sentences):
    """False alarms in 2,000 tables of 19 rows that are as good as base, with one seed or three."""
    truth, paper = dict.fromkeys(ROWS, 0.0), dict.fromkeys(ROWS, -0.9)
    alarms, naive = [], []
    for scores in simulated(np.random.default_rng(1), truth, runs, sentences=sentences):
        gaps, found, _ = judge(scores, sentences, paper)
        alarms.append(any(each.word != significance.UNDECIDED for each in found.values()))
        naive.append(any(gap.excludes_0 for gap in gaps.values()))
    error = (0.05 * 0.95 / TABLES) ** 0.5
    assert 0.03 < np.mean(alarms) < 0.05 + 2 * error  # Holm loses little, though rows share base
    assert np.mean(naive) > 0.3  # what the correction is for


def test_a_detectable_difference_is_detected_in_four_of_five_tables():
    """Power: one row of seven differs by what the others, undecided, call detectable."""
    rows, sentences, deviation = ROWS[:7], 0.05, 0.4
    known = noise_floor.Spread(deviation**2, 9)
    runs = [0.0], [0.0] * 10
    reach = significance.estimated(0.0, sentences, runs, (known, known)).detectable(0.05 / 7)
    truth = {row: -reach * (row == rows[0]) for row in rows}
    paper = dict.fromkeys(rows, -0.9)
    seen, alarms = [], []
    for scores in simulated(np.random.default_rng(2), truth, (10, 1), deviation, sentences):
        _, found, _ = judge(scores, sentences, paper)
        words = [each.word for each in found.values()]
        seen.append(words[0] == "reproduced")
        alarms.append(any(word != significance.UNDECIDED for word in words[1:]))
        if not seen[-1]:
            assert found[rows[0]].level <= 0.05 / 6
    assert np.mean(seen) == pytest.approx(significance.POWER, abs=0.04)
    assert np.mean(alarms) < 0.05 + 2 * (0.05 * 0.95 / TABLES) ** 0.5


@pytest.mark.parametrize(
    ("runs", "pooled", "least", "most"),
    [
        ((10, 1), True, 0.70, 0.80),
        ((5, 1), True, 0.65, 0.75),
        ((3, 3), False, 0.65, 0.75),
        ((2, 2), False, 0.55, 0.70),
    ],
)
def test_the_detectable_difference_of_a_table_is_detected_as_often_as_the_page_says(
    runs, pooled, least, most
):
    """Power: another table, in which one row of seven differs by what the first one printed."""
    rows, random, seen = ROWS[:7], np.random.default_rng(5), []
    alike, paper = dict.fromkeys(rows, 0.0), dict.fromkeys(rows, -0.9)
    for scores in simulated(random, alike, runs, sentences=0.05, tables=1000):
        gaps, found, _ = judge(scores, 0.05, paper, pooled)
        printed = gaps[rows[0]].detectable(found[rows[0]].level)
        (scores,) = simulated(random, {**alike, rows[0]: -printed}, runs, sentences=0.05, tables=1)
        seen.append(judge(scores, 0.05, paper, pooled)[1][rows[0]].word == "reproduced")
    error = 2 * (0.5 * 0.5 / len(seen)) ** 0.5
    assert least - error <= np.mean(seen) <= most + error


def test_ties_that_are_none_are_called_ties_in_5_percent_at_most():
    """Rows that truly differ by just what counts as a difference, where the paper has a tie."""
    rows = ROWS[:5]
    truth, paper = dict.fromkeys(rows, significance.WITHIN), dict.fromkeys(rows, 0.0)
    words = [
        {each.word for each in judge(scores, 0.005, paper)[1].values()}
        for scores in simulated(np.random.default_rng(3), truth, (10, 3), 0.1, 0.005)
    ]
    assert np.mean(["tie as in the paper" in found for found in words]) < 0.06


def test_a_report_says_what_the_floor_is_and_counts_it(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=1, sentences=40))
    before = comparison.compare(results.read(tmp_path))
    sweeps.set_record(tmp_path, noise_floor=5)
    document.write(tmp_path)
    assert "Noise floor: none yet, base has 1 of 5 runs." in (tmp_path / "table3.md").read_text()
    sweeps.add_seeds(tmp_path, "base", 5)
    document.write(tmp_path)
    compared = comparison.compare(results.read(tmp_path))
    scores = [bleu.from_counts(run.sum(0), bleu.MAIN) for run in compared.counts["base"].values()]
    assert compared.floor
    assert compared.floor.own == pytest.approx(np.std(scores, ddof=1))
    for row in ("A h=1", "D P_drop=0.0", "E"):
        assert compared.gaps[row].half > before.gaps[row].half
        assert compared.gaps[row].over_seeds
        assert not before.gaps[row].over_seeds
    markdown = (tmp_path / "table3.md").read_text()
    assert f"over 5 seeds base deviates by {np.std(scores, ddof=1):.2f}, with 4 degr" in markdown
    lines = [*csv.DictReader((tmp_path / "table3.csv").read_text().splitlines())]
    assert [float(line["seed_sd"]) for line in lines] == [pytest.approx(compared.floor.own)] * 4
    assert {line["seed_sd_freedom"] for line in lines} == {"4"}
    cells = [line.split(" | ")[-1] for line in markdown.splitlines() if line.startswith("| A h=1")]
    undecided = r"undecided \(detectable: \d+\.\d\)"
    assert re.fullmatch(rf"({undecided}|reproduced|contradicts) \|", cells[0])


def test_a_failed_row_is_named_below_the_table_of_the_test_set(tmp_path):
    sweeps.make(tmp_path, sweeps.Made(sweeps.some_rows(), seeds=1, sentences=40))
    sweeps.set_record(tmp_path, noise_floor=5)
    sweeps.add_seeds(tmp_path, "base", 5)
    sweeps.add_seeds(tmp_path, "A h=1", 2)
    for path in tmp_path.glob("*/*/bleu_counts.json"):
        counts = json.loads(path.read_bytes())[bleu.MAIN]
        sweeps.keep_counts(path.parent, counts, "test")
    folder = results.cell_folder(tmp_path, "A h=1", 1)
    sweeps.change(folder, ppl=1000.0)
    (folder / "metrics.jsonl").unlink()
    document.write(tmp_path)
    _, test, *_ = (tmp_path / "table3.md").read_text(encoding="utf-8").split("\n## ")
    assert test.startswith("Test set")
    assert re.search(r"Noise floor: over 5 seeds base .* but not of those .*: A h=1 \(\d", test)


def test_an_undecided_row_names_the_detectable_difference_or_the_one_seed():
    runs = [20.0, 20.1, 19.9, 20.05, 19.95]
    gap = significance.estimated(0.0, 0.0001, (runs, runs))
    found = {"x": significance.Judgement(significance.UNDECIDED, 0.05)}
    word = verdict_words.judged("x", {"x": gap}, found)
    assert word == f"undecided (detectable: {gap.detectable():.1f})"
    alone = significance.estimated(0.0, 0.0001, (runs, [20.0]))
    assert verdict_words.judged("x", {"x": alone}, found) == "undecided (one seed of base)"
