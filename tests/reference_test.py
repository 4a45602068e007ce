"""The whole model against the paper's equations, written out in NumPy."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import random_parameters
from transformer_jax import models
from transformer_jax.data import batching
from transformer_jax.models import dropout, embedding
from transformer_jax.training import losses

VOCABULARY = 40
SOURCE, TARGET = [5, 9, 31, 7], [12, 8, 33]
ALL = (1.0, 1.0, 1.0)


class Reference:
    """Section 3 of the paper for one sentence pair, in float64, from our parameters by name.

    `kept` stands for dropout of sub-layers, attention weights and feed-forwards: where it has its
    place, the values are multiplied by one less the rate.
    """

    def __init__(self, params, config, kept):
        self.params, self.config = params, config
        self.kept, self.kept_weights, self.kept_features = kept

    def dense(self, x, p):
        return x @ p["kernel"] + p.get("bias", 0)

    def norm(self, x, p):
        p = p["norm"]
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-6) * p["scale"] + p["bias"]

    def attention(self, x, memory, p, causal=False, window=0, prefix=0):
        config, heads = self.config, []
        distance = np.arange(len(x))[:, None] - np.arange(len(memory))
        hidden = (causal & (distance < 0)) | ((window > 0) & (abs(distance) > window))
        hidden[:prefix, :prefix] = False  # what comes first sees all of itself
        for head in range(config.num_heads):
            shared = head * config.key_value_heads // config.num_heads
            q, k = (slice(i * config.d_k, (i + 1) * config.d_k) for i in (head, shared))
            v = slice(shared * config.d_v, (shared + 1) * config.d_v)
            queries = self.dense(x, p["query"])[:, q]
            keys = self.dense(memory, p["key"])[:, k]
            logits = queries @ keys.T / math.sqrt(config.d_k)
            logits[hidden] = -np.inf
            weights = np.exp(logits - logits.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            weights *= self.kept_weights
            heads.append(weights @ self.dense(memory, p["value"])[:, v])
        return self.dense(np.concatenate(heads, -1), p["output"])

    def feed_forward(self, x, p):
        inner = self.dense(x, p["inner"])
        if self.config.feed_forward == "relu":
            inner = np.maximum(0, inner)
        elif self.config.feed_forward == "gelu":
            inner *= (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
        else:
            gate = self.dense(x, p["gate"])
            inner *= gate / (1 + np.exp(-gate))
        return self.dense(self.kept_features * inner, p["outer"])

    def embed(self, tokens):
        d_model = self.config.d_model
        table = np.zeros((len(tokens), d_model))
        for pos in range(len(tokens)):
            for i in range(0, d_model, 2):
                table[pos, i] = math.sin(pos / 10000 ** (i / d_model))
                table[pos, i + 1] = math.cos(pos / 10000 ** (i / d_model))
        embedded = self.params["embedding"][tokens] * math.sqrt(d_model)
        return self.kept * (embedded + table)

    def add(self, x, y, p):
        return self.norm(x + self.kept * y, p)

    def logits(self, source, target):
        window = self.config.window
        memory = self.embed([*source, 2])
        for n in range(self.config.num_layers):
            p = self.params[f"encoder_{n}"]
            y = self.attention(memory, memory, p["attention"], window=window)
            memory = self.add(memory, y, p["attention_residual"])
            y = self.feed_forward(memory, p["feed_forward"])
            memory = self.add(memory, y, p["feed_forward_residual"])
        x = self.embed([1, *target])
        for n in range(self.config.num_layers):
            p = self.params[f"decoder_{n}"]
            y = self.attention(x, x, p["self_attention"], causal=True, window=window)
            x = self.add(x, y, p["self_attention_residual"])
            y = self.attention(x, memory, p["cross_attention"])
            x = self.add(x, y, p["cross_attention_residual"])
            y = self.feed_forward(x, p["feed_forward"])
            x = self.add(x, y, p["feed_forward_residual"])
        return x @ self.params["embedding"].T

    def loss(self, source, target):
        logits = self.logits(source, target)
        normalisers = np.log(np.exp(logits).sum(-1))
        return sum(normalisers) - sum(logits[range(len(logits)), [*target, 2]])


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        ({}, (0.7, 0.8, 0.9)),
        ({"model.num_kv_heads": 2, "model.window": 1, "model.feed_forward": "gelu"}, ALL),
        ({"model.feed_forward": "swiglu"}, (0.7, 0.8, 0.9)),
    ],
    ids=str,
)
def test_logits_and_gradients_are_the_papers_equations(make_config, monkeypatch, overrides, kept):
    layers = {"model.num_layers": 1 if overrides else 2}
    config = make_config({**layers, **overrides}).model
    model = models.build(config, VOCABULARY)
    params = random_parameters.of(model)
    # Dropout replaced by a factor: where it acts then shows in the numbers.
    monkeypatch.setattr(dropout, "drop", lambda x, rate, module: (1 - rate) * x)
    batch = batching.fill([[(SOURCE, TARGET)]], len(SOURCE) + 1, len(TARGET) + 1)
    rates = dropout.Rates(*[jnp.float32(1 - factor) for factor in kept])

    def loss(params, batch):
        outputs = models.outputs(model, params, batch, rates, jax.random.key(0))
        matrix = embedding.of(params)
        total = losses.cross_entropy(outputs, matrix, batch.labels, batch.target.segments, 0.0)
        return total.smoothed, embedding.logits(matrix, outputs)

    compare = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (total, logits), gradients = compare(params, batch)
    exact = jax.tree.map(lambda x: np.array(x, np.float64), params["params"])
    reference = Reference(exact, config, kept)
    assert_close(logits[0], reference.logits(SOURCE, TARGET))
    assert_close(total, reference.loss(SOURCE, TARGET))
    rng = np.random.default_rng(0)
    for parameter, gradient in zip(*map(jax.tree.leaves, (exact, gradients)), strict=True):
        directions = [rng.choice([-1.0, 1.0], parameter.shape) for _ in range(4)]
        slopes = [slope(reference, parameter, direction) for direction in directions]
        assert_close([(gradient * direction).sum() for direction in directions], slopes)


def slope(reference, parameter, direction, step=1e-5):
    """The loss's derivative along a direction of one parameter, by central difference."""
    ends, kept = [], parameter.copy()
    for sign in (1, -1):
        parameter[...] = kept + sign * step * direction
        ends.append(reference.loss(SOURCE, TARGET))
    parameter[...] = kept
    return (ends[0] - ends[1]) / (2 * step)


def assert_close(found, expected):
    difference = np.abs(np.asarray(found) - expected).max()
    assert difference <= 1e-4 * np.abs(expected).max()


def test_weights_start_as_in_the_papers_code(make_config):
    config = make_config({"model.d_model": 256, "model.d_k": 48, "model.d_v": 40}).model
    model = models.build(config, 1000)
    params = jax.jit(lambda key: nn.unbox(models.init(model, key)))(jax.random.key(0))["params"]
    assert np.std(params["embedding"]) == pytest.approx(256**-0.5, rel=0.02)
    attention = params["decoder_1"]["cross_attention"]
    for name, shape in {
        "query": (256, 4 * 48), "key": (256, 4 * 48), "value": (256, 4 * 40), "output": (160, 256),
    }.items():  # fmt: skip
        assert set(attention[name]) == {"kernel"}
        kernel = np.asarray(attention[name]["kernel"])
        assert kernel.shape == shape
        # Glorot-uniform by this very shape: bounded by sqrt(6 / (in + out)).
        limit = math.sqrt(6 / sum(shape))
        assert 0.99 * limit < np.abs(kernel).max() <= limit
        assert kernel.std() == pytest.approx(limit / math.sqrt(3), rel=0.02)
    feed_forward = params["encoder_0"]["feed_forward"]
    assert not np.any(feed_forward["inner"]["bias"])
    assert set(params) == {
        "embedding",
        *(f"{s}_{n}" for s in ("encoder", "decoder") for n in (0, 1)),
    }
