"""Batches: positions, rows of hosts and completeness."""

import jax
import numpy as np
import pytest

from transformer_jax.data import batching, dataset
from transformer_jax.data import examples as examples_lib


def test_rows_contain_pairs_one_after_another():
    batch = batching.fill([[([7, 8], [9]), ([5], [6, 4])], []], 6, 5)
    np.testing.assert_array_equal(batch.source.tokens, [[7, 8, 2, 5, 2, 0], [0] * 6])
    np.testing.assert_array_equal(batch.source.segments, [[1, 1, 1, 2, 2, 0], [0] * 6])
    np.testing.assert_array_equal(batch.source.positions, [[0, 1, 2, 0, 1, 0], [0] * 6])
    np.testing.assert_array_equal(batch.target.tokens, [[1, 9, 1, 6, 4], [0] * 5])
    np.testing.assert_array_equal(batch.labels, [[9, 2, 6, 4, 2], [0] * 5])
    np.testing.assert_array_equal(batch.target.segments, [[1, 1, 2, 2, 2], [0] * 5])
    np.testing.assert_array_equal(batch.target.positions, [[0, 1, 0, 1, 2], [0] * 5])


def packed(make_config, cache_dir, **changes):
    config = make_config({"data.packing_window": 100, "train.seed": 3})
    options = {"batch_rows": 8, "num_steps": 40, **changes}
    pairs = examples_lib.TranslationExamples(dataset.load(config.data, cache_dir))
    return batching.PackedBatches(pairs, config, **options)


def make_batches(*arguments, **changes):
    return batching.TrainingBatches([packed(*arguments, **changes)])


def test_batches_resume_from_any_step(make_config, cache_dir):
    whole = list(make_batches(make_config, cache_dir).from_step(0))
    assert len(whole) == 40
    for step in (1, 17, 39):
        rest = list(make_batches(make_config, cache_dir).from_step(step))
        jax.tree.map(np.testing.assert_array_equal, whole[step:], rest)


def test_hosts_read_each_row_once(make_config, cache_dir):
    whole = make_batches(make_config, cache_dir)
    rows = np.split(np.arange(whole.batch_rows), 4)
    hosts = [make_batches(make_config, cache_dir, rows_here=here.tolist()) for here in rows]
    for step in (0, 5):
        joined = jax.tree.map(lambda *rows: np.concatenate(rows), *(host[step] for host in hosts))
        jax.tree.map(np.testing.assert_array_equal, whole[step], joined)


def test_an_epoch_reads_every_usable_pair_once(make_config, cache_dir):
    batches = packed(make_config, cache_dir, batch_rows=1)
    data = dataset.load(make_config().data, cache_dir)
    seen = []
    for step in range(batches.plan.epoch_end(0)):
        batch = batches[step]
        for segment in range(1, batch.source.segments.max() + 1):
            seen.append(tuple(batch.source.tokens[batch.source.segments == segment]))
    expected = [(*data.source[pair], 2) for pair in data.usable.tolist()]
    assert sorted(seen) == sorted(expected)


def test_padded_batches_contain_sentences_of_all_lengths():
    lengths = np.random.default_rng(0).integers(1, 90, 37)
    source = [list(range(4, 4 + n)) for n in lengths]
    seen = {}
    for group in batching.padded_batches(source, 8, 16):
        assert group.batch.source.tokens.shape[0] == 8
        assert group.batch.source.tokens.shape[1] % 16 == 0
        for row, index in enumerate(group.indices):
            tokens = group.batch.source.tokens[row][group.batch.source.segments[row] == 1]
            seen[index] = tokens[:-1].tolist()
    assert [seen[index] for index in range(37)] == source


def test_a_row_that_is_too_short_by_one_token_is_refused():
    with pytest.raises(ValueError, match="do not fit"):
        batching.fill([[((), ()), ((), ())]], 1, 1)
