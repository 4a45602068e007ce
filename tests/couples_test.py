"""What tells a translation from what looks like one: neither the target, nor length, nor copies."""

import itertools

import numpy as np
import pytest

from configs import toy
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax.data import couples, dataset


@pytest.fixture(scope="module")
def corpus(cache_dir):
    """Sentences of the embedded grammar, and couples made of them."""
    config = toy.get_config()
    config.update_from_flattened_dict(
        {**tiny.OVERRIDES, "data.toy_pairs": 3000, "data.vocab_size": 1000}
    )
    data = dataset.load(config_lib.from_mapping(config.to_dict()).data, cache_dir)
    return data, couples.make(data.source, data.target, data.usable, 0)


def shown(corpus, seed=0):
    """A source, a target and whether they are a pair, twice for each couple."""
    data, found = corpus
    coins = np.random.default_rng(seed).integers(2, size=len(found))
    for couple, coin in zip(found.tolist(), coins.tolist(), strict=True):
        for member in (0, 1):
            source, target = data.source[couple[member]], data.target[couple[coin]]
            yield source.tolist(), target.tolist(), member == coin


def best_threshold(values, labels):
    """The accuracy of the best rule that a value above a threshold, or below it, means yes."""
    values, labels = np.array(values), np.array(labels)
    found = [np.mean((values >= threshold) == labels) for threshold in np.unique(values)]
    return max(*found, 1 - min(found))


def test_a_couple_looks_alike(corpus):
    data, found = corpus
    assert len(found) > len(data.usable) / 4  # half of the pairs or more are in one
    members = found.ravel().tolist()
    assert len(set(members)) == len(members)
    assert set(members) <= set(data.usable.tolist())
    for one, other in found.tolist():
        for side in (data.source, data.target):
            assert abs(len(side[one]) - len(side[other])) <= couples.APART
            assert set(side[one]) != set(side[other])
        for target in (data.target[one], data.target[other]):
            copied = [len({*data.source[each]} & {*target}) for each in (one, other)]
            assert copied[0] == copied[1]


def test_neither_length_nor_copied_words_tell_which_is_true(corpus):
    examples = list(shown(corpus))
    labels = [label for _, _, label in examples]
    assert np.mean(labels) == 0.5
    copied = [len({*source} & {*target}) for source, target, _ in examples]
    assert best_threshold(copied, labels) == 0.5
    for length in (
        [len(source) - len(target) for source, target, _ in examples],
        [len(source) / len(target) for source, target, _ in examples],
        [len(target) for _, target, _ in examples],
    ):
        assert best_threshold(length, labels) < 0.55
    # Words of the target are the same in both; those of the source, drawn by a coin, say nothing.
    for word in range(4, 1000):
        has = [word in target for _, target, _ in examples]
        assert np.sum(has) == 0 or np.mean(np.array(labels)[has]) == 0.5


def test_sentences_of_a_couple_share_more_words_than_chance_gives(corpus):
    data, found = corpus

    def share(pairs):
        words = [[{*data.target[each]} for each in pair] for pair in pairs.tolist()]
        return np.mean([len(a & b) / len(a) for a, b in words])

    shuffled = np.stack([found[:, 0], np.random.default_rng(0).permutation(found[:, 1])], axis=1)
    assert share(found) > 1.3 * share(shuffled)


@pytest.mark.parametrize("seed", range(8))
def test_couples_are_those_of_an_exhaustive_search(seed):
    random = np.random.default_rng(seed)
    source, target = (
        [random.choice(range(first, first + 9), 4, replace=False).tolist() for _ in range(8)]
        for first in (5, 15)
    )

    def shared(one, other):
        both = [(set(side[one]), set(side[other])) for side in (source, target)]
        return sum(len(a & b) for a, b in both) if all(a != b for a, b in both) else -100

    found = couples.make(source, target, np.arange(8), seed)
    assert sorted(found.ravel().tolist()) == list(range(8))
    one, other = found.T.tolist()
    ways = [sum(map(shared, one, way)) for way in itertools.permutations(other)]
    assert sum(map(shared, one, other)) == max(ways) > min(ways)


def test_what_looks_like_nothing_else_is_left_out():
    source, target = [[5, 6], [5], [5, 6, 7, 8]], [[15, 16], [15, 16, 17, 18], [15]]
    assert couples.make(source, target, np.arange(3), 0).shape == (0, 2)
