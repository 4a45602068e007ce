"""A student's loss against its formula in NumPy, and half of a teacher's layers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_parameters
from transformer_jax import errors, models
from transformer_jax.runs import starting_weights
from transformer_jax.training import losses


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def test_is_distilberts_loss():
    rng = np.random.default_rng(0)
    ours, theirs = (rng.normal(size=(2, 4, 5)) for _ in range(2))
    matrix, other = (rng.normal(size=(7, 5)) for _ in range(2))
    segments = np.array([[1, 1, 2, 0], [1, 0, 0, 0]])
    soft, cosine = [], []
    for b, t in np.argwhere(segments):
        p, q = softmax(theirs[b, t] @ other.T / 2), softmax(ours[b, t] @ matrix.T / 2)
        soft.append(4 * np.sum(p * np.log(p / q)))
        x, y = ours[b, t], theirs[b, t]
        cosine.append(1 - x @ y / np.sqrt(x @ x * (y @ y)))
    # As HF's script: 5 soft + 2 of hidden words + 1 cosine, each a mean; here times 3 hidden words.
    expected = 3 * (5 * np.mean(soft) + 2 * (1.7 / 3) + np.mean(cosine))
    hard, counted = jnp.float32(1.7), jnp.float32(3)
    found = losses.distilled(
        losses.Losses(hard, jnp.float32(1.6), counted),
        *(jnp.float32(ours), jnp.float32(matrix), jnp.float32(theirs), jnp.float32(other)),
        jnp.asarray(segments),
    )
    np.testing.assert_allclose(found, np.array([expected, 1.6, 3]), rtol=1e-5)


def parameters(make_config, seed, vocab_size=20, **changes: Any):
    config = make_config({f"model.{name}": value for name, value in changes.items()})
    model = models.build(config.model, vocab_size)
    return random_parameters.of(model, seed)


def test_a_student_begins_with_every_second_layer_of_its_teacher(make_config):
    sizes: Any = {"architecture": "encoder", "position": "learned"}
    student = parameters(make_config, 0, num_layers=2, **sizes)
    teacher = parameters(make_config, 1, num_layers=4, **sizes)["params"]
    found = starting_weights.take(student, {"params": teacher}, 2)["params"]
    assert found.keys() == student["params"].keys()
    for name, part in found.items():
        origin = {"encoder_1": "encoder_2"}.get(name, name)
        jax.tree.map(np.testing.assert_array_equal, part, teacher[origin])


def test_a_recurrent_model_begins_with_every_second_layer_whole(make_config):
    sizes: Any = {"architecture": "lstm", "position": "none"}
    few = parameters(make_config, 0, num_layers=2, **sizes)
    many = parameters(make_config, 1, num_layers=4, **sizes)["params"]
    found = starting_weights.take(few, {"params": many}, 2)["params"]
    assert {"bridge_0_1", "bridge_1_0", "bridge_1_1"} < found.keys()
    for name, part in found.items():
        kind, *numbers = name.split("_")  # the layer, and of a bridge the part of its state
        if numbers:
            numbers[0] = {"0": "0", "1": "2"}[numbers[0]]
        origin = "_".join([kind, *numbers])
        jax.tree.map(np.testing.assert_array_equal, part, many[origin])


def test_a_translator_begins_with_the_encoder_of_another_model(make_config):
    own = parameters(make_config, 0, vocab_size=20)
    encoder = parameters(make_config, 1, vocab_size=28, architecture="encoder")["params"]
    found = starting_weights.take(own, {"params": encoder}, 1)["params"]
    np.testing.assert_array_equal(found["embedding"], encoder["embedding"][:20])
    for name, part in found.items():
        if name.startswith("encoder"):
            jax.tree.map(np.testing.assert_array_equal, part, encoder[name])
        elif name.startswith("decoder"):
            jax.tree.map(np.testing.assert_array_equal, part, own["params"][name])
    assert any(name.startswith("decoder") for name in found)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_ff": 28}, r"feed_forward/inner/\w+ has the shape .* give both runs the same sizes"),
        ({"architecture": "gru", "position": "none", "d_model": 12}, r"embedding has the shape"),
    ],
)
def test_weights_of_other_sizes_are_refused(make_config, changes, message):
    own = parameters(make_config, 0, architecture="encoder")
    with pytest.raises(errors.UserError, match=message):
        starting_weights.take(own, parameters(make_config, 1, **changes), 1)
