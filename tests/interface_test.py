"""Declarations of architectures: the fields they use, and whether they read a source."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_parameters
from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import batching
from transformer_jax.models import interface
from transformer_jax.training import step as step_lib

VOCABULARY = 20
FIELDS = [field.name for field in dataclasses.fields(config_lib.ModelConfig)]
RECURRENT = {"model.position": "none", "model.recurrent_attention": "dot"}
SETTINGS = {
    "transformer": {},
    "decoder": {},
    **dict.fromkeys(("rnn", "lstm", "gru"), RECURRENT),
    "conv": {},
    "encoder": {},
    "elmo": {"model.position": "none"},
}
# Another value of a field, and the settings with which the field matters.
OTHERS = {
    "num_layers": (2, {}),
    "d_model": (20, {}),
    "d_ff": (28, {}),
    "num_heads": (2, {}),
    "num_kv_heads": (2, {}),
    "d_k": (8, {}),
    "d_v": (4, {}),
    "dropout_rate": (0.3, {}),
    "attention_dropout_rate": (0.3, {}),
    "feed_forward_dropout_rate": (0.3, {}),
    "position": ("learned", {}),
    "max_positions": (96, {"model.position": "learned"}),
    "norm": ("rms_norm", {}),
    "norm_placement": ("pre", {}),
    "embedding_norm": (True, {}),
    "feed_forward": ("gelu", {}),
    "attention_pattern": (
        "interleaved",
        {"model.window": 2, "model.global_every": 2, "model.num_layers": 2},
    ),
    "window": (2, {}),
    "global_every": (
        3,
        {
            "model.attention_pattern": "interleaved",
            "model.window": 2,
            "model.global_every": 2,
            "model.num_layers": 3,
        },
    ),
    "recurrent_attention": ("additive", {}),
    "kernel_size": (4, {}),
    "compute_dtype": ("bfloat16", {}),
    "attention_kernel": ("fused", {"model.compute_dtype": "bfloat16"}),
    "rematerialise": (True, {}),
    "share_stacks": (True, {}),
    "source_attention": ("full", {}),
}


def make(make_config, architecture, changes=()):
    chosen = {"model.architecture": architecture, **SETTINGS[architecture]}
    return make_config({"model.num_layers": 1, **chosen, **dict(changes)})


def batch_of(source, target):
    return jax.tree.map(jnp.asarray, batching.fill([[(source, target)]], 8, 8))


@functools.cache
def program(config):
    """Returns the initialisation and forward pass of training on a GPU, as text."""
    model: Any = models.build(config.model, VOCABULARY, "gpu")
    batch = batch_of([5, 6, 7], [8, 9])
    rates = step_lib.hyperparameters(config).rates

    def outputs(key):
        keys = dict.fromkeys(("params", "dropout"), key)
        return model.init_with_output(keys, batch.source, batch.target, rates)

    traced = jax.make_jaxpr(outputs)(jax.random.key(0))
    return str(traced), [np.asarray(x).tolist() for x in traced.consts]


def build_as_set(config, names):
    models.require_used(config, names)
    models.build(config, VOCABULARY)


@pytest.fixture(autouse=True)
def _kernel(monkeypatch):
    """Replaces the fused kernel, which needs a GPU."""
    monkeypatch.setattr(jax.nn, "dot_product_attention", _attend)


def _attend(query, key, value, *_, **__):
    return jnp.einsum("BTNC,BSNC,BSND->BTND", query, key, value)


def test_every_architecture_offers_the_interface(make_config):
    assert set(SETTINGS) == set(models.ARCHITECTURES)
    for name, kind in models.ARCHITECTURES.items():
        assert isinstance(models.build(make(make_config, name).model, VOCABULARY), kind)
        assert isinstance(models.build(make(make_config, name).model, 9), interface.Architecture)
        assert kind.uses <= set(FIELDS)
        assert kind.uses >= interface.COMMON
    assert set(OTHERS) | {"architecture"} == set(FIELDS)


@pytest.mark.parametrize("architecture", SETTINGS)
def test_every_field_that_an_architecture_uses_changes_its_program(make_config, architecture):
    for field in sorted(models.ARCHITECTURES[architecture].uses - {"architecture"}):
        value, needed = OTHERS[field]
        one = make(make_config, architecture, needed)
        other = config_lib.replace(one, {f"model.{field}": value})
        assert one != other, field
        assert program(one) != program(other), field
        models.require_used(other.model, [f"model.{field}"])


def test_architectures_compute_different_things(make_config):
    found = [str(program(make(make_config, name))) for name in SETTINGS]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("architecture", SETTINGS)
def test_setting_a_field_that_an_architecture_does_not_use_is_an_error(make_config, architecture):
    for field in sorted(set(FIELDS) - models.ARCHITECTURES[architecture].uses):
        name, value = f"model.{field}", OTHERS[field][0]
        other = make(make_config, architecture, {name: value})
        with pytest.raises(errors.UserError) as refused:
            build_as_set(other.model, ["train.num_steps", name])
        beginning = f"model.architecture={architecture} has no use for {name}={value}: "
        remedies = [f"leave out {name}", f"set {name}={models.UNUSED.get(field)}"]
        assert str(refused.value) in [beginning + remedy for remedy in remedies]
        if field not in models.UNUSED:  # sizes, which `build` ignores
            one = make(make_config, architecture)
            assert program(one) == program(other), field


def test_fields_of_other_sections_are_ignored(make_config):
    values = config_lib.to_dict(make_config())
    others = [f"{one}.{field}" for one in values if one != "model" for field in values[one]]
    assert {name.partition(".")[0] for name in others} >= {"data", "decode", "mesh", "train"}
    models.require_used(make_config().model, others)


@pytest.mark.parametrize("architecture", SETTINGS)
def test_decoders_alone_read_the_source(make_config, architecture):
    model = models.build(make(make_config, architecture).model, VOCABULARY)
    params = random_parameters.of(model)
    one, other = (
        np.asarray(jax.jit(models.outputs, static_argnums=0)(model, params, batch_of(source, [8])))
        for source in ([5, 6], [7, 7])
    )
    assert isinstance(model, interface.Decoder) == (not np.array_equal(one, other))


def test_a_state_of_fixed_size_follows_the_parents_of_its_hypotheses():
    cache = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    parents = np.array([[2, 0, 0], [1, 1, 2]])
    nothing = jnp.zeros((2, 1, 5))
    source = interface.Source(nothing, nothing, jnp.ones((2, 1, 1), bool))
    state = interface.FixedSizeState({"cell": jnp.asarray(cache)}, source)
    found = state.select(jnp.asarray(parents))
    expected = [[cache[b, parents[b, w]] for w in range(3)] for b in range(2)]
    np.testing.assert_array_equal(found.caches["cell"], expected)
