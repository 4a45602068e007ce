"""The memory of a training step: checked before the first step, and reduced by some settings."""

import functools
import os
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_parameters
from transformer_jax import config as config_lib
from transformer_jax import errors, models, sequences
from transformer_jax.data import batching
from transformer_jax.distributed import memory, sharding
from transformer_jax.models import dropout
from transformer_jax.runs import training_run
from transformer_jax.training import loop
from transformer_jax.training import step as step_lib

# Activations are many times the parameters.
LARGE = {
    "model.num_layers": 1,
    "train.batch_tokens": 4096,
    "data.source_length": 64,
    "data.target_length": 64,
    "mesh.data": 1,
}


@pytest.fixture(autouse=True, scope="module")
def _compiled_once():
    """Compiles each config once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_lib, "compile_step", functools.cache(step_lib.compile_step))
        yield


def compiled(config):
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    model = models.build(config.model, config.data.vocab_size)
    return step_lib.compile_step(model, config, mesh), mesh


def needed(config) -> int:
    found = memory.of_program(compiled(config)[0])
    assert found is not None
    return found


def test_a_programs_memory_is_what_its_arrays_need():
    rows, columns = 1000, 500
    shape = jax.ShapeDtypeStruct((rows, columns), np.float32)

    def square(x):
        return x @ x.T  # one argument, one result

    found = memory.of_program(jax.jit(square).lower(shape).compile())
    assert found == pytest.approx(4 * (rows * columns + rows * rows), rel=0.01)


@pytest.mark.parametrize(("written", "limit"), [("max\n", 4_096_000), ("1048576\n", 1_048_576)])
def test_cpu_devices_divide_what_their_container_may_use(monkeypatch, written, limit):
    mesh = sharding.make_mesh(config_lib.MeshConfig(2, 1, 1), jax.devices()[:2])
    there = types.SimpleNamespace(exists=lambda: True, read_text=lambda: written)
    monkeypatch.setattr(memory, "pathlib", types.SimpleNamespace(Path=lambda _: there))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.get)
    assert memory.of_device(mesh) == limit // 2


def test_parts_take_less(make_config):
    whole = needed(make_config(LARGE))
    assert needed(make_config({**LARGE, "train.accumulation_steps": 4})) < 0.6 * whole


def test_computing_layers_again_keeps_less_for_the_gradient(make_config):
    """It is counted before compilation, because a CPU's compiler keeps everything."""

    def kept(config):
        model = models.build(config.model, 20)
        row = sequences.Sequences(*[jnp.ones((4, 32), jnp.int32)] * 3)
        batch = sequences.Batch(row, row, row.tokens)
        params = nn.unbox(jax.eval_shape(model.init, jax.random.key(0), row, row))
        residuals = jax.eval_shape(
            lambda params: jax.vjp(lambda p: models.logits(model, p, batch), params)[1], params
        )
        return sum(leaf.size for leaf in jax.tree.leaves(residuals))

    again = kept(make_config({**LARGE, "model.rematerialise": True}))
    assert again < 0.6 * kept(make_config(LARGE))


def test_a_step_that_does_not_fit_is_refused_with_a_remedy(make_config, monkeypatch):
    config = make_config(LARGE)
    size, mesh = needed(config), sharding.make_mesh(config.mesh, jax.devices()[:1])
    model = models.build(config.model, config.data.vocab_size)
    monkeypatch.setattr(memory, "of_device", lambda _: size)
    assert loop.compile_step(model, config, mesh)
    monkeypatch.setattr(memory, "of_device", lambda _: size - 1)
    message = rf"needs {size / 2**30:.2f} GiB .*train\.batch_tokens.*train\.accumulation_steps"
    with pytest.raises(errors.UserError, match=message):
        loop.compile_step(model, config, mesh)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            # As XLA:TPU writes it.
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 19.50G of 15.75G hbm. "
            "Exceeded hbm capacity by 3.75G.\n\nTotal hbm usage >= 19.75G:",
            r"Used 19\.50G of 15\.75G hbm.*by 3\.75G\.\): give a smaller .*train\.batch_tokens",
        ),
        ("INTERNAL: the compiler broke", None),
    ],
    ids=["too large", "another error"],
)
def test_a_compilers_refusal_ends_a_run_with_a_remedy(
    make_config, monkeypatch, tmp_path, cache_dir, message, expected
):
    def refusing(*_):
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setattr(step_lib, "compile_step", refusing)
    error = errors.UserError if expected else jax.errors.JaxRuntimeError
    with pytest.raises(error, match=expected or message):
        training_run.run(make_config(), tmp_path, cache_dir)


def test_computing_layers_again_changes_no_gradient(make_config):
    """The second computation drops the same elements."""
    batch = batching.fill([[([5, 9, 7], [8, 6, 4, 9])], [([4, 4], [7, 7, 5]), ([9], [6, 8])]], 8, 8)
    rates = dropout.Rates(jnp.float32(0.3))

    def gradient(again):
        config = make_config({"model.num_layers": 1, "model.rematerialise": again})
        model = models.build(config.model, 20)

        def loss(params, batch):
            return jnp.sum(models.logits(model, params, batch, rates, jax.random.key(0)) ** 2)

        return jax.tree.leaves(jax.jit(jax.grad(loss))(random_parameters.of(model), batch))

    for one, other in zip(gradient(False), gradient(True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)  # of values up to 75
