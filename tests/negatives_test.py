"""Wrong translations of pair classification against brute force."""

import collections

import numpy as np
import pytest

from transformer_jax.data import negatives


def texts_of(seed):
    """Targets of lengths 1, 2, 3 and 9, of few words, so that many are equal."""
    rng = np.random.default_rng(seed)
    return [rng.integers(4, 7, length).tolist() for length in rng.permutation([1, 2, 3] * 12 + [9])]


@pytest.mark.parametrize("seed", range(8))
def test_a_wrong_target_is_another_one_of_the_nearest_length(seed):
    targets = [[1], *texts_of(seed), [2]]  # not all of the targets belong to pairs to draw for
    pairs = np.arange(1, len(targets) - 1)
    wrong = negatives.draw(targets, pairs, seed)
    assert wrong.shape == pairs.shape
    assert set(wrong.tolist()) <= set(pairs.tolist())
    np.testing.assert_array_equal(wrong, negatives.draw(targets, pairs, seed))
    for pair, other in zip(pairs.tolist(), wrong.tolist(), strict=True):
        target = targets[pair]
        different = [targets[each] for each in pairs.tolist() if targets[each] != target]
        nearest = min(abs(len(each) - len(target)) for each in different)
        assert targets[other] != target
        assert abs(len(targets[other]) - len(target)) == nearest


def test_of_each_length_every_target_is_wrong_once_and_any_may_follow_any():
    targets = [[length, word] + [4] * length for length in (0, 5) for word in range(4)]
    pairs = np.arange(len(targets))
    drawn = collections.Counter()
    for seed in range(600):
        wrong = negatives.draw(targets, pairs, seed)
        assert sorted(wrong.tolist()) == pairs.tolist()
        drawn.update(zip(pairs.tolist(), wrong.tolist(), strict=True))
    assert len(drawn) == 2 * 4 * 3
    assert all(150 < number < 250 for number in drawn.values())  # 200 of each are expected


def test_equal_targets_have_no_wrong_one():
    assert len(negatives.draw([[5, 6], [5, 6]], np.arange(2), 0)) == 0
    assert len(negatives.draw([], np.zeros(0, np.int64), 0)) == 0
