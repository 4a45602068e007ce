"""Attention weights against NumPy, and the command that draws them."""

import io
import math
import re
import subprocess
import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import image as image_lib

import transformer_jax
from configs import toy
from tests import decoder_test, random_parameters, reference_test, tiny
from transformer_jax import config as config_lib
from transformer_jax import errors, files, models
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.decoding import translator as translator_lib
from transformer_jax.distributed import sharding
from transformer_jax.drawing import heat_maps
from transformer_jax.evaluation import attention_weights
from transformer_jax.models import dropout, interface
from transformer_jax.training import checkpoint
from transformer_jax.training import step as step_lib

SOURCE = "The <old> dog & a cat."
TARGET = "Der alte Hund und eine Katze."


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, cache_dir):
    """A folder of a finished run with random parameters."""
    values = toy.get_config()
    values.update_from_flattened_dict(tiny.OVERRIDES)
    config = config_lib.from_mapping(values.to_dict())
    tokenizer = dataset_lib.load(config.data, cache_dir).tokenizer
    model = models.build(config.model, config.data.vocab_size)
    mesh = sharding.make_mesh(config.mesh)
    shapes = step_lib.state_shapes(model, config, mesh)
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    folder = tmp_path_factory.mktemp("run")
    checkpoints = checkpoint.Checkpoints(folder / "checkpoints", config, tokenizer.digest)
    checkpoints.save(state._replace(params=random_parameters.of(model)), 0.0)
    checkpoints.close()
    files.write(folder / "tokenizer.model", tokenizer.model)
    files.write_json(folder / "config.json", config_lib.to_dict(config))
    return folder


@pytest.fixture
def translator(workdir):
    return transformer_jax.load(workdir)


class Recording(reference_test.Reference):
    """The paper's equations in NumPy, which keep attention weights in `weights`."""

    def __init__(self, params, config):
        super().__init__(params, config, reference_test.ALL)
        self.weights = []

    def attention(self, x, memory, p, causal=False, window=0, prefix=0):
        heads = []
        for head in range(self.config.num_heads):
            part = slice(head * self.config.d_k, (head + 1) * self.config.d_k)
            queries, keys = x @ p["query"]["kernel"][:, part], memory @ p["key"]["kernel"][:, part]
            weights = np.exp(queries @ keys.T / math.sqrt(self.config.d_k))
            seen = np.tri(len(x)) if causal else np.ones_like(weights)
            seen[:prefix, :prefix] = 1
            weights *= seen
            heads.append(weights / weights.sum(-1, keepdims=True))
        self.weights.append(np.stack(heads))
        return super().attention(x, memory, p, causal, window, prefix)


# A target as long as the source must not be taken for it.
@pytest.mark.parametrize("target", [TARGET, SOURCE], ids=["longer", "as long"])
def test_weights_are_those_of_the_papers_equations(translator, target):
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), translator.params["params"])
    reference = Recording(exact, translator.config.model)
    reference.logits(*translator.tokenizer.encode([SOURCE, target]))
    encoder, decoder = reference.weights[:2], reference.weights[2:]
    expected = {"encoder": encoder, "decoder": decoder[0::2], "cross": decoder[1::2]}
    found = attention_weights.collect(translator, SOURCE, target)
    assert [maps.kind for maps in found] == list(expected)
    for maps in found:
        np.testing.assert_allclose(maps.weights, expected[maps.kind], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("target", [TARGET, SOURCE], ids=["longer", "as long"])
@pytest.mark.parametrize("kind", ["causal", "full"])
def test_a_decoder_only_model_has_one_map_of_both_sentences(translator, kind, target):
    changes = {"model.architecture": "decoder", "model.source_attention": kind}
    config = config_lib.replace(translator.config, changes)
    model: Any = models.build(config.model, config.data.vocab_size)
    mesh = sharding.make_mesh(config.mesh)
    params = random_parameters.of(model)
    alone = translator_lib.Translator(model, params, translator.tokenizer, config, mesh)
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    reference = Recording(exact, config.model)
    ids = alone.tokenizer.encode([SOURCE, target])
    decoder_test.one_sequence(reference, *ids, full=kind == "full")
    (maps,) = attention_weights.collect(alone, SOURCE, target)
    assert maps.kind == "joint"
    np.testing.assert_allclose(maps.weights, reference.weights, rtol=1e-3, atol=1e-5)
    source, rest = len(ids[0]) + 1, len(ids[1])
    assert maps.rows[:source] == maps.columns[:source]
    assert maps.columns[source] == "<s>"
    assert maps.rows[source : source + rest] == maps.columns[source + 1 :]
    assert maps.rows[-1] == "</s>"
    short = {"model.position": "learned", "model.max_positions": source + rest}
    alone.config = config_lib.replace(config, short)
    with pytest.raises(errors.UserError, match=r"the pair has \d+ tokens, but"):
        attention_weights.collect(alone, SOURCE, target)
    enough = {**short, "model.max_positions": source + rest + 1}
    alone.config = config_lib.replace(config, enough)
    assert attention_weights.collect(alone, SOURCE, target)


def test_a_language_model_has_a_map_of_its_text_alone(translator):
    changes = {"model.architecture": "decoder", "data.corpus": "text", "data.source_language": ""}
    config = config_lib.replace(translator.config, changes)
    model: Any = models.build(config.model, config.data.vocab_size)
    params = random_parameters.of(model)
    alone = translator_lib.Translator(
        model, params, translator.tokenizer, config, sharding.make_mesh(config.mesh)
    )
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    reference = Recording(exact, config.model)
    decoder_test.one_sequence(reference, [], alone.tokenizer.encode([TARGET])[0], full=False)
    (maps,) = attention_weights.collect(alone, None, TARGET)
    np.testing.assert_allclose(maps.weights, reference.weights, rtol=1e-3, atol=1e-5)
    assert maps.columns[:2] == ["</s>", "<s>"]
    for wrong in ((SOURCE, TARGET, ""), (None, None, ""), (SOURCE, None, ""), (None, TARGET, "fr")):
        with pytest.raises(errors.UserError, match="reads no source: give --target alone"):
            attention_weights.collect(alone, *wrong)


def test_the_tag_is_that_of_the_requested_language(translator):
    translator.config = config_lib.replace(translator.config, {"data.directions": "en-de,de-en"})
    translator.translate = lambda sentences, to: [f"{to}."]
    encoder, decoder, _ = attention_weights.collect(translator, SOURCE, to="en")
    assert encoder.rows[0] == "<2en>"
    assert "".join(decoder.rows) == "_en.</s>"
    with pytest.raises(errors.UserError, match="translates into de and en, not into fr"):
        attention_weights.collect(translator, SOURCE, to="fr")


def test_a_row_is_the_token_that_is_predicted(translator):
    encoder, decoder, cross = attention_weights.collect(translator, SOURCE, TARGET)
    assert "".join(encoder.rows[:2]).startswith("_The")
    assert encoder.rows == encoder.columns == cross.columns
    assert decoder.rows == cross.rows
    assert encoder.rows[-1] == decoder.rows[-1] == "</s>"
    assert "".join(decoder.rows[:-1]) == "_" + TARGET.replace(" ", "_")
    assert decoder.columns == ["<s>", *decoder.rows[:-1]]


class Attention(nn.Module):
    number: int

    @nn.compact
    def __call__(self, shape):
        self.sow("intermediates", "weights", jnp.full((1, 1, *shape), self.number))
        self.sow("intermediates", "logits", jnp.zeros((1, 1, *shape)))


class Other(interface.Architecture):
    """An architecture whose modules sow attention weights."""

    layers: int

    @nn.compact
    def __call__(self, source, target, rates=dropout.NONE):
        del rates
        shape = target.tokens.shape[1], source.tokens.shape[1]
        for n in range(self.layers):
            Attention(n, name=f"block_{n}")(shape)
        return jnp.zeros((*target.tokens.shape, 5))


def test_any_architecture_that_sows_its_weights_has_maps_in_the_order_of_its_layers(translator):
    config = translator.config.model
    translator.model = Other(config, 5, 12)
    (maps,) = attention_weights.collect(translator, SOURCE, TARGET)
    assert maps.kind == "cross"
    np.testing.assert_array_equal(maps.weights[:, 0, 0, 0], range(12))
    batch = batching.fill([[([5], [6, 7])]], 2, 3)
    sown = attention_weights.sown(Other(config, 5, 2), translator.params, batch)
    assert list(sown) == ["block_0/0", "block_1/0"]


def test_inputs_without_maps_are_refused(translator):
    def complaint(source, target):
        with pytest.raises(errors.UserError) as error:
            attention_weights.collect(translator, source, target)
        return str(error.value)

    assert complaint(None, TARGET) == "no sentence is given: give --source"
    assert complaint(" ", TARGET) == "the source sentence is empty"
    assert complaint(SOURCE, "") == "the target sentence is empty"
    translator.translate = lambda sentences, to: [""]
    assert complaint(SOURCE, None).endswith("is empty: give --target")
    translator.model = Other(translator.config.model, 5, 0)
    assert complaint(SOURCE, TARGET) == "model.architecture=transformer has no attention to show"
    translator.config = config_lib.replace(
        translator.config, {"model.position": "learned", "model.max_positions": 30}
    )
    assert re.search(r"target sentence has \d+ tokens.* at most 29", complaint("a", "x " * 30))


def test_figures_stay_within_bounds_and_accept_any_character(monkeypatch):
    weights = np.full((1, 3, 1, 4), 1 / 4, np.float32)
    maps = attention_weights.Maps("cross", weights, ["$x$"], ["\u4f60", "$\\a$", "</s>", "\t"])

    def size():
        return image_lib.imread(io.BytesIO(heat_maps.png(maps))).shape[:2]

    height, width = size()
    monkeypatch.setattr(heat_maps, "MOST_DOTS", height * width / 4)
    np.testing.assert_allclose(size(), (height / 2, width / 2), atol=1)
    monkeypatch.setattr(heat_maps, "LONGEST_SIDE", width / 3)
    np.testing.assert_allclose(size(), (height / 3, width / 3), atol=1)


def test_the_command_writes_figures(server, workdir, tmp_path):
    command = [
        *(sys.executable, "-W", "error"),
        *("-W", "ignore:the load_module:DeprecationWarning"),  # of ml_collections
        *("-m", "transformer_jax.attention_maps", f"--workdir={workdir}"),
        *(f"--source={SOURCE}", f"--target={TARGET}", f"--output={tmp_path}"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=server.environment
    )
    assert done.returncode == 0, done.stderr
    names = ["encoder.png", "decoder.png", "cross.png"]
    assert done.stdout.splitlines() == [str(tmp_path / name) for name in names]
    for name in names:
        picture = image_lib.imread(tmp_path / name)
        assert picture.min() < 0.3 < picture.max()
