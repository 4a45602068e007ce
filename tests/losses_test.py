"""Losses against explicit distributions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer_jax.training import losses


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_loss_is_cross_entropy_with_the_smoothed_distribution(smoothing):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 3, 5)) * 3
    labels = rng.integers(0, 5, (2, 3))
    labels[0, 1] = 0  # which is PAD
    segments = np.array([[1, 1, 2], [1, 0, 0]])
    smoothed = true = 0.0
    counted = [(b, t) for b, t in np.argwhere(segments) if labels[b, t]]
    for b, t in counted:
        log_p = logits[b, t] - np.log(np.exp(logits[b, t]).sum())
        q = np.full(5, smoothing / 5)
        q[labels[b, t]] += 1 - smoothing
        smoothed -= (q * log_p).sum()
        true -= log_p[labels[b, t]]
    found = losses.cross_entropy(
        jnp.asarray(logits), jnp.eye(5), jnp.asarray(labels), jnp.asarray(segments), smoothing
    )
    np.testing.assert_allclose(found, [smoothed, true, len(counted)], rtol=1e-5)


@pytest.mark.parametrize("chunks", [1, 3])
def test_negative_log_likelihoods_are_optaxs_where_there_is_a_label(chunks):
    keys = jax.random.split(jax.random.key(0), 3)
    outputs = jax.random.normal(keys[0], (6, 4, 8))
    matrix = jax.random.normal(keys[1], (11, 8))
    labels = jax.random.randint(keys[2], (6, 4), 0, 11)
    segments = jnp.arange(24).reshape(6, 4) % 5
    found = losses.negative_log_likelihoods(outputs, matrix, labels, segments, chunks)
    logits = jnp.einsum("BTD,VD->BTV", outputs, matrix)
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    expected = jnp.where((segments > 0) & (labels > 0), expected, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chunks", [1, 2, 6])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_chunks_have_the_loss_and_gradients_of_all_logits_at_once(chunks, dtype):
    keys = jax.random.split(jax.random.key(0), 3)
    outputs = jax.random.normal(keys[0], (6, 4, 8)).astype(dtype)
    matrix = jax.random.normal(keys[1], (11, 8))
    labels = jax.random.randint(keys[2], (6, 4), 0, 11)
    segments = jnp.arange(24).reshape(6, 4) % 5

    def found(outputs, matrix):
        return losses.cross_entropy(outputs, matrix, labels, segments, 0.1, chunks).smoothed / 7

    def expected(outputs, matrix):
        rounded = matrix.astype(dtype).astype(jnp.float32)
        logits = jnp.einsum("BTD,VD->BTV", outputs.astype(jnp.float32), rounded)
        log_p = jax.nn.log_softmax(logits)
        smoothed = optax.smooth_labels(jax.nn.one_hot(labels, 11), 0.1)
        return -jnp.sum(smoothed * log_p, where=((segments > 0) & (labels > 0))[..., None]) / 7

    (a, gradients), (b, slopes) = (
        jax.jit(jax.value_and_grad(each, argnums=(0, 1)))(outputs, matrix)
        for each in (found, expected)
    )
    np.testing.assert_allclose(a, b, rtol=1e-5)
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    for gradient, slope in zip(gradients, slopes, strict=True):
        assert gradient.dtype == slope.dtype
        np.testing.assert_allclose(
            gradient.astype(np.float32), slope.astype(np.float32), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("columns", [1, 2, 5, 9])
def test_sparse_cross_entropy_has_the_loss_and_gradients_of_all_positions(columns):
    rng = np.random.default_rng(0)
    outputs, matrix = jnp.asarray(rng.normal(size=(4, 9, 8))), jnp.asarray(rng.normal(size=(11, 8)))
    segments = jnp.asarray(rng.integers(0, 3, (4, 9)))

    def few(outputs, matrix, labels):
        found = losses.sparse_cross_entropy(outputs, matrix, labels, segments, 0.1, columns)
        return found.smoothed / 7, found

    def all_positions(outputs, matrix, labels):
        found = losses.cross_entropy(outputs, matrix, labels, segments, 0.1)
        return found.smoothed / 7, found

    both = [
        jax.jit(jax.value_and_grad(each, argnums=(0, 1), has_aux=True))
        for each in (few, all_positions)
    ]
    for share in (0.0, 0.2, 1.0):
        labels = np.where(rng.random((4, 9)) < share, rng.integers(1, 11, (4, 9)), 0)
        labels[0] = rng.integers(1, 11, 9) if share else 0  # one row asks for all
        found, expected = (jax.tree.leaves(each(outputs, matrix, labels)) for each in both)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("most", "computed"), [(0, 0), (1, 1), (2, 1), (3, 2), (12, 6)])
def test_sparse_cross_entropy_computes_only_the_logits_of_the_fullest_row(
    monkeypatch, most, computed
):
    calls = []
    of_rows = losses._of_rows

    def counted(*arguments):
        jax.debug.callback(lambda: calls.append(1))
        return of_rows(*arguments)

    monkeypatch.setattr(losses, "_of_rows", counted)
    labels = np.zeros((3, 12), int)
    labels[1, 12 - most :] = 5
    whole = jnp.ones((3, 12), int)
    rest = jnp.asarray(labels), whole, 0.1, 2
    losses.sparse_cross_entropy(jnp.ones((3, 12, 8)), jnp.eye(11, 8), *rest)
    jax.effects_barrier()
    assert len(calls) == computed


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_columns_are_small_enough(platform):
    assert losses.columns(36, 58, 1000, platform) == {"cpu": 4, "gpu": 15}[platform]
    limit = losses.CHUNK_BYTES.get(platform, losses.LARGE_CHUNK_BYTES)
    rows, vocabulary = 700, 37_000
    found = losses.columns(rows, 256, vocabulary, platform)
    assert (
        found == 1 or 4 * rows * found * vocabulary <= limit < 4 * rows * (found + 1) * vocabulary
    )


@pytest.mark.parametrize("chunks", [1, 2, 3, 6])
@pytest.mark.parametrize("differentiate", [False, True])
def test_logits_are_computed_one_chunk_at_a_time(chunks, differentiate):
    def loss(outputs):
        whole = jnp.ones((6, 4), jnp.int32)
        return losses.cross_entropy(outputs, jnp.eye(11, 8), whole, whole, 0.1, chunks).smoothed

    function = jax.grad(loss) if differentiate else loss
    shapes = shapes_in(jax.make_jaxpr(function)(jnp.ones((6, 4, 8))).jaxpr)
    logits = [shape for shape in shapes if len(shape) == 3 and shape[-1] == 11]
    assert max(logits, key=math.prod) == (6 // chunks, 4, 11)


def shapes_in(jaxpr):
    """Returns the shapes of all arrays of a program, including those in loops and calls."""
    found = {variable.aval.shape for equation in jaxpr.eqns for variable in equation.outvars}
    for equation in jaxpr.eqns:
        for inner in jax.tree.leaves(equation.params, is_leaf=is_jaxpr):
            if is_jaxpr(inner):
                found |= shapes_in(getattr(inner, "jaxpr", inner))
    return found


def is_jaxpr(x):
    return hasattr(x, "eqns") or hasattr(x, "jaxpr")


def test_an_accelerators_chunks_are_large_but_a_small_part_of_its_memory():
    rows, length, vocabulary = 96, 256, 37_000  # about 25,000 target tokens
    found = losses.chunks(rows, length, vocabulary, "tpu")
    megabytes = 4 * rows * length * vocabulary / found / 10**6
    assert 250 < megabytes < 16_000 / 8  # of 16 GB at least


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize(
    ("rows", "length", "vocabulary"), [(96, 256, 37_000), (10, 40, 800), (7, 64, 9**5)]
)
def test_chunks_are_few_and_small_enough(platform, rows, length, vocabulary):
    limit = losses.CHUNK_BYTES.get(platform, losses.LARGE_CHUNK_BYTES)
    found = losses.chunks(rows, length, vocabulary, platform)
    assert rows % found == 0
    fits = [
        n
        for n in range(1, rows + 1)
        if rows % n == 0 and 4 * rows * length * vocabulary <= n * limit
    ]
    assert found == min(fits, default=rows)
