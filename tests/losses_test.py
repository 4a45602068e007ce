"""The loss against distributions written out in full."""

import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.training import losses


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_is_cross_entropy_with_the_smoothed_distribution(smoothing):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 3, 5)) * 3
    labels = rng.integers(0, 5, (2, 3))
    segments = np.array([[1, 1, 2], [1, 0, 0]])
    smoothed = true = 0.0
    for b, t in zip(*np.nonzero(segments), strict=True):
        log_p = logits[b, t] - np.log(np.exp(logits[b, t]).sum())
        q = np.full(5, smoothing / 5)
        q[labels[b, t]] += 1 - smoothing
        smoothed -= (q * log_p).sum()
        true -= log_p[labels[b, t]]
    found = losses.cross_entropy(
        jnp.asarray(logits), jnp.asarray(labels), jnp.asarray(segments), smoothing
    )
    np.testing.assert_allclose(found, [smoothed, true, 4], rtol=1e-5)
