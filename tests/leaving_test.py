"""Smaller batches of beam search once sentences are finished."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests import beam_search_test
from transformer_jax import models, sequences
from transformer_jax.decoding import beam_search


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("runs", ["all at once", "one by one", "in bursts", "one is left"])
def test_finished_sentences_leave_when_a_smaller_program_pays_off(
    make_config, monkeypatch, parts, runs
):
    """The smaller batch is a fifth of the rows, at least 2, and a multiple of the devices."""
    monkeypatch.setattr(beam_search, "SHRINK", 5)
    monkeypatch.setattr(beam_search, "FEWEST_ROWS", 2)
    batch = 48
    needs = {  # of how many runs each sentence has need, in an order that is not theirs
        "all at once": np.ones(batch, int),
        "one by one": 1 + np.arange(batch),
        "in bursts": 1 + np.arange(batch) % 12 * (np.arange(batch) < 24),
        "one is left": 1 + 2 * (np.arange(batch) < 1),
    }[runs][np.random.default_rng(0).permutation(batch)]
    sizes = []

    def run_once(_, rows):
        sizes.append(len(rows))
        assert len(sizes) <= needs.max(), "nothing is left to search"
        found = np.array(rows)[:, None] * 100 + len(sizes)
        return Rows(rows), needs[rows] > len(sizes), beam_search.Translations(found, found[:, 0])

    class Rows(list):  # a beam, of which the search itself reads only this
        tokens = np.zeros((batch, 1, 1))

    model: Any = models.build(make_config().model, 20)
    search: Any = beam_search.BeamSearch(model, beam_search_test.decode_config(2))
    search._parts, search._run = parts, run_once
    search._start = lambda params, source: Rows(range(batch))
    search._keep = lambda beam, rows: Rows(beam[row] for row in rows)
    found = search({}, sequences.Sequences(*[jnp.ones((batch, 1), jnp.int32)] * 3))
    # Of each sentence what its own last run found.
    np.testing.assert_array_equal(found.tokens[:, 0], 100 * np.arange(batch) + needs)
    np.testing.assert_array_equal(found.scores, found.tokens[:, 0])
    rows, expected = batch, []
    for done in range(1, needs.max() + 1):
        expected.append(rows)
        enough = next(n for n in range(parts, 99, parts) if n >= 2 and 5 * n >= rows)
        if (needs > done).sum() <= enough:
            rows = min(rows, enough)
    assert sizes == expected
