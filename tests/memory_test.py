"""How much memory a step takes: known before it is taken, and less where a config asks for less."""

import jax
import numpy as np
import pytest

from transformer_jax import config as config_lib
from transformer_jax import models
from transformer_jax.data import batching
from transformer_jax.training import memory, sharding
from transformer_jax.training import step as step_lib

# Activations are many times the parameters.
LARGE = {
    "model.num_layers": 4,
    "train.batch_tokens": 4096,
    "data.source_length": 64,
    "data.target_length": 64,
    "mesh.data": 1,
}


def compiled(config):
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    model = models.build(config.model, config.data.vocab_size)
    return step_lib.compile_step(model, config, mesh), mesh


def test_a_programs_memory_is_what_its_arrays_need():
    rows, columns = 1000, 500
    shape = jax.ShapeDtypeStruct((rows, columns), np.float32)

    def square(x):
        return x @ x.T  # one argument, one result

    found = memory.of_program(jax.jit(square).lower(shape).compile())
    assert found == pytest.approx(4 * (rows * columns + rows * rows), rel=0.01)


def test_parts_and_computing_again_take_less(make_config):
    whole = memory.of_program(compiled(make_config(LARGE))[0])
    parts = memory.of_program(compiled(make_config({**LARGE, "train.accumulation_steps": 4}))[0])
    again = memory.of_program(compiled(make_config({**LARGE, "model.rematerialise": True}))[0])
    assert parts < 0.5 * whole
    assert again < 0.9 * whole


def test_a_step_that_does_not_fit_says_what_would(make_config, monkeypatch):
    config = make_config(LARGE)
    program, mesh = compiled(config)
    needed = memory.of_program(program)
    memory.check(program, config, mesh, 1)
    monkeypatch.setattr(memory, "of_device", lambda _: needed // 2)
    with pytest.raises(
        config_lib.UserError, match=r"the device has .* with --config\.(\S+)=(\S+) "
    ):
        memory.check(program, config, mesh, 1)
    monkeypatch.setattr(memory, "of_device", lambda _: 1000)
    with pytest.raises(config_lib.UserError, match=r"take a smaller train\.batch_tokens"):
        memory.check(program, config, mesh, 1)


def test_computing_layers_again_changes_no_gradient(make_config):
    rows = [[([5, 9, 7], [8, 6, 4, 9])], [([4, 4], [7, 7, 5]), ([9], [6, 8])]]
    found = []
    for again in (False, True):
        config = make_config({"model.rematerialise": again, "mesh.data": 1})
        mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
        model = models.build(config.model, 20)
        state = step_lib.init_state(model, config, mesh)
        step = step_lib.make_step(model, config, mesh)
        batch = sharding.put(batching.fill(rows, 8, 8), mesh)
        hyper = step_lib.hyperparameters(config)
        found.append(step(state, batch, hyper, jax.random.key(0)))
    (plain, _), (again, _) = found
    for one, other in zip(*map(jax.tree.leaves, (plain.opt_state, again.opt_state)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-9)
