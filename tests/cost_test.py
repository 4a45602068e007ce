"""Counted operations against those of the compiled program."""

import jax
import pytest

from experiments import cost
from transformer_jax import models
from transformer_jax.data import batching
from transformer_jax.training import sharding
from transformer_jax.training import step as step_lib


@pytest.mark.parametrize("overrides", [{}, {"model.num_kv_heads": 2, "model.d_k": 16}], ids=str)
def test_operations_are_those_of_the_compiled_forward_pass(make_config, overrides):
    config = make_config(
        {"model.d_model": 128, "model.d_ff": 512, "model.d_v": 16, "data.source_length": 48,
         "train.num_steps": 1, "train.batch_tokens": 64 * 8, **overrides}
    )  # fmt: skip
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    model = models.build(config.model, config.data.vocab_size)
    shapes, _ = step_lib.state_shapes_and_shardings(model, config, mesh)
    batch = batching.fill([[]] * 8, 48, 64)
    program = jax.jit(models.logits, static_argnums=0).lower(model, shapes.params, batch)
    analysis = program.cost_analysis()
    assert analysis is not None
    # The compiler also counts what is not a matrix product: softmax, norms, masks.
    assert 1 <= analysis["flops"] / (cost.training_flops(config) / 3) < 1.15
