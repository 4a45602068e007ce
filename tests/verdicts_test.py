"""Verdicts and Holm's correction, against rules in words."""

import itertools

import numpy as np
import pytest

from experiments.stats import differences, multiple, verdicts


def gap(mean, half, over_seeds=True):
    """Returns a difference with a normal interval."""
    return differences.Difference(mean, half / 1.959964, (3, 3), over_seeds=over_seeds)


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
        assert multiple.holm(chances) == pytest.approx(closed)
    assert multiple.holm({}) == {}


def test_holm_corrects_as_rs_p_adjust():
    # R 4: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm")
    chances = {str(i): i / 100 for i in range(1, 6)}
    assert [*multiple.holm(chances).values()] == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])


@pytest.mark.parametrize(
    ("mean", "half", "paper", "expected"),
    [
        (-1.0, 0.5, -0.9, "same direction"),
        (1.0, 0.5, 0.4, "same direction"),
        (1.0, 0.5, -0.9, "opposite"),
        (-1.0, 0.5, -0.1, "differs, paper has none"),
        (-1.0, 0.5, 0.0, "differs, paper has none"),
        (-1.0, 0.5, -0.3, "differs, paper has none"),  # two runs of the paper may differ by 0.3
        (-1.0, 0.5, -0.4, "same direction"),
        (0.1, 0.3, -0.1, "no difference, as the paper"),
        (0.3, 0.19, 0.0, "no difference, as the paper"),
        (0.1, 0.5, -0.1, "not resolved"),
        (0.1, 0.5, -0.9, "smaller than the paper's"),
        (-0.3, 0.5, -0.9, "smaller than the paper's"),
        (-0.5, 0.6, -0.9, "not resolved"),
        (0.4, 0.5, 0.8, "not resolved"),
        (-1.0, 0.5, None, "worse"),
        (1.0, 0.5, None, "better"),
        (0.1, 0.3, None, "no difference"),
        (0.1, 0.6, None, "not resolved"),
    ],
)
def test_verdicts_by_bleu(mean, half, paper, expected):
    theirs = {} if paper is None else {"row": paper}
    assert verdicts.judge({"row": gap(mean, half)}, verdicts.BLEU, theirs)["row"].word == expected
    single = {"row": gap(mean, half, over_seeds=False)}
    assert verdicts.judge(single, verdicts.BLEU, theirs)["row"].word == "not resolved"


@pytest.mark.parametrize(
    ("mean", "half", "paper", "expected"),
    [
        # Rows of Multi30k, from the review of the statistics.
        (-0.001, 0.019, 0.073, "smaller than the paper's"),
        (-0.039, 0.019, 0.016, "opposite"),
        (0.040, 0.019, -0.002, "differs, paper has none"),
        (0.111, 0.019, 0.018, "same direction"),
        (0.006, 0.019, -0.008, "no difference, as the paper"),
        (0.016, 0.019, 0.006, "not resolved"),
        (0.05, 0.019, None, "worse"),
        (-0.05, 0.019, None, "better"),
    ],
)
def test_verdicts_by_perplexity(mean, half, paper, expected):
    theirs = {} if paper is None else {"row": paper}
    found = verdicts.judge({"row": gap(mean, half)}, verdicts.LOG_PPL, theirs)
    assert found["row"].word == expected


def test_verdicts_on_many_rows_need_more_of_each():
    barely, tie = gap(-1.0, 0.9), gap(0.1, 0.39)
    for row, paper, word in ((barely, -0.9, verdicts.SAME), (tie, 0.0, verdicts.AS_PAPER)):
        alone = verdicts.judge({"row": row}, verdicts.BLEU, {"row": paper})
        assert alone["row"].word == word
        both = {"row": row, "twin": row}
        among = verdicts.judge(both, verdicts.BLEU, dict.fromkeys(both, paper))
        assert among["row"].word == verdicts.NOT_RESOLVED
    # A rejected hypothesis leaves its share to the rest; single seeds are not tested.
    rows = {"surely": gap(-1.0, 0.4), "barely": barely, "one": gap(-1.0, 0.4, over_seeds=False)}
    found = verdicts.judge(rows, verdicts.BLEU, dict.fromkeys(rows, -0.9))
    words = [verdicts.SAME, verdicts.SAME, verdicts.NOT_RESOLVED]
    assert [each.word for each in found.values()] == words
    assert [each.is_significant for each in found.values()] == [True, True, False]


def test_the_detectable_difference_is_that_of_the_next_test_of_holm():
    rows = {"a": gap(-3.0, 0.5), "b": gap(0.1, 0.6), "c": gap(0.0, 0.6)}
    found = verdicts.judge(rows, verdicts.BLEU, dict.fromkeys(rows, -0.9))
    expected = rows["b"].detectable(0.05 / 2)
    assert verdicts.detectable(rows, found) == pytest.approx(expected)
    single = {"a": gap(1.0, 0.5, over_seeds=False)}
    assert verdicts.detectable(single, verdicts.judge(single, verdicts.BLEU)) is None


def test_a_failed_row_is_not_decided():
    found = verdicts.failed(2, 3)
    assert found.word == "failed 2 of 3"
    assert not found.is_decided
    assert not found.is_significant
