"""Losses that no mesh and no accumulation changes, and errors of impossible meshes."""

import itertools
import math
import re

import jax
import numpy as np
import pytest

from experiments.benchmarks import hlo
from transformer_jax import errors, models
from transformer_jax.data import dataset, vocabulary
from transformer_jax.distributed import sharding
from transformer_jax.training import loop
from transformer_jax.training import step as step_lib

STEPS = 50  # of a loss curve
WARMUP = 100  # at larger rates rounding errors grow into curves


def losses_on(config, cache_dir, devices, steps=STEPS):
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:devices])
    model = models.build(config.model, vocabulary.size(config))
    batches = loop.make_batches(dataset.load(config.data, cache_dir), config, mesh)
    state = step_lib.init_state(model, config, mesh)
    step = step_lib.make_step(model, config, mesh)
    hyper = step_lib.hyperparameters(config)
    found = []
    for index in range(steps):
        batch = sharding.put(batches[index], mesh)
        state, metrics = step(state, batch, hyper, jax.random.key(config.train.seed))
        found.append([float(metrics.smoothed_loss), float(metrics.gradient_norm)])
    return np.array(found)


@pytest.fixture(scope="module")
def on_one_device(cache_dir):
    known = {}

    def measure(config):
        key = (config.model, config.train)
        if key not in known:
            known[key] = losses_on(config, cache_dir, 1)
        return known[key]

    return measure


MESHES = [
    (data, fsdp, tensor)
    for data, fsdp, tensor in itertools.product((1, 2, 4, 8), repeat=3)
    if 1 < data * fsdp * tensor <= 8
]
FAMILIES = {
    "transformer": {},
    "decoder": {"model.architecture": "decoder"},
}
QUICK = [("transformer", (2, 2, 2))]  # all axes together


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
        for case in itertools.product(FAMILIES, MESHES)
    ],
    ids=str,
)
def test_every_mesh_gives_the_losses_of_one_device(
    make_config, cache_dir, on_one_device, family, shape
):
    data, fsdp, tensor = shape
    heads = {
        **FAMILIES[family],
        "model.num_layers": 1,
        "model.num_heads": 8,
        "train.num_steps": STEPS,
        "train.warmup_steps": WARMUP,
    }
    config = make_config({**heads, "mesh.data": data, "mesh.fsdp": fsdp, "mesh.tensor": tensor})
    expected = on_one_device(make_config(heads))
    found = losses_on(config, cache_dir, data * fsdp * tensor)
    np.testing.assert_allclose(found, expected, rtol=2e-3)


ENCODERS = {
    "encoder": {"model.architecture": "encoder", "train.objective": "bert"},
    "elmo": {
        "model.architecture": "elmo",
        "model.position": "none",
        "train.objective": "elmo",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encoder", "elmo"])
def test_a_mesh_gives_an_encoder_alone_the_losses_of_one_device(make_config, cache_dir, name):
    steps = 6
    changes = {
        "model.num_layers": 1,
        "model.num_heads": 8,
        "train.num_steps": steps,
        "train.objective_steps": steps,
        "train.warmup_steps": WARMUP,
        "data.target_length": 128,  # two sentences
        "train.batch_tokens": 1024,
        **ENCODERS[name],
    }
    expected = losses_on(make_config(changes), cache_dir, 1, steps)
    config = make_config({**changes, "mesh.data": 2, "mesh.fsdp": 2, "mesh.tensor": 2})
    np.testing.assert_allclose(losses_on(config, cache_dir, 8, steps), expected, rtol=1e-5)


@pytest.mark.slow
def test_relative_positions_give_the_losses_of_one_device(make_config, cache_dir):
    steps = 6
    changes = {
        "model.num_layers": 1,
        "model.position": "relative",
        "train.num_steps": steps,
        "train.warmup_steps": WARMUP,
    }
    expected = losses_on(make_config(changes), cache_dir, 1, steps)
    config = make_config({**changes, "mesh.data": 2, "mesh.fsdp": 2, "mesh.tensor": 2})
    np.testing.assert_allclose(losses_on(config, cache_dir, 8, steps), expected, rtol=1e-5)


@pytest.mark.slow
def test_an_objective_gives_the_losses_of_one_device_too(make_config, cache_dir):
    short = {
        "model.num_layers": 1,
        "train.num_steps": 12,
        "train.warmup_steps": WARMUP,
        "train.objective": "span_corruption",
        "train.objective_steps": 6,
    }
    expected = losses_on(make_config(short), cache_dir, 1, 12)
    mesh = {"mesh.data": 2, "mesh.fsdp": 2, "mesh.tensor": 2}
    found = losses_on(make_config({**short, **mesh}), cache_dir, 8, 12)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_accumulation_changes_nothing_but_dropouts_draws(make_config, cache_dir, on_one_device):
    without_dropout = {
        "model.num_layers": 1,
        "model.dropout_rate": 0.0,
        "train.num_steps": STEPS,
        "train.warmup_steps": WARMUP,
    }
    expected = on_one_device(make_config(without_dropout))
    config = make_config({**without_dropout, "train.accumulation_steps": 4})
    np.testing.assert_allclose(losses_on(config, cache_dir, 1), expected, rtol=2e-3)


def test_a_tensor_axis_really_shares_out_parameters(make_config):
    config = make_config({"mesh.data": 1, "mesh.fsdp": 2, "mesh.tensor": 4})
    state = start(config)
    embedding = state.params["params"]["embedding"]
    assert embedding.shape == (400, 16)
    assert {shard.data.shape for shard in embedding.addressable_shards} == {(100, 8)}


def start(config):
    mesh = sharding.make_mesh(config.mesh)
    return step_lib.init_state(models.build(config.model, config.data.vocab_size), config, mesh)


def sizes_and_exchanged(config):
    """Returns the sizes of all parameters, of the shared matrix, and of each kind of collective."""
    mesh = sharding.make_mesh(config.mesh)
    model = models.build(config.model, config.data.vocab_size)
    shapes = step_lib.state_shapes(model, config, mesh)
    module = hlo.read(step_lib.compile_step(model, config, mesh).as_text() or "")
    exchanged = {"all-gather": 0, "all-reduce": 0}
    for one in itertools.chain(*module.computations.values()):
        if one.opcode in exchanged:
            for shape in re.findall(r"f32\[([\d,]*)\]", one.shape):
                exchanged[one.opcode] += math.prod(int(size) for size in shape.split(",") if size)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes.params))
    return parameters, config.data.vocab_size * config.model.d_model, exchanged


def test_data_parallel_steps_exchange_gradients_alone(make_config):
    config = make_config({"model.num_layers": 1, "mesh.data": 8, "train.batch_tokens": 1024})
    parameters, shared, exchanged = sizes_and_exchanged(config)
    losses = 3
    # The shared matrix has a gradient of each use: source, target and logits.
    assert exchanged == {"all-gather": 0, "all-reduce": parameters + 2 * shared + losses}


def test_fsdp_gathers_its_parameters_and_no_activations(make_config):
    config = make_config({"model.num_layers": 1, "mesh.data": 1, "mesh.fsdp": 8})
    parameters, shared, exchanged = sizes_and_exchanged(config)
    # Norms and the feed-forward's inner biases have no axis that is sharded.
    whole = 5 * 2 * config.model.d_model + 2 * config.model.d_ff
    # The backward pass may gather them once more.
    assert parameters - whole <= exchanged["all-gather"] <= 2 * parameters
    # One layer's activations of the batch would be more than all of it.
    assert exchanged["all-reduce"] <= parameters + 2 * shared + config.train.batch_tokens


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"mesh.data": 3}, r"mesh\.data=3, mesh\.fsdp=1 and mesh\.tensor=1 do not share out 8"),
        ({"mesh.tensor": 16}, r"mesh\.tensor=16 do not share out 8 devices"),
        ({"data.vocab_size": 401, "mesh.tensor": 8}, r"mesh\.tensor=8 does not divide .* 401"),
    ],
)
def test_impossible_meshes_are_errors(make_config, overrides, message):
    config = make_config(overrides)
    with pytest.raises(errors.UserError, match=message):
        start(config)


def test_one_size_may_be_the_rest(make_config):
    for rest, shape in (("data", (2, 2, 2)), ("fsdp", (4, 1, 2)), ("tensor", (1, 2, 4))):
        names = ("data", "fsdp", "tensor")
        sizes = {
            f"mesh.{name}": -1 if name == rest else size
            for name, size in zip(names, shape, strict=True)
        }
        assert sharding.mesh_sizes(make_config(sizes).mesh, 8) == shape
    with pytest.raises(errors.UserError, match=r"only one of mesh\.data and mesh\.fsdp can be"):
        make_config({"mesh.data": -1, "mesh.fsdp": -1})


def test_a_batch_that_devices_cannot_divide_is_an_error_with_a_remedy(make_config):
    small, large = (make_config({"train.batch_tokens": tokens}) for tokens in (512, 1000))
    one = sharding.make_mesh(large.mesh, jax.devices()[:1])
    eight = sharding.make_mesh(large.mesh)
    assert sharding.rows_of(large, one) == 15
    with pytest.raises(errors.UserError, match=r"try train\.batch_tokens=512"):
        sharding.rows_of(large, eight)
    assert sharding.rows_of(small, eight) == 8
