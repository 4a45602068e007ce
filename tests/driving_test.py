"""The sentences behind a difference: by sacreBLEU without them, and by what was put in."""

import numpy as np
import pytest
from sacrebleu.metrics import bleu as sacrebleu

from experiments.analysis import driving
from transformer_jax.evaluation import bleu


def corpus(seed, right, sentences=30):
    """References, and translations that have a share of the words right."""
    random = np.random.default_rng(seed)
    words = np.array("ein Hund und eine Katze sehen heute das rote kleine Haus nicht".split())
    references = [random.choice(words, size=12) for _ in range(sentences)]
    random = np.random.default_rng([seed, 1])
    said = [np.where(random.random(12) < right, each, "falsch") for each in references]
    return [" ".join(each) for each in references], [" ".join(each) for each in said]


def differences(references, sides, left_out):
    """Of means over runs, as sacreBLEU scores what is left."""
    kept = [i for i in range(len(references)) if i not in left_out]
    means = [
        np.mean([
            sacrebleu.BLEU(force=True)
            .corpus_score([run[i] for i in kept], [[references[i] for i in kept]])
            .score
            for run in side
        ])
        for side in sides
    ]  # fmt: skip
    return means[0] - means[1]


@pytest.fixture(scope="module")
def sides():
    references, first = corpus(0, 0.8)
    second = [corpus(0, 0.8)[1], [*first[:5], references[5], *first[6:]]]
    first = [first, [*first[:7], "falsch " * 30, *first[8:]]]
    return references, (first, second)


def counts(references, runs):
    return {
        10 + seed: bleu.counts(run, references, "de", bleu.MAIN) for seed, run in enumerate(runs)
    }


def test_removal_changes_the_difference_as_sacrebleu_finds(sides):
    references, runs = sides
    first, second = (counts(references, side) for side in runs)
    found, without = driving.drivers(first, second, bleu.MAIN)
    whole = differences(references, runs, [])
    for driver in found[:3]:
        left = differences(references, runs, [driver.sentence])
        assert whole - left == pytest.approx(driver.push)
    chosen = [driver.sentence for driver in found]
    assert without == pytest.approx(differences(references, runs, chosen))
    assert len(set(chosen)) == driving.MOST


def test_the_sentences_that_differ_come_first_with_the_runs_that_differ(sides):
    references, runs = sides
    first, second = (counts(references, side) for side in runs)
    found, _ = driving.drivers(first, second, bleu.MAIN)
    assert {driver.sentence for driver in found[:2]} == {5, 7}
    worst = next(driver for driver in found if driver.sentence == 7)
    assert worst.push < 0
    assert worst.ours == 11  # the second run said it wrongly
    better = next(driver for driver in found if driver.sentence == 5)
    assert better.theirs == 11
