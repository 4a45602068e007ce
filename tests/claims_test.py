"""Claims, against SciPy and rules in words."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

from experiments import variations
from experiments.results import claims
from experiments.sweep import store
from tests import sweeps


def sweep_of(**scores):
    """Returns a sweep of rows by their runs' scores, which long sentences lose a part of."""
    runs = {row: [{"bleu": score, "params": 100} for score in each] for row, each in scores.items()}
    lengths = []
    for row, each in scores.items():
        for seed, score in enumerate(each):
            lost = 50 - (score or 0) / 2
            for bucket, beyond, value in (("1-9", False, 50.0), ("10-20", False, lost),
                                          ("7-20", True, score)):  # fmt: skip
                line = {"row": row, "seed": seed, "unit": "tokens", "bucket": bucket}
                line |= {"beyond_training": beyond, "sentences": 40, "score": value}
                lengths.append(line)
    return sweeps.of_runs(runs, {row: {} for row in scores}, lengths)


def verdict(claim, sweep, **options):
    compared = sweeps.without_counts(sweep, variations.TABLE)
    ((word, _),) = claims.judge([claim], compared, **options)
    return word


def claim_of(*inequalities):
    return claims.Claim("", "", inequalities)


@pytest.mark.parametrize(
    ("higher", "lower", "expected"),
    [
        ((80, 81, 82), (40, 41, 42), "agrees"),
        ((40, 41, 42), (80, 81, 82), "disagrees"),
        ((70, 80, 90), (69, 79, 89), "not resolved"),
        ((80,), (40, 41, 42), "agrees"),  # with the variance of the other row
        ((80,), (40,), "not resolved"),
        ((80, 80, 80), (40, 40, 40), "not resolved"),
        ((), (40, 41, 42), "not run"),
        ((80, None, 82), (40, 41, 42), "not measurable"),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side_of_0(higher, lower, expected):
    claim = claim_of(claims.Inequality("a", "b", claims.BEYOND_TRAINING))
    assert verdict(claim, sweep_of(a=higher, b=lower)) == expected


def test_a_row_that_failed_is_no_evidence():
    runs = {"a": [{"bleu": 80.0}, {"bleu": 81.0}], "b": [{"bleu": 40.0}, {"bleu": 41.0}]}
    sweep = sweeps.of_runs(runs, failed=["b"])
    assert verdict(claim_of(claims.Inequality("a", "b")), sweep) == "failed"


@pytest.mark.parametrize(
    ("higher", "expected"),
    [
        ((79.6, 79.7, 79.8), "agrees"),  # lower by 0.3, significantly less than 1
        ((70, 80, 90), "not resolved"),
        ((76, 76.1, 76.2), "disagrees"),
        ((79,), "not resolved"),
    ],
)
def test_no_lower_allows_a_margin(higher, expected):
    claim = claim_of(claims.Inequality("a", "b", strictly=False))
    assert verdict(claim, sweep_of(a=higher, b=(79.9, 80, 80.1))) == expected


def test_the_loss_on_long_sentences_is_a_share_of_the_shortest():
    def lost(*buckets):
        lengths = [
            {"row": "a", "seed": 0, "unit": "tokens", "bucket": str(place),
             "beyond_training": False, "sentences": sentences, "score": score}
            for place, (score, sentences) in enumerate(buckets)
        ]  # fmt: skip
        (value,) = claims.LOST_ON_LONG.of_runs(
            sweeps.of_runs({"a": [{}]}, lengths=lengths), "a", "dev"
        ).values()
        return value.score

    buckets = [(80.0, 20), (70.0, 20), (60.0, 20)]
    assert lost(*buckets) == pytest.approx(25)
    assert lost((90.0, 19), *buckets, (10.0, 5)) == pytest.approx(25)  # buckets of 20 or more count
    assert lost(*buckets[:1]) != lost(*buckets[:1])  # NaN
    assert lost((90.0, 19), *buckets[:1]) != lost((90.0, 19), *buckets[:1])


def test_a_claim_agrees_only_if_every_inequality_does():
    both = [claims.Inequality("a", "b", each) for each in (claims.BLEU, claims.LOST_ON_LONG)]
    sweep = sweep_of(a=(80, 81, 82), b=(40, 41, 42), c=(30, 40, 50), d=())
    assert verdict(claim_of(*both), sweep) == "agrees"
    for second, expected in ((("b", "a"), "disagrees"), (("b", "c"), "not resolved"),
                             (("b", "d"), "not run")):  # fmt: skip
        claim = claim_of(claims.Inequality("a", "b"), claims.Inequality(*second))
        assert verdict(claim, sweep) == expected


def test_one_inequality_of_many_refutes_a_claim_only_at_its_share_of_5_percent():
    runs = {"a": (82, 80, 81), "b": (40, 41, 42), "c": (43.7, 44.9, 41.9)}
    variance = np.mean([np.var(each, ddof=1) for each in runs.values()])
    statistic = (np.mean(runs["c"]) - np.mean(runs["b"])) / (variance * 2 / 3) ** 0.5
    assert 0.025 < 2 * scipy.stats.t.sf(statistic, 6) < 0.05
    sweep = sweep_of(**runs)
    inequalities = [claims.Inequality("a", "b"), claims.Inequality("b", "c")]
    assert verdict(claim_of(*inequalities), sweep) == "not resolved"
    assert verdict(claim_of(*inequalities[1:]), sweep) == "disagrees"


def test_rows_at_their_best_are_compared_on_the_test_set():
    runs = {
        "a": [{"bleu": score, "test_bleu": score - 50} for score in (80.0, 81.0, 82.0)],
        "b": [{"bleu": score, "test_bleu": score - 50} for score in (70.0, 71.0, 72.0)],
        "b d_k=2": [{"bleu": 1.0, "test_bleu": score} for score in (90.0, 91.0, 92.0)],
    }
    sweep = sweeps.of_runs(runs, {"a": {}, "b": {}})
    claim = claim_of(claims.Inequality("a", "b"))
    assert verdict(claim, sweep) == "agrees"
    best = {"a": "a", "b": "b d_k=2"}
    assert verdict(claim, sweep, names=best, split="test") == "disagrees"
    assert verdict(claim, sweep, names={"a": "a"}, split="test") == "not measurable"


def test_the_table_of_claims_has_differences_and_parameters():
    scores = dict.fromkeys(sorted(variations.COMPARED), ())
    sweep = sweep_of(**scores | {"base": (80, 81, 82), "F none": (42, 40, 41)})
    compared = sweeps.without_counts(sweep, variations.TABLE)
    section = claims.section(compared, variations.CLAIMS, "A note.")
    (table,) = section.tables
    stated, first = table.cells()[:2]
    heads = [column.head for column in table.columns]
    stated, first = (dict(zip(heads, line, strict=True)) for line in (stated, first))
    assert (stated["claim"], first["claim"]) == ("no positions hurts [1]", "· base > F none")
    assert stated["verdict"] == first["verdict"] == "agrees"
    assert (first["difference"], first["runs"]) == ("+40.00 ± 2.27", "3 and 3")
    assert table.note.startswith("[1] Vaswani et al. 2017")
    assert section.notes == ["A note."]


def test_rows_that_share_runs_count_them_once():
    scores = {"base": (80, 82, 81), "b": (70, 72, 74)}
    claim = claim_of(claims.Inequality("base", "b", claims.BEYOND_TRAINING))

    def half_width(sweep, shared=()):
        runs = [
            store.Run(row, seed, f"{'b' if row in shared else row} {seed}")
            for row in sweep.description.rows
            for seed in range(3)
        ]
        description = dataclasses.replace(sweep.description, runs=runs)
        sweep = dataclasses.replace(sweep, description=description)
        ((_, (result,)),) = claims.judge([claim], sweeps.without_counts(sweep, variations.TABLE))
        return result.half_width

    copies = sweep_of(**scores, c=scores["b"], d=scores["b"])
    assert half_width(copies, shared="cd") == pytest.approx(half_width(sweep_of(**scores)))
    assert half_width(copies) < half_width(sweep_of(**scores))


def test_a_row_at_its_best_is_compared_although_its_recipe_failed():
    runs = {
        "a": [{"test_bleu": score} for score in (80.0, 82.0, 81.0)],
        "b d_k=2": [{"test_bleu": score} for score in (40.0, 41.0, 42.0)],
    }
    rows: dict = {"a": {}, "b": {"model.num_heads": 4}}
    sweep = sweeps.of_runs({**runs, "b": []}, rows, failed=["b"])
    claim = claim_of(claims.Inequality("a", "b"))
    names = {"a": "a", "b": "b d_k=2"}
    assert verdict(claim, sweep) == "failed"
    assert verdict(claim, sweep, names=names, split="test") == "agrees"
