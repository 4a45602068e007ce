"""The optimiser against the paper's numbers and against Adam written out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer_jax.training import step as step_lib


def test_schedule_has_the_papers_values(make_config):
    config = make_config({"train.warmup_steps": 4000, "train.learning_rate_scale": 1.0}).train
    # d_model^-0.5 · warmup^-0.5 at the peak: 6.99e-4 for base, 4.94e-4 for big.
    for d_model, peak in ((512, 6.988e-4), (1024, 4.941e-4)):
        rates = [float(step_lib.learning_rate(s, config, d_model)) for s in (1, 2000, 4000, 16000)]
        np.testing.assert_allclose(rates, [peak / 4000, peak / 2, peak, peak / 2], rtol=1e-3)


def test_scale_multiplies_the_rate(make_config):
    one, three = (make_config({"train.learning_rate_scale": scale}).train for scale in (1.0, 3.0))
    rates = [float(step_lib.learning_rate(7, config, 64)) for config in (one, three)]
    assert rates[1] == pytest.approx(3 * rates[0])


def test_steps_are_adam_written_out(make_config):
    config = make_config({"train.warmup_steps": 3}).train
    transformation = step_lib.optimizer(config, 64)
    params = jnp.array([1.0, -2.0, 0.5])
    state = transformation.init(params)
    expected, m, v = np.array(params, np.float64), np.zeros(3), np.zeros(3)
    for step in range(1, 6):
        # The last one is as small as epsilon.
        gradient = jax.random.normal(jax.random.key(step), (3,)) * jnp.array([1.0, 1.0, 1e-9])
        updates, state = transformation.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        g = np.asarray(gradient, np.float64)
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
        m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.98**step)
        rate = config.learning_rate_scale * 64**-0.5 * min(step**-0.5, step * 3**-1.5)
        expected -= rate * m_hat / (np.sqrt(v_hat) + 1e-9)
    np.testing.assert_allclose(np.asarray(params), expected, rtol=1e-5)
