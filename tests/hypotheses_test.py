"""The decoding state of several hypotheses of a sentence."""

import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.models import attention, hypotheses

BATCH, WIDTH, LENGTH = 2, 3, 4


@pytest.mark.parametrize("shared", [0, 5])  # slots of a source that all hypotheses read
def test_with_more_room_everything_stands_where_it_stood(shared):
    rng, slots = np.random.default_rng(0), shared + LENGTH * WIDTH
    keys, values = rng.normal(size=(2, BATCH, 2, slots, 6)).astype(np.float32)
    cache = attention.Cache(jnp.asarray(keys.swapaxes(2, 3)), jnp.asarray(values))
    ancestors = rng.integers(WIDTH, size=(BATCH, WIDTH, LENGTH)).astype(np.int32)
    seen = jnp.ones((BATCH, 1, 1, shared), bool)
    state = hypotheses.Hypotheses((cache,), jnp.asarray(ancestors), (), seen)
    longer = state.lengthened(LENGTH + 7)
    assert longer.ancestors.shape == (BATCH, WIDTH, LENGTH + 7)
    np.testing.assert_array_equal(longer.ancestors[:, :, :LENGTH], ancestors)
    (found,) = longer.caches
    assert found.values.shape[2] == found.keys.shape[3] == shared + (LENGTH + 7) * WIDTH
    np.testing.assert_array_equal(found.keys[..., :slots], keys.swapaxes(2, 3))
    np.testing.assert_array_equal(found.values[:, :, :slots], values)
