"""Verdicts and Holm's correction, against rules in words and thousands of simulated tables."""

import dataclasses
import itertools
import statistics

import numpy as np
import pytest

from experiments.stats import differences, seed_variance, verdicts

TABLES = 2000
ROWS = [f"row {number}" for number in range(19)]


def judge(scores, sentences, paper, pooled=True):
    """Judges a table by the scores of its rows' runs, base first.

    Without `pooled`, the variance of each row comes from its runs.
    """
    base, *rows = scores
    variance = seed_variance.pool(scores, base)
    assert variance
    gaps = {}
    for row in rows:
        sides = scores[row], scores[base]
        mean = statistics.fmean(sides[0]) - statistics.fmean(sides[1])
        estimates = (variance.of(row), variance.of(base)) if pooled else None
        gaps[row] = differences.from_variances(mean, sentences, sides, estimates)
    return gaps, verdicts.judge(gaps, paper)


def simulated(random, truth, runs, deviation=0.4, sentences=0.1, tables=TABLES):
    """Simulates the scores of many tables; sentences move all runs of a row alike.

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
        assert verdicts.holm(chances) == pytest.approx(closed)
    assert verdicts.holm({}) == {}


def test_holm_corrects_as_rs_p_adjust():
    # R 4: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm")
    chances = {str(i): i / 100 for i in range(1, 6)}
    assert [*verdicts.holm(chances).values()] == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])


@pytest.mark.parametrize(
    ("runs", "sentences"),
    [((10, 1), 0.1), pytest.param((10, 3), 0.02, marks=pytest.mark.slow)],
)
def test_of_tables_without_differences_5_percent_show_one(runs, sentences):
    """False alarms in 2,000 tables of 19 rows that are as good as base, with one seed or three."""
    truth, paper = dict.fromkeys(ROWS, 0.0), dict.fromkeys(ROWS, -0.9)
    alarms, naive = [], []
    for scores in simulated(np.random.default_rng(1), truth, runs, sentences=sentences):
        gaps, found = judge(scores, sentences, paper)
        alarms.append(any(each.word != verdicts.UNDECIDED for each in found.values()))
        naive.append(any(gap.excludes_0 for gap in gaps.values()))
    error = (0.05 * 0.95 / TABLES) ** 0.5
    assert 0.03 < np.mean(alarms) < 0.05 + 2 * error  # Holm loses little, though rows share base
    assert np.mean(naive) > 0.3  # what the correction is for


def test_a_detectable_difference_is_detected_in_four_of_five_tables():
    """Power: one row of seven differs by what the others, undecided, call detectable."""
    rows, sentences, deviation = ROWS[:7], 0.05, 0.4
    known = seed_variance.Estimate(deviation**2, 9)
    runs = [0.0], [0.0] * 10
    reach = differences.from_variances(0.0, sentences, runs, (known, known)).detectable(0.05 / 7)
    truth = {row: -reach * (row == rows[0]) for row in rows}
    paper = dict.fromkeys(rows, -0.9)
    seen, alarms = [], []
    for scores in simulated(np.random.default_rng(2), truth, (10, 1), deviation, sentences):
        _, found = judge(scores, sentences, paper)
        words = [each.word for each in found.values()]
        seen.append(words[0] == "reproduced")
        alarms.append(any(word != verdicts.UNDECIDED for word in words[1:]))
        if not seen[-1]:
            assert found[rows[0]].level <= 0.05 / 6
    assert np.mean(seen) == pytest.approx(differences.POWER, abs=0.04)
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
        gaps, found = judge(scores, 0.05, paper, pooled)
        printed = gaps[rows[0]].detectable(found[rows[0]].level)
        (scores,) = simulated(random, {**alike, rows[0]: -printed}, runs, sentences=0.05, tables=1)
        seen.append(judge(scores, 0.05, paper, pooled)[1][rows[0]].word == "reproduced")
    error = 2 * (0.5 * 0.5 / len(seen)) ** 0.5
    assert least - error <= np.mean(seen) <= most + error


def test_ties_that_are_none_are_called_ties_in_5_percent_at_most():
    """Rows that truly differ by just what counts as a difference, where the paper has a tie."""
    rows = ROWS[:5]
    truth, paper = dict.fromkeys(rows, verdicts.EQUIVALENCE), dict.fromkeys(rows, 0.0)
    words = [
        {each.word for each in judge(scores, 0.005, paper)[1].values()}
        for scores in simulated(np.random.default_rng(3), truth, (10, 3), 0.1, 0.005)
    ]
    assert np.mean(["tie as in the paper" in found for found in words]) < 0.06


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
    difference = differences.Difference(mean, half, (seeds, seeds), over_seeds=seeds > 1)
    found = verdicts.judge({"row": difference}, {"row": paper})
    assert found["row"].word == expected


def test_verdicts_on_many_rows_need_more_of_each():
    surely = differences.Difference(-1.0, 0.4, (3, 3), over_seeds=True)
    barely = differences.Difference(-1.0, 0.9, (3, 3), over_seeds=True)
    tie = differences.Difference(0.1, 0.39, (3, 3), over_seeds=True)
    for row, paper, word in ((barely, -0.9, "reproduced"), (tie, 0.0, "tie as in the paper")):
        alone = verdicts.judge({"row": row}, {"row": paper})
        assert (alone["row"].word, alone["row"].level) == (word, 0.05)
        among = verdicts.judge({"row": row, "twin": row}, {"row": paper, "twin": paper})
        assert among["row"].word == verdicts.UNDECIDED
        assert among["row"].level == 0.025
    # A rejected hypothesis leaves its share to the rest; single seeds are not tested.
    one = dataclasses.replace(surely, runs=(1, 1), over_seeds=False)
    rows = {"surely": surely, "barely": barely, "one": one}
    found = verdicts.judge(rows, dict.fromkeys(rows, -0.9))
    assert [each.word for each in found.values()] == ["reproduced", "reproduced", "undecided"]
    assert [each.is_significant for each in found.values()] == [True, True, False]
