"""The decoder alone, against equations of one sequence."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_parameters, reference_test
from transformer_jax import config as config_lib
from transformer_jax import models
from transformer_jax.data import batching

VOCABULARY = 40
SOURCE, TARGET = [5, 9, 31, 7, 22], [12, 8, 33]
KINDS = ("causal", "full")


@pytest.fixture
def make_model(make_config):
    def make(changes):
        config = make_config({"model.num_layers": 2, "model.architecture": "decoder", **changes})
        model = models.build(config.model, VOCABULARY)
        return model, random_parameters.of(model)

    return make


def batch_of(source, target):
    return jax.tree.map(jnp.asarray, batching.fill([[(source, target)]], 8, 6))


@functools.partial(jax.jit, static_argnums=0)
def both(model, params, batch):
    """The last layer's outputs at source positions and the model's at target positions."""
    last = f"decoder_{model.config.num_layers - 1}"
    found, state = model.apply(
        params,
        *(batch.source, batch.target),
        capture_intermediates=lambda module, method: module.name == last,
    )
    (layer,) = state["intermediates"][last]["__call__"]
    return layer[:, : batch.source.tokens.shape[1]], found


def outputs(model, params, source=tuple(SOURCE), target=tuple(TARGET)):
    """Returns outputs at the source's real positions, EOS included, and at the target's."""
    found = both(model, params, batch_of(source, target))
    return tuple(
        np.asarray(x)[0, : len(side) + 1] for x, side in zip(found, (source, target), strict=True)
    )


def one_sequence(reference, source, target, full):
    """Computes section 3 of the paper without its encoder, for source, EOS, BOS and target."""
    x = reference.embed([*source, 2, 1, *target])
    prefix = len(source) + 1 if full else 0
    for n in range(reference.config.num_layers):
        p = reference.params[f"decoder_{n}"]
        y = reference.attention(x, x, p["self_attention"], True, reference.config.window, prefix)
        x = reference.add(x, y, p["self_attention_residual"])
        y = reference.feed_forward(x, p["feed_forward"])
        x = reference.add(x, y, p["feed_forward_residual"])
    return x


@pytest.mark.parametrize(("kind", "window"), [("causal", 0), ("full", 0), ("causal", 2)])
def test_is_the_equations_of_one_sequence(make_model, kind, window):
    model, params = make_model({"model.source_attention": kind, "model.window": window})
    exact = jax.tree.map(lambda x: np.array(x, np.float64), params["params"])
    reference = reference_test.Reference(exact, model.config, reference_test.ALL)
    expected = one_sequence(reference, SOURCE, TARGET, kind == "full")
    found = np.concatenate(outputs(model, params))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_sees_no_target_and_if_full_all_of_itself(make_model, kind):
    model, params = make_model({"model.source_attention": kind})
    before, _ = outputs(model, params)
    other_target, _ = outputs(model, params, target=(3, 3, 3))
    np.testing.assert_array_equal(before, other_target)
    other_end, _ = outputs(model, params, source=(*SOURCE[:-1], 3))
    changed = np.abs(before - other_end).max(axis=1) > 1e-3
    first = 0 if kind == "full" else len(SOURCE) - 1
    assert changed.tolist() == [place >= first for place in range(len(SOURCE) + 1)]


def test_a_window_counts_from_the_target_back_into_the_source(make_model):
    model, params = make_model({"model.window": 1, "model.num_layers": 1})
    _, before = outputs(model, params)
    _, after = outputs(model, params, source=(3, 3, 3, 3, 3))
    # BOS stands beside EOS, which every source ends in, and two places from the last word.
    np.testing.assert_array_equal(before, after)
    wider, params = make_model({"model.window": 2, "model.num_layers": 1})
    _, before = outputs(wider, params)
    _, after = outputs(wider, params, source=(3, 3, 3, 3, 3))
    changed = np.abs(before - after).max(axis=1) > 1e-3
    assert changed.tolist() == [True, False, False, False]


def test_shared_stacks_are_stacks_with_equal_weights(make_config):
    shared = make_config({"model.share_stacks": True})
    apart = config_lib.replace(shared, {"model.share_stacks": False})
    model, other = (models.build(config.model, VOCABULARY) for config in (shared, apart))
    params = random_parameters.of(model)["params"]
    sizes = [
        sum(x.size for x in jax.tree.leaves(tree)) for tree in (params, random_parameters.of(other))
    ]
    copies = dict(params)
    for n in range(shared.model.num_layers):
        of_decoder = params[f"decoder_{n}"]
        copies[f"encoder_{n}"] = {
            name.removeprefix("self_"): part
            for name, part in of_decoder.items()
            if "cross" not in name
        }
        sizes[0] += sum(x.size for x in jax.tree.leaves(copies[f"encoder_{n}"]))
    assert sizes[0] == sizes[1]
    batch = batch_of(SOURCE, TARGET)
    found = jax.jit(models.logits, static_argnums=0)(model, {"params": params}, batch)
    expected = jax.jit(models.logits, static_argnums=0)(other, {"params": copies}, batch)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
