"""Shared parts of parity tests: PyTorch if it is installed, pairs of parameters, a comparison.

PyTorch and Hugging Face transformers are the `parity` extra; modules that import this one are
skipped without them. Weights are copied from our model into theirs by an explicit list of pairs,
and gradients are read back by the same list.
"""

import importlib
import os
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax import models, sequences
from transformer_jax.data import batching
from transformer_jax.models import embedding, interface
from transformer_jax.training import losses


def need(name: str) -> Any:
    """A module of the `parity` extra; without it tests are skipped, but not under make parity."""
    if "PARITY" in os.environ:
        return importlib.import_module(name)
    return pytest.importorskip(name, reason="PyTorch or transformers is absent: see make parity")


torch, transformers = need("torch"), need("transformers")
torch.set_num_threads(1)

TOLERANCE = 1e-4  # largest difference, relative to the largest value of an array
VOCABULARY = 30
SMOOTHING = 0.1


class Pair(NamedTuple):
    """The same parameter in both models.

    Attributes:
      ours: its path; a kernel is (in, out) here and, as a rule, (out, in) there.
      theirs: its name.
      rows: which part of theirs, in the order of ours; theirs may hold several of ours.
      turned: whether a kernel is (out, in) there.
    """

    ours: str
    theirs: str
    rows: slice | list[int] | tuple[slice, slice] = slice(None)
    turned: bool = True


def named(tree: Any) -> dict[str, np.ndarray]:
    """Arrays by path: encoder_0/attention/query/kernel."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        "/".join(key.key for key in path).removeprefix("params/"): np.array(leaf)
        for path, leaf in leaves
    }


def copy(params: Any, theirs: Any, pairs: list[Pair], fixed: dict[str, Any]) -> None:
    """Writes our parameters into their module, and what ours lacks as `fixed` says.

    All else of theirs becomes NaN, which would show in every number.
    """
    ours = named(params)
    assert sorted(pair.ours for pair in pairs) == sorted(ours)
    parameters = dict(theirs.named_parameters())
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.fill_(torch.nan)
        for name, value in fixed.items():
            parameters[name].copy_(torch.as_tensor(value).expand_as(parameters[name]))
        for pair in pairs:
            value = _turned(pair, ours[pair.ours])
            assert parameters[pair.theirs][pair.rows].shape == value.shape, pair
            parameters[pair.theirs][pair.rows] = torch.tensor(value)


def gradients(theirs: Any, pairs: list[Pair]) -> dict[str, np.ndarray]:
    """Gradients of their parameters, by our names and in our shapes."""
    parameters = dict(theirs.named_parameters())
    return {
        pair.ours: _turned(pair, parameters[pair.theirs].grad[pair.rows].numpy()) for pair in pairs
    }


def _turned(pair: Pair, array: np.ndarray) -> np.ndarray:
    return array.T if pair.turned and pair.ours.endswith("kernel") else array


def assert_close(found: Any, expected: Any, name: str) -> None:
    """The largest difference is at most TOLERANCE of the largest expected value."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, name
    difference = np.abs(found - expected).max() / np.abs(expected).max()
    assert difference <= TOLERANCE, f"{name}: relative difference {difference}"


def assert_gradients_close(found: Any, theirs: Any, pairs: list[Pair]) -> None:
    """Every parameter of ours has their gradient."""
    ours, expected = named(found), gradients(theirs, pairs)
    assert ours.keys() == expected.keys()
    for name, gradient in ours.items():
        assert_close(gradient, expected[name], name)


def random_parameters(model: nn.Module | interface.Architecture, *inputs: Any) -> Any:
    """Initial ones with noise: norms start as the identity, biases at 0, which hides mistakes."""
    params = jax.jit(lambda key: nn.unbox(model.init(key, *inputs)))(jax.random.key(0))
    noise = iter(jax.random.split(jax.random.key(1), 1000))
    return jax.tree.map(lambda x: x + 0.1 * jax.random.normal(next(noise), x.shape), params)


def model_parameters(model: interface.Architecture) -> Any:
    """Random parameters of an encoder–decoder."""
    example = sequences.Sequences(*[jnp.zeros((1, 1), jnp.int32)] * 3)
    return random_parameters(model, example, example)


def sentence_pairs() -> list[tuple[list[int], list[int]]]:
    """Pairs of unequal lengths."""
    rng = np.random.default_rng(0)
    lengths = [(5, 7), (3, 4), (1, 2), (6, 1), (4, 9)]
    return [
        (rng.integers(4, VOCABULARY, s).tolist(), rng.integers(4, VOCABULARY, t).tolist())
        for s, t in lengths
    ]


def assert_models_agree(
    model: interface.Architecture, params: Any, theirs: Any, pairs: list[Pair]
) -> None:
    """Logits, smoothed loss and every gradient, of ours packed and of theirs padded.

    Args:
      model: an encoder–decoder of ours.
      params: its parameters, already copied.
      theirs: a module that takes source and decoder tokens, 0 where there is none.
      pairs: of parameters.
    """
    sentences = sentence_pairs()
    packed = batching.fill([sentences[:3], sentences[3:]], 14, 18)
    padded = batching.fill([[pair] for pair in sentences], 8, 11)

    def loss(params: Any, batch: sequences.Batch) -> tuple[jax.Array, jax.Array]:
        outputs, matrix = models.outputs(model, params, batch), embedding.of(params)
        segments = batch.target.segments
        total = losses.cross_entropy(outputs, matrix, batch.labels, segments, SMOOTHING)
        return total.smoothed, embedding.logits(matrix, outputs)

    compare = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (found, logits), found_gradients = compare(params, packed)
    labels = torch.tensor(padded.labels, dtype=torch.long)
    expected_logits = theirs(
        *(torch.tensor(side.tokens, dtype=torch.long) for side in (padded.source, padded.target))
    )
    expected = torch.nn.functional.cross_entropy(
        expected_logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=0,
        reduction="sum",
        label_smoothing=SMOOTHING,
    )
    expected.backward()
    real = np.asarray(logits)[packed.target.segments > 0]
    assert_close(real, expected_logits.detach().numpy()[padded.target.segments > 0], "logits")
    assert_close(found, expected.item(), "loss")
    assert_gradients_close(found_gradients, theirs, pairs)
