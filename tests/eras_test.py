"""The recipes of other toolkits, and what departs from the paper's."""

import pytest

from configs import base as base_config
from configs import toy as toy_config
from experiments import eras
from tests.variations_test import base_of
from transformer_jax import config as config_lib
from transformer_jax import paper
from transformer_jax.training import step as step_lib


def test_the_papers_config_departs_from_it_nowhere():
    base = base_of(base_config)
    assert paper.deviations(base) == []
    changed = config_lib.replace(base, eras.rows_for(base)["tensor2tensor v3"])
    lines = paper.deviations(changed)
    assert len(lines) == 6
    toy = paper.deviations(base_of(toy_config))
    assert "model.d_model=64, where the paper has 512 or 256 or 1024" in toy
    assert paper.deviations(config_lib.replace(base, {"model.num_kv_heads": 8})) == []
    assert "model.norm_placement=pre, where the paper has post" in lines


def test_eras_have_their_toolkits_peak_rates():
    base = base_of(base_config)
    peaks = {}
    for row, overrides in eras.rows_for(base).items():
        train = config_lib.replace(base, overrides).train
        peaks[row] = float(step_lib.learning_rate(train.warmup_steps, train, 512))
    assert peaks["base"] == peaks["tensor2tensor v1"] == pytest.approx(512**-0.5 * 4000**-0.5)
    assert peaks["tensor2tensor v2"] == pytest.approx(2 * 512**-0.5 * 8000**-0.5)
    assert peaks["fairseq"] == pytest.approx(7e-4)
    assert peaks["Marian"] == pytest.approx(3e-4)
    # A shorter base keeps the ratios.
    toy = base_of(toy_config)
    train = config_lib.replace(toy, eras.rows_for(toy)["Marian"]).train
    own = toy.train
    ratio = step_lib.learning_rate(train.warmup_steps, train, 512) / step_lib.learning_rate(
        own.warmup_steps, own, 512
    )
    assert train.warmup_steps == 4 * own.warmup_steps
    assert float(ratio) == pytest.approx(3e-4 * (512 * 4000) ** 0.5)
