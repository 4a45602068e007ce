"""The whole convolutional model against the equations of Gehring et al. 2017, in NumPy."""

import jax
import numpy as np

from tests import random_parameters, recurrent_test, reference_test
from transformer_jax import models
from transformer_jax.data import batching

SOURCE, TARGET, SIZE = [5, 9, 31, 7, 22], [12, 8, 33], 3
dense = recurrent_test.dense


def convolved(x, p, first):
    """Convolves SIZE neighbours from offset `first`, zeros beyond x, with a gated linear unit."""
    found = []
    for t in range(len(x)):
        places = [t + first + offset for offset in range(SIZE)]
        taps = [x[s] if 0 <= s < len(x) else np.zeros_like(x[0]) for s in places]
        value, gate = np.split(dense(np.concatenate(taps), p["kernel"]), 2)
        found.append(value * recurrent_test.sigmoid(gate))
    return np.array(found)


def gehring(p, source, target):
    """Section 3 of the paper for two layers, from their embeddings: sums times sqrt(0.5)."""
    half = np.sqrt(0.5)
    keys = source
    for n in range(2):
        keys = (convolved(keys, p[f"encoder_{n}"], -1) + keys) * half
    values = (keys + source) * half
    x = target
    for n in range(2):
        h, q = convolved(x, p[f"decoder_{n}"], 1 - SIZE), p[f"attention_{n}"]
        found = []
        for t, asked in enumerate((dense(h, q["query"]) + target) * half):
            context = recurrent_test.weighted([asked @ key for key in keys], values)
            found.append((h[t] + dense(context * np.sqrt(len(keys)), q["output"])) * half)
        x = (np.array(found) + x) * half
    return x


def test_two_layers_are_the_papers(make_config):
    kind = {"model.architecture": "conv", "model.kernel_size": SIZE, "model.num_layers": 2}
    config = make_config(kind).model
    model = models.build(config, 40)
    params = random_parameters.of(model)
    batch = batching.fill([[(SOURCE, TARGET)]], len(SOURCE) + 1, len(TARGET) + 1)
    found = jax.jit(models.outputs, static_argnums=0)(model, params, batch)
    exact = jax.tree.map(lambda x: np.array(x, np.float64), params["params"])
    embed = reference_test.Reference(exact, config, reference_test.ALL).embed
    expected = gehring(exact, embed([*SOURCE, 2]), embed([1, *TARGET]))
    recurrent_test.assert_close(found[0], expected)
