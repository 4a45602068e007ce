"""Objectives lose nothing of a text, and their examples depend only on seed, epoch and number."""

import collections
import dataclasses
import functools

import jax
import numpy as np
import pytest
from scipy import stats

from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import batching, corruption, dataset, objectives, tokenizer, vocabulary
from transformer_jax.data import examples as examples_lib
from transformer_jax.distributed import sharding
from transformer_jax.runs import training_run
from transformer_jax.training import loop, metrics
from transformer_jax.training import step as step_lib

VOCABULARY = 300
IDS = objectives.Ids(vocab_size=VOCABULARY, first_extra=VOCABULARY)


def of_spans(source, target):
    """Puts the spans of the target back in place of the source's sentinels."""
    spans, sentinel = {}, None
    for token in target:
        if token >= VOCABULARY:
            sentinel = token
            assert sentinel not in spans
            spans[sentinel] = []
        else:
            spans[sentinel].append(token)
    text = []
    for token in source:
        text += spans.pop(token) if token >= VOCABULARY else [token]
    assert list(spans.values()) == [[]]  # the final sentinel
    return text


def of_bert_style(source, target):
    differing = sum(one != other for one, other in zip(source, target, strict=True))
    assert 0 <= differing <= corruption.number_chosen(len(target))
    return target


RESTORED = {
    "span_corruption": of_spans,
    "prefix": lambda source, target: [*source, *target],
    "bert_style": of_bert_style,
}


def make(kind, text, *seed):
    return objectives.KINDS[kind].example(text, np.random.default_rng(seed), IDS)


# For those of encoder-only models see `masked_tokens_test`.
SEQUENCE_TO_SEQUENCE = [name for name, kind in objectives.KINDS.items() if not kind.encoder_only]


@pytest.mark.parametrize("kind", SEQUENCE_TO_SEQUENCE)
def test_source_and_target_together_restore_the_text(kind):
    rng = np.random.default_rng(0)
    for length in [*range(3, 40), 120, 500]:
        text = rng.integers(4, VOCABULARY, length)
        source, target, labels = make(kind, text, length)
        assert RESTORED[kind](list(source), list(target)) == text.tolist()
        assert labels is None
        assert 1 <= len(source) <= length
        assert 1 <= len(target) <= length
        extra = objectives.KINDS[kind].extra_ids(length)
        assert max(*source, *target) < VOCABULARY + extra


def test_bert_style_masks_nine_tenths_of_the_chosen_tokens_and_replaces_the_rest():
    texts, length = 100, 200
    hidden = replaced = 0
    for number in range(texts):
        text = np.random.default_rng(number).integers(4, VOCABULARY, length)
        source = make("bert_style", text, number, 1).source
        hidden += np.sum(source == IDS.first_extra)
        replaced += np.sum((source != text) & (source != IDS.first_extra))
    chosen = texts * 30  # 15% of each
    for count, share in ((hidden, 0.9), (replaced, 0.1 * (1 - 1 / (VOCABULARY - 4)))):
        low, high = stats.binom(chosen, share).interval(1 - 1e-6)
        assert low <= count <= high


@pytest.mark.parametrize("kind", SEQUENCE_TO_SEQUENCE)
def test_an_example_is_a_function_of_its_generators_seed(kind):
    text = np.arange(4, 34)
    again = [[list(map(int, side)) for side in make(kind, text, seed)[:2]] for seed in (1, 1, 2)]
    assert again[0] == again[1] != again[2]


@pytest.fixture
def small(make_config, cache_dir):
    """Returns a function from overrides to a configuration and its dataset."""

    def load(**overrides):
        config = make_config(
            {"train.objective": "span_corruption", "train.objective_steps": 5, **overrides}
        )
        return config, dataset.load(config.data, cache_dir)

    return load


def test_each_epoch_corrupts_both_sides_of_the_training_pairs_anew(small):
    config, data = small(**{"train.objective": "prefix"})
    texts = examples_lib.training(data, config)
    expected = sorted(
        data_side[pair].tolist()
        for data_side in (data.source, data.target)
        for pair in data.usable.tolist()
        if data_side.lengths[pair] > 2
    )
    batches = batching.PackedBatches(texts, config, batch_rows=1, num_steps=1)
    epochs = []
    for epoch in range(2):
        found = []
        start = batches.plan.epoch_end(epoch - 1) if epoch else 0
        for step in range(start, batches.plan.epoch_end(epoch)):
            batch = batches[step]
            for segment in range(1, batch.target.segments.max() + 1):
                source = batch.source.tokens[batch.source.segments == segment][:-1].tolist()
                labels = batch.labels[batch.target.segments == segment].tolist()
                assert labels.pop() == tokenizer.EOS
                found.append([*source, *labels])
                epochs.append((epoch, tuple(source)))
        assert sorted(found) == expected
    first, second = (collections.Counter(s for e, s in epochs if e == number) for number in (0, 1))
    assert (first & second).total() < 0.5 * first.total()


def test_batches_of_both_parts_resume_from_any_step(small):
    config, data = small()
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    whole = list(loop.make_batches(data, config, mesh).from_step(0))
    assert len(whole) == config.train.num_steps
    first = config.data.vocab_size
    has_sentinels = [bool((batch.source.tokens >= first).any()) for batch in whole]
    assert has_sentinels == [True] * 5 + [False] * 7
    for step in (4, 5, 6):
        rest = list(loop.make_batches(data, config, mesh).from_step(step))
        jax.tree.map(np.testing.assert_array_equal, whole[step:], rest)
    plain = config_lib.replace(config, {"train.objective": "none", "train.objective_steps": 0})
    translating = loop.make_batches(data, plain, mesh)
    for step in range(config.train.num_steps - 5):
        jax.tree.map(np.testing.assert_array_equal, whole[5 + step], translating[step])


def test_hosts_read_each_row_of_an_objective_once(small):
    config, data = small()
    texts = examples_lib.training(data, config)
    whole, *hosts = (
        batching.PackedBatches(texts, config, batch_rows=8, num_steps=9, rows_here=here)
        for here in (None, [0, 1, 2], [3, 4, 5, 6, 7])
    )
    for step in (0, 8):
        joined = jax.tree.map(lambda *rows: np.concatenate(rows), *(host[step] for host in hosts))
        jax.tree.map(np.testing.assert_array_equal, whole[step], joined)


def test_labels_of_an_example_stand_at_bos_and_each_token():
    batch = batching.fill([[objectives.Example([7], [8, 9], [0, 5, 0]), ([4], [6])]], 4, 5)
    np.testing.assert_array_equal(batch.target.tokens, [[1, 8, 9, 1, 6]])
    np.testing.assert_array_equal(batch.labels, [[0, 5, 0, 6, 2]])


def test_only_a_run_with_an_objective_that_needs_them_has_extra_ids(make_config):
    def size(objective):
        steps = 0 if objective == "none" else 3
        return vocabulary.size(
            make_config({"train.objective": objective, "train.objective_steps": steps})
        )

    assert size("none") == size("prefix") == 400
    # 63 tokens: 9 corrupted in 3 spans, which take 3 sentinels and one more.
    assert size("span_corruption") == size("bert_style") == 408


def test_an_unknown_objective_is_refused_before_data_is_read(make_config, monkeypatch, tmp_path):
    config = make_config({"train.objective": "masked", "train.objective_steps": 1})
    monkeypatch.setattr(dataset, "load", lambda *_: pytest.fail("data was read"))
    with pytest.raises(errors.UserError, match=r"='masked' is unknown.*matching, none, prefix"):
        training_run.run(config, tmp_path, tmp_path)


def test_texts_of_one_token_are_named(small):
    config, data = small()
    none = data.texts._replace(usable=data.texts.usable[:0])
    without = dataclasses.replace(data, texts=none)
    with pytest.raises(errors.UserError, match="finds no text of 3 to 63 tokens"):
        examples_lib.training(without, config)


def assert_stopped_ends_the_same(config, data, folder, step):
    """Asserts that a run stopped at a step and resumed ends bit for bit as one never stopped."""
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    model = models.build(config.model, vocabulary.size(config))

    def train(name, measure):
        return loop.train(model, data, config, mesh, folder / name, measure)[0]

    def stop(params):
        raise errors.RunError("enough")

    for name in ("whole", "stopped"):
        (folder / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        # All three run one program.
        patch.setattr(step_lib, "compile_step", functools.cache(step_lib.compile_step))
        whole = train("whole", lambda params: 1.0)
        with pytest.raises(loop.DivergedError, match=f"step {step}: enough"):
            train("stopped", stop)
        jax.tree.map(np.testing.assert_array_equal, whole, train("stopped", lambda params: 1.0))


@pytest.mark.parametrize(
    "steps", [4, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (3, 5))]
)
def test_a_run_resumed_near_the_end_of_its_objective_ends_the_same(small, tmp_path, steps):
    """The checkpoint of step 4 falls into the first part, between the parts, or into the second."""
    short = {"model.num_layers": 1, "train.num_steps": 8, "log.dev_every": 6}
    overrides = {**short, "train.objective_steps": steps}
    config, data = small(**overrides)
    assert_stopped_ends_the_same(config, data, tmp_path, 6)
    logged = {
        name: {r["step"]: (r["loss"], r["objective"]) for r in metrics.read(tmp_path / name)}
        for name in ("whole", "stopped")
    }
    assert logged["whole"] == logged["stopped"]
    shares = [share for _, share in logged["whole"].values()]  # of two steps each
    assert shares == [1, (steps - 2) / 2 if steps < 4 else 1, max(steps - 4, 0) / 2, 0]
