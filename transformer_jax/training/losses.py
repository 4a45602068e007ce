"""Losses: cross-entropy with label smoothing, and distillation.

Logits are the largest array of a training step. Cross-entropy computes them for a part of the rows
or positions at a time, together with their gradients, and never holds all of them. Distillation
computes the logits of all rows at once.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer_jax.data import tokenizer
from transformer_jax.models import embedding as embedding_lib
from transformer_jax.models import products

# Bytes of float32 logits at a time. On a CPU they stay in its cache; elsewhere they keep the device
# busy and are small beside its memory.
CHUNK_BYTES = {"cpu": 8 * 2**20}
LARGE_CHUNK_BYTES = 2**30
# A chunk of `sparse_cross_entropy` has at most one in this many positions of a row. Devices sum the
# embedding's gradient once for each chunk, so that accelerators should mostly need one chunk.
SPARSITY = {"cpu": 16}
ACCELERATOR_SPARSITY = 4
# Distillation, as in DistilBERT's code.
TEMPERATURE = 2.0
SOFT, HARD, COSINE = 5.0, 2.0, 1.0  # weights of the terms


class Losses(NamedTuple):
    """Losses in nats, summed over the labels of a batch.

    EOS counts as a label; PAD does not.
    """

    # The loss that is minimised, smoothed or distilled; the only one with a gradient.
    smoothed: Float[Array, ""]
    true: Float[Array, ""]  # cross-entropy without smoothing, as in perplexity
    tokens: Float[Array, ""]  # number of labels


class Counts(NamedTuple):
    """Counts of the positions of a batch."""

    tokens: Float[Array, ""]  # positions with a label
    positions: Int[Array, ""]  # all positions but padding


def chunks(rows: int, length: int, vocab_size: int, platform: str) -> int:
    """Returns the number of chunks of rows for which a device computes logits one after another.

    It is the smallest divisor of `rows` for which the float32 logits of a chunk take at most
    CHUNK_BYTES, or LARGE_CHUNK_BYTES on accelerators.

    Args:
      rows: rows of the device.
      length: positions of a row.
      vocab_size: logits of a position.
      platform: kind of the device: "cpu", "gpu" or "tpu".
    """
    limit = CHUNK_BYTES.get(platform, LARGE_CHUNK_BYTES)
    row_bytes = 4 * length * vocab_size
    for number in range(1, rows):
        is_divisor = rows % number == 0
        if is_divisor and rows // number * row_bytes <= limit:
            return number
    return rows


def columns(rows: int, length: int, vocab_size: int, platform: str) -> int:
    """Returns the number of positions per row in a chunk of `sparse_cross_entropy`.

    Args:
      rows: rows of the device.
      length: positions of a row.
      vocab_size: logits of a position.
      platform: kind of the device: "cpu", "gpu" or "tpu".
    """
    limit = CHUNK_BYTES.get(platform, LARGE_CHUNK_BYTES)
    most = math.ceil(length / SPARSITY.get(platform, ACCELERATOR_SPARSITY))
    return max(1, min(most, limit // (4 * rows * vocab_size)))


def cross_entropy(
    outputs: Float[Array, "B T D"],
    embedding: Float[Array, "V D"],
    labels: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    smoothing: Float[Array, ""] | float,
    chunks: int = 1,
) -> Losses:
    """Returns the cross-entropy with label smoothing (section 5.4 of the paper).

    The label has the probability 1 - eps, and eps is spread evenly over all V classes. With z the
    logits (`models.embedding.logits`) and y the label, the loss is
      logsumexp(z) - (1 - eps) z_y - eps mean(z),
    and its gradient with respect to z is
      softmax(z) - (1 - eps) onehot(y) - eps / V.

    Args:
      outputs: the model's outputs at each target position.
      embedding: the matrix that turns outputs into logits.
      labels: the label of each position; PAD does not count.
      segments: 0 marks padding, which does not count.
      smoothing: eps; 0 for perplexity.
      chunks: number of chunks of rows whose logits are computed one after another; a divisor of B
        and of the rows of each device.
    """
    real = _is_counted(labels, segments)
    eps = jnp.asarray(smoothing, jnp.float32)
    sharded = products.is_sharded()
    skips_empty_chunks = False
    return _cross_entropy(
        sharded, chunks, skips_empty_chunks, outputs, embedding, labels, real, eps
    )


def sparse_cross_entropy(
    outputs: Float[Array, "B T D"],
    embedding: Float[Array, "V D"],
    labels: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    smoothing: Float[Array, ""] | float,
    columns: int,
) -> Losses:
    """Returns the same losses as `cross_entropy`, in less time if few positions have a label.

    Labelled positions are moved to the front of their rows. Logits are computed for `columns`
    positions of all rows at a time, until the row with the most labels is done.

    Args:
      outputs: the model's outputs at each target position.
      embedding: the matrix that turns outputs into logits.
      labels: the label of each position; PAD does not count.
      segments: 0 marks padding, which does not count.
      smoothing: the probability eps that is spread over all classes; 0 for perplexity.
      columns: the number of positions, from the function `columns`.
    """
    real = _is_counted(labels, segments)
    order = jnp.argsort(~real, axis=1, stable=True)
    chunks = math.ceil(order.shape[1] / columns)

    def labelled_first(x: Any) -> Any:
        """Reorders an array (B, T, …) into rows of B positions, labelled positions first.

        Position i of all rows, in the new order, becomes row i % columns of chunk i // columns. The
        rows of all chunks are returned as one axis, in which row r belongs to chunk r % chunks, as
        `_in_chunks` expects.
        """
        further_axes = x.ndim - 2
        index_shape = order.shape + (1,) * further_axes
        ordered = jnp.take_along_axis(x, order.reshape(index_shape), axis=1)
        missing = chunks * columns - x.shape[1]
        padded = jnp.pad(ordered, [(0, 0), (0, missing)] + [(0, 0)] * further_axes)
        by_position = padded.swapaxes(0, 1)
        by_chunk = by_position.reshape(chunks, columns, *by_position.shape[1:])
        return by_chunk.swapaxes(0, 1).reshape(by_position.shape)

    eps = jnp.asarray(smoothing, jnp.float32)
    sharded = products.is_sharded()
    skips_empty_chunks = True
    return _cross_entropy(
        sharded,
        chunks,
        skips_empty_chunks,
        labelled_first(outputs),
        embedding,
        labelled_first(labels),
        labelled_first(real),
        eps,
    )


def negative_log_likelihoods(
    outputs: Float[Array, "B T D"],
    embedding: Float[Array, "V D"],
    labels: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    chunks: int = 1,
) -> Float[Array, "B T"]:
    """Returns -log p of each label in nats, and 0 at positions without a label.

    The function is not meant for training: its gradient is not efficient.

    Args:
      outputs: the model's outputs at each target position.
      embedding: the matrix that turns outputs into logits.
      labels: the label of each position; PAD does not count.
      segments: 0 marks padding, which does not count.
      chunks: number of chunks of rows whose logits are computed one after another.
    """
    matrix = embedding.astype(outputs.dtype)
    sharded = products.is_sharded()

    def of_rows(rows: tuple[Any, Any]) -> Float[Array, "_ T"]:
        outputs, labels = rows
        logits = products.multiply("BTD,VD->BTV", outputs, matrix, sharded)
        return jax.nn.logsumexp(logits, axis=-1) - jnp.sum(
            logits, axis=-1, where=_is_label(logits, labels)
        )

    # As in `_in_chunks`, each chunk has rows on every device.
    split = [x.reshape(-1, chunks, *x.shape[1:]).swapaxes(0, 1) for x in (outputs, labels)]
    nll_of_chunks = jax.lax.map(of_rows, tuple(split))
    nll = nll_of_chunks.swapaxes(0, 1).reshape(labels.shape)
    return jnp.where(_is_counted(labels, segments), nll, 0.0)


def distillation(
    hard: Losses,
    outputs: Float[Array, "B T D"],
    matrix: Float[Array, "V D"],
    teacher_outputs: Float[Array, "B T D"],
    teacher_matrix: Float[Array, "V D"],
    segments: Int[Array, "B T"],
    counts: Counts,
) -> Losses:
    """Returns the loss of a model that is distilled from a teacher.

    The loss (Hinton et al. 2015; Sanh et al. 2019) is
      HARD hard + SOFT T² KL(teacher ‖ student, both at temperature T) + COSINE (1 - cos(outputs)).
    The last two terms are means over all positions but padding, multiplied by the number of labels.

    Args:
      hard: the student's cross-entropy.
      outputs: the student's outputs.
      matrix: the student's embedding.
      teacher_outputs: the teacher's outputs for the same texts, without dropout.
      teacher_matrix: the teacher's embedding.
      segments: 0 marks padding.
      counts: counts of the whole batch; `outputs` may contain only some of the batch's rows.
    """
    real = segments > 0
    log_probabilities = jax.nn.log_softmax(embedding_lib.logits(matrix, outputs) / TEMPERATURE)
    teacher_log_probabilities = jax.nn.log_softmax(
        embedding_lib.logits(teacher_matrix, teacher_outputs) / TEMPERATURE
    )
    differences = teacher_log_probabilities - log_probabilities
    soft = TEMPERATURE**2 * jnp.sum(jnp.exp(teacher_log_probabilities) * differences, axis=-1)
    x, y = outputs.astype(jnp.float32), teacher_outputs.astype(jnp.float32)
    norms = jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(y, axis=-1)
    cosine = 1 - jnp.sum(x * y, axis=-1) / jnp.maximum(norms, 1e-8)
    mean = jnp.sum(SOFT * soft + COSINE * cosine, where=real) / jnp.maximum(counts.positions, 1)
    return hard._replace(smoothed=HARD * hard.smoothed + counts.tokens * mean)


def count(labels: Int[Array, "B T"], segments: Int[Array, "B T"]) -> Counts:
    """Counts the positions of a batch that have a label, and those that are not padding."""
    tokens = _is_counted(labels, segments).sum().astype(jnp.float32)
    positions = (segments > 0).sum()
    return Counts(tokens, positions)


def _is_counted(labels: Int[Array, "B T"], segments: Int[Array, "B T"]) -> Bool[Array, "B T"]:
    """Returns a mask of the positions with a label."""
    return (segments > 0) & (labels != tokenizer.PAD)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _cross_entropy(
    sharded: bool,
    chunks: int,
    skips: bool,
    outputs: Any,
    embedding: Any,
    labels: Any,
    real: Any,
    eps: Any,
) -> Losses:
    differentiate = False
    losses, _ = _in_chunks(
        differentiate, sharded, chunks, skips, outputs, embedding, labels, real, eps
    )
    return losses


def _backward(
    sharded: bool, chunks: int, skips: bool, gradients: Any, factors: Losses
) -> tuple[Any, ...]:
    """The backward pass of `_cross_entropy`, which scales the gradients of its forward pass.

    Only the smoothed loss is differentiated.

    Args:
      sharded: not used.
      chunks: not used.
      skips: not used.
      gradients: the residuals: gradients of the smoothed loss, from `_in_chunks`.
      factors: the cotangents of the losses.

    Returns:
      The gradients of outputs and embedding, and None for labels, real and eps.
    """
    factor = factors.smoothed
    d_outputs, d_matrix = gradients
    scaled_outputs = (factor * d_outputs).astype(d_outputs.dtype)
    scaled_embedding = factor * d_matrix.T
    return scaled_outputs, scaled_embedding, None, None, None


def _in_chunks(
    differentiate: bool,
    sharded: bool,
    chunks: int,
    skips: bool,
    outputs: Any,
    embedding: Any,
    labels: Any,
    real: Any,
    eps: Any,
) -> tuple[Losses, Any]:
    """Returns the losses and, if `differentiate`, the gradients of the smoothed loss.

    The gradients are with respect to the outputs (B T D) and to the transposed embedding (D V);
    both are None unless `differentiate`. If `skips`, chunks without labels are not computed.
    """
    matrix = embedding.astype(outputs.dtype)

    def one(carry: Any, rows: Any) -> tuple[Any, Any]:
        sums, d_matrix = carry
        more, d_logits = _of_rows(sharded, differentiate, matrix, rows, eps)
        sums = jax.tree.map(jnp.add, sums, more)
        if d_logits is None:
            return (sums, None), None
        d_outputs = products.multiply("BTV,VD->BTD", d_logits, matrix, sharded, outputs.dtype)
        d_matrix += products.multiply("BTD,BTV->DV", rows[0], d_logits, sharded)
        return (sums, d_matrix), d_outputs

    def none(carry: Any, rows: Any) -> tuple[Any, Any]:
        d_outputs = jnp.zeros_like(rows[0]) if differentiate else None
        return carry, d_outputs

    def one_if_any(carry: Any, rows: Any) -> tuple[Any, Any]:
        return jax.lax.cond(rows[2].any(), one, none, carry, rows)

    # The embedding's gradient is summed transposed, so that no logits need be transposed.
    no_gradient = jnp.zeros(embedding.shape[::-1]) if differentiate else None
    no_loss = jnp.zeros(())
    zero = (Losses(no_loss, no_loss, no_loss), no_gradient)
    if chunks == 1:
        (sums, d_matrix), d_outputs = one(zero, (outputs, labels, real))
        return sums, (d_outputs, d_matrix)
    # Row r belongs to chunk r % chunks, so that each chunk has rows on every device.
    split = [x.reshape(-1, chunks, *x.shape[1:]).swapaxes(0, 1) for x in (outputs, labels, real)]
    (sums, d_matrix), d_outputs = jax.lax.scan(one_if_any if skips else one, zero, tuple(split))
    if differentiate:
        d_outputs = d_outputs.swapaxes(0, 1).reshape(outputs.shape)
    return sums, (d_outputs, d_matrix)


# The gradient is computed together with the loss; `_backward` multiplies it by its factor.
_cross_entropy.defvjp(functools.partial(_in_chunks, True), _backward)


def _of_rows(
    sharded: bool, differentiate: bool, matrix: Any, rows: tuple[Any, Any, Any], eps: Any
) -> tuple[Losses, Any]:
    """Returns the losses of some rows, and the gradient of the smoothed loss.

    The gradient is with respect to the rows' logits; it is None unless `differentiate`.
    """
    outputs, labels, real = rows
    logits = products.multiply("BTD,VD->BTV", outputs, matrix, sharded)
    highest = logits.max(axis=-1, keepdims=True)
    exponentials = jnp.exp(logits - highest)
    total = exponentials.sum(axis=-1, keepdims=True)
    is_label = _is_label(logits, labels)
    label = jnp.sum(logits, axis=-1, where=is_label)
    true = (jnp.log(total) + highest)[..., 0] - label
    smoothed = true + eps * (label - logits.mean(axis=-1))
    tokens = jnp.sum(real, dtype=jnp.float32)
    sums = Losses(jnp.sum(smoothed, where=real), jnp.sum(true, where=real), tokens)
    if not differentiate:
        return sums, None
    d_logits = exponentials / total - jnp.where(is_label, 1 - eps, 0) - eps / logits.shape[-1]
    return sums, jnp.where(real[..., None], d_logits, 0).astype(outputs.dtype)


def _is_label(logits: Float[Array, "B T V"], labels: Int[Array, "B T"]) -> Bool[Array, "B T V"]:
    # A comparison, because the gradient of indexing is a scatter.
    return jnp.arange(logits.shape[-1]) == labels[..., None]
