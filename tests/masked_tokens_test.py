"""Examples of encoder-only models: masked tokens, as in BERT and RoBERTa, and pairs."""

import collections
import functools

import numpy as np
import pytest

from configs import toy
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax.data import batching, corruption, dataset, tokenizer
from transformer_jax.data import examples as examples_lib

VOCABULARY = 1000
MASK, YES, NO = VOCABULARY, VOCABULARY + 1, VOCABULARY + 2


load = functools.cache(dataset.load)


@pytest.fixture(scope="module")
def made(cache_dir):
    """Returns a function from an objective to a config, its dataset and the training examples."""

    def make(name, **changes):
        config = toy.get_config()
        sizes = {"data.toy_pairs": 3000, "data.vocab_size": VOCABULARY, "data.target_length": 64}
        chosen = {"train.objective": name, "train.objective_steps": 1}
        config.update_from_flattened_dict({**tiny.OVERRIDES, **sizes, **chosen, **changes})
        whole = config_lib.from_mapping(config.to_dict())
        data = load(whole.data, cache_dir)
        return whole, data, examples_lib.training(data, whole)

    return make


def labelled(example):
    """Returns the labels of the target's tokens by position, without that of BOS."""
    return {place - 1: label for place, label in enumerate(example.labels) if label and place}


def test_of_15_percent_80_are_masked_10_replaced_and_10_kept(made):
    _, data, examples = made("roberta")
    counts, chosen, total = collections.Counter(), 0, 0
    texts = [
        [*data.source[pair].tolist(), tokenizer.EOS, *data.target[pair].tolist()]
        for pair in data.usable.tolist()
    ]
    texts = [text for text in texts if corruption.SHORTEST <= len(text) <= 63]
    assert len(texts) == len(examples)
    for number in range(0, len(examples), 2):
        example, text = examples.get(0, number), texts[number]
        words = labelled(example)
        assert len(example.source) == 0
        assert len(example.labels) == len(text) + 1
        assert tokenizer.EOS not in words.values()
        assert 0 <= max(1, round(0.15 * len(text))) - len(words) <= 1
        chosen, total = chosen + len(words), total + len(text)
        for place, (read, true) in enumerate(zip(example.target, text, strict=True)):
            if place not in words:
                assert read == true
                continue
            assert words[place] == true
            kind = "masked" if read == MASK else "kept" if read == true else "replaced"
            counts[kind] += 1
            assert read == MASK or tokenizer.UNK < read < VOCABULARY
    assert chosen / total == pytest.approx(0.15, abs=0.02)
    shares = [counts[kind] / chosen for kind in ("masked", "replaced", "kept")]
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.03)


def test_bert_has_ten_maskings_of_a_text_and_roberta_one_for_each_epoch(made):
    for name, same in (("bert_words", True), ("bert", True), ("roberta", False)):
        _, _, examples = made(name)

        def read(epoch, examples=examples):
            return [np.asarray(examples.get(epoch, i).target).tolist() for i in range(20)]

        first, *others = map(read, range(10))
        assert first not in others
        assert (read(10) == first) is same
        assert read(0) == first
        _, _, others = made(name, **{"train.seed": 1})
        assert first != read(0, others)


@pytest.mark.parametrize("name", ["bert", "matching"])
def test_each_source_is_paired_with_its_translation_and_with_a_wrong_one(made, name):
    _, data, examples = made(name)
    pairs = collections.defaultdict(set)
    for pair in data.usable.tolist():
        pairs[tuple(data.source[pair])].add(tuple(data.target[pair]))
    changed = 0
    for number in range(0, len(examples), 2):
        sources, targets, answers = set(), [], []
        for example in (examples.get(0, number), examples.get(0, number + 1)):
            words = labelled(example)
            text = [words.get(place, word) for place, word in enumerate(example.target)]
            end = text.index(tokenizer.EOS)
            assert end not in words
            source, target = tuple(text[:end]), tuple(text[end + 1 :])
            sources.add(source)
            targets.append(target)
            answers.append(example.labels[0])
            assert (answers[-1] == YES) == (target in pairs[source])
            changed += len(words)
        assert len(sources) == 1
        assert answers == [YES, NO]
        assert targets[0] != targets[1]
    assert (changed > 0) == (name == "bert")


def test_examples_fit_into_target_rows_and_leave_sources_empty(made):
    _, _, examples = made("bert", **{"data.source_length": 8, "data.target_length": 40})
    numbers = np.arange(len(examples))
    source, target = examples.lengths(0, numbers)
    assert (source == 1).all()
    assert target.max() <= 40
    batch = batching.fill([[examples.get(0, 0), examples.get(0, 1)]], 8, 80)
    np.testing.assert_array_equal(batch.source.tokens[0, :3], [tokenizer.EOS, tokenizer.EOS, 0])
    starts = (batch.target.positions == 0) & (batch.target.segments > 0)
    assert set(batch.labels[starts]) == {YES, NO}
    assert (batch.target.tokens[starts] == tokenizer.BOS).all()


def test_held_out_examples_are_the_same_for_all_runs(made):
    config, data, _ = made("bert")
    found = examples_lib.held_out(data.dev, config)
    assert set(found) == {"bert_words", "matching"}
    assert len(found["bert_words"]) == len(data.dev)
    assert not any(np.asarray(example.labels)[0] for example in found["bert_words"])
    assert all(tokenizer.EOS in example.target for example in found["bert_words"])
    for name, parts in (("roberta", {"bert_words"}), ("matching", {"matching"})):
        other, _, _ = made(name, **{"train.seed": 5})
        same = examples_lib.held_out(data.dev, other)
        assert set(same) == parts
        for part in parts:
            assert [list(x.target) for x in same[part]] == [list(x.target) for x in found[part]]
            assert list(map(labelled, same[part])) == list(map(labelled, found[part]))
            firsts = [[np.asarray(x.labels)[0] for x in each[part]] for each in (same, found)]
            assert firsts[0] == firsts[1]
