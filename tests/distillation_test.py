"""A student's loss and step against formulas, and the layers it takes from its teacher."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_parameters
from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import batching, objectives, vocabulary
from transformer_jax.distributed import sharding
from transformer_jax.models import dropout
from transformer_jax.runs import starting_weights
from transformer_jax.training import losses
from transformer_jax.training import step as step_lib


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def test_the_loss_is_distilberts():
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
    found = losses.distillation(
        losses.Losses(hard, jnp.float32(1.6), counted),
        *(jnp.float32(ours), jnp.float32(matrix), jnp.float32(theirs), jnp.float32(other)),
        jnp.asarray(segments),
        losses.Counts(counted, jnp.int32(4)),
    )
    np.testing.assert_allclose(found, np.array([expected, 1.6, 3]), rtol=1e-5)


@pytest.fixture
def student(make_config):
    """A one-layer student of a two-layer teacher, with rows of 12 tokens."""
    return make_config(
        {
            "model.architecture": "encoder",
            "model.num_layers": 1,
            "model.dropout_rate": 0.2,
            "train.objective": "roberta",
            "train.objective_steps": 1,
            "train.start_from": "x",
            "train.teacher_layers": 2,
            "train.label_smoothing": 0.1,
            "train.batch_tokens": 24,
            "data.target_length": 12,
            "data.vocab_size": 40,
        }
    )


@pytest.mark.parametrize("parts", [1, 2])
def test_a_students_step_follows_a_teacher_without_dropout(student, monkeypatch, parts):
    student = config_lib.replace(student, {"train.accumulation_steps": parts})
    # Dropout replaced by a factor: where it acts then shows in the numbers.
    monkeypatch.setattr(dropout, "drop", lambda x, rate, _: x if rate is None else (1 - rate) * x)
    model, teacher = (
        models.build(student.model, vocabulary.size(student)),
        step_lib.teacher_model(student),
    )
    assert teacher
    taught_by, eps = random_parameters.of(teacher, 1), student.train.label_smoothing
    hidden = [([5, 40, 7], [0, 0, 6, 0]), ([40, 9], [0, 11, 0]), ([2, 40, 40], [0, 0, 13, 14])]
    texts = [objectives.Example([], read, labels) for read, labels in hidden]
    mesh = sharding.make_mesh(student.mesh, jax.devices()[:1])
    state = step_lib.init_state(model, student, mesh)
    hyper = step_lib.hyperparameters(student, taught_by)
    rows = batching.fill([[text] for text in texts], 1, 5)
    asked, real = (np.nonzero(each) for each in (rows.labels, rows.target.segments))

    def mean_loss(params):
        alone = jax.tree.map(jnp.asarray, rows)
        ours = models.outputs(model, params, alone, hyper.rates)
        theirs = models.outputs(teacher, taught_by, alone)
        said = jax.nn.log_softmax(ours[asked] @ params["params"]["embedding"].T)
        true = -said[np.arange(4), rows.labels[asked]]
        hard = (1 - eps) * true - eps * said.mean(axis=1)
        x, y = ours[real], theirs[real]
        q, p = (
            jax.nn.softmax(each @ of["params"]["embedding"].T / 2)
            for each, of in ((x, params), (y, taught_by))
        )
        soft = 4 * jnp.sum(p * jnp.log(p / q), axis=1)
        cosine = 1 - jnp.sum(x * y, axis=1) / jnp.sqrt(
            jnp.sum(x**2, axis=1) * jnp.sum(y**2, axis=1)
        )
        return 5 * soft.mean() + 2 * hard.mean() + cosine.mean(), true.mean()

    (loss, true), gradient = jax.jit(jax.value_and_grad(mean_loss, has_aux=True))(state.params)
    norm = np.sqrt(sum(float(jnp.sum(x**2)) for x in jax.tree.leaves(gradient)))
    batch = sharding.put(batching.fill([texts[:2], texts[2:]], 64, 12), mesh)
    _, found = step_lib.make_step(model, student, mesh)(state, batch, hyper, jax.random.key(0))
    np.testing.assert_allclose(found, [loss, true, 4, norm], rtol=1e-4)


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


@pytest.mark.parametrize(
    ("use", "layers", "message"),
    [
        ("start", 1, r"its 1 layers are no multiple of model\.num_layers=2, which takes evenly"),
        ("start", 3, r"its 3 layers are no multiple of model\.num_layers=2, which takes evenly"),
        ("teacher", 2, r"should be this model with train\.teacher_layers=4 layers, but its param"),
        ("teacher", 3, r"should be this model with train\.teacher_layers=4 layers, but its param"),
    ],
)
def test_a_run_whose_layers_do_not_fit_is_refused(make_config, use, layers, message):
    config = make_config({"train.start_from": "x", "train.teacher_layers": 4})
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])

    def begin(use, layers):
        params = parameters(make_config, 1, config.data.vocab_size, num_layers=layers)
        if use == "teacher":
            return starting_weights.teacher(config, mesh, lambda: (layers, params))
        own = parameters(make_config, 0, config.data.vocab_size)
        state = step_lib.TrainState(jnp.int32(0), own, ())
        return starting_weights.start(state, config, lambda: (layers, params))

    with pytest.raises(errors.UserError, match=message):
        begin(use, layers)
    begin(use, 4)


def test_weights_without_a_common_name_are_refused():
    own, others = ({"params": {name: jnp.zeros(2)}} for name in ("encoder", "decoder"))
    with pytest.raises(errors.UserError, match=r"the run of train\.start_from has no parameter of"):
        starting_weights.take(own, others, 1)
