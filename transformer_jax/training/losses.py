"""Cross-entropy, smoothed for training and true for perplexity, and the logits that it is of.

Logits are the largest array of a training step. Here they live for a few rows at a time: their
gradients are computed beside them, and nothing of the size of the vocabulary outlives its rows.
What a teacher says (`distilled`) is not cut up: it is of all rows at once.
"""

import functools
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
# Where few positions of a row have a label, one of so many at a time at most. Several devices add
# up the embedding's gradient each time: elsewhere than on a CPU once is mostly enough.
FEW, LARGE_FEW = {"cpu": 16}, 4
# Of `distilled`.
TEMPERATURE = 2.0  # by which logits are divided, so that what is unlikely counts too
SOFT, HARD, COSINE = 5.0, 2.0, 1.0  # weights in DistilBERT's code


class Losses(NamedTuple):
    """Sums over the labels of a batch but PAD, EOS included; cross-entropies in nats."""

    # What is trained on, and alone has a gradient: with the smoothed labels, or `distilled`.
    smoothed: Float[Array, ""]
    true: Float[Array, ""]  # with the labels themselves, as in perplexity
    tokens: Float[Array, ""]  # how many there are


class Counts(NamedTuple):
    """How many positions of a batch are real, and how many of them have a label: its tokens."""

    tokens: Float[Array, ""]
    positions: Int[Array, ""]


def chunks(rows: int, length: int, vocab_size: int, platform: str) -> int:
    """In how many chunks of its rows, each of `length` positions, a device computes the logits.

    They are few enough, by the kind of device ("cpu", "gpu" or "tpu").
    """
    limit = CHUNK_BYTES.get(platform, LARGE_CHUNK_BYTES)
    row = 4 * length * vocab_size
    fitting = (
        number for number in range(1, rows) if not rows % number and rows // number * row <= limit
    )
    return next(fitting, rows)


def columns(rows: int, length: int, vocab_size: int, platform: str) -> int:
    """Of how many positions of its rows a device computes the logits, where few have a label."""
    limit = CHUNK_BYTES.get(platform, LARGE_CHUNK_BYTES)
    most = -(-length // FEW.get(platform, LARGE_FEW))
    return max(1, min(most, limit // (4 * rows * vocab_size)))


def cross_entropy(
    outputs: Float[Array, "B T D"],
    embedding: Float[Array, "V D"],
    labels: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    smoothing: Float[Array, ""] | float,
    chunks: int = 1,
) -> Losses:
    """Section 5.4: the label gets 1 - eps, and eps is spread evenly over all V classes.

    With z the logits (`models.embedding.logits`) and y the label, that is
      logsumexp(z) - (1 - eps) z_y - eps mean(z),
    which needs no distribution over the vocabulary to be written down. Its gradient for z is
      softmax(z) - (1 - eps) onehot(y) - eps / V.

    Args:
      outputs: the decoder's, at each target position.
      embedding: the matrix that turns them into logits.
      labels: the token that follows each position; PAD does not count.
      segments: 0 marks padding, which does not count either.
      smoothing: eps; 0 for perplexity.
      chunks: logits are computed for one of so many chunks of the rows at a time; a divisor of B,
        and of the rows of each device.
    """
    real, eps = _is_counted(labels, segments), jnp.asarray(smoothing, jnp.float32)
    whole = outputs, embedding, labels, real, eps
    return _cross_entropy(products.is_sharded(), chunks, False, *whole)


def cross_entropy_of_few(
    outputs: Float[Array, "B T D"],
    embedding: Float[Array, "V D"],
    labels: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    smoothing: Float[Array, ""] | float,
    columns: int,
) -> Losses:
    """`cross_entropy` in less time, where few positions of each row have a label.

    Those are moved to the front of their rows. Logits are computed for so many columns at a time,
    as often as the row with the most labels needs.
    """
    real = _is_counted(labels, segments)
    order = jnp.argsort(~real, axis=1, stable=True)
    chunks = -(-order.shape[1] // columns)

    def first(x: Any) -> Any:
        """Position i of each row as row (i % columns) chunks + i // columns: of that chunk."""
        more = x.ndim - 2
        x = jnp.take_along_axis(x, order.reshape(*order.shape, *[1] * more), axis=1)
        x = jnp.pad(x, [(0, 0), (0, chunks * columns - x.shape[1]), *[(0, 0)] * more])
        x = x.swapaxes(0, 1)
        return x.reshape(chunks, columns, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)

    eps = jnp.asarray(smoothing, jnp.float32)
    few = first(outputs), embedding, first(labels), first(real), eps
    return _cross_entropy(products.is_sharded(), chunks, True, *few)


def negative_log_likelihoods(
    outputs: Float[Array, "B T D"],
    embedding: Float[Array, "V D"],
    labels: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    chunks: int = 1,
) -> Float[Array, "B T"]:
    """Returns -log p of each label in nats; 0 where `cross_entropy` counts none.

    Arguments are those of `cross_entropy`. It has no efficient gradient.
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
    found = jax.lax.map(of_rows, tuple(split)).swapaxes(0, 1).reshape(labels.shape)
    return jnp.where(_is_counted(labels, segments), found, 0.0)


def distilled(
    hidden: Losses,
    outputs: Float[Array, "B T D"],
    matrix: Float[Array, "V D"],
    taught: Float[Array, "B T D"],
    taught_matrix: Float[Array, "V D"],
    segments: Int[Array, "B T"],
    counted: Counts,
) -> Losses:
    """A small model learns from a large one what it says (Hinton et al. 2015; Sanh et al. 2019).

    HARD loss + SOFT T² KL(teacher ‖ student, both at temperature T) + COSINE (1 - cos of both).
    Soft targets and cosine, of the vectors that logits are made of, are means over all real
    positions; the sum is as if each counted as often as hidden words do.

    Args:
      hidden: the loss of hidden words, of which the smoothed one becomes that sum.
      outputs: the student's.
      matrix: that makes them logits.
      taught: the teacher's outputs, for the same texts without dropout.
      taught_matrix: the teacher's.
      segments: 0 marks padding.
      counted: of the whole batch, of which these rows may be a part.
    """
    real = segments > 0
    ours, theirs = (
        jax.nn.log_softmax(embedding_lib.logits(each, x) / TEMPERATURE)
        for each, x in ((matrix, outputs), (taught_matrix, taught))
    )
    soft = TEMPERATURE**2 * jnp.sum(jnp.exp(theirs) * (theirs - ours), axis=-1)
    one, other = (x.astype(jnp.float32) for x in (outputs, taught))
    lengths = jnp.linalg.norm(one, axis=-1) * jnp.linalg.norm(other, axis=-1)
    apart = 1 - jnp.sum(one * other, axis=-1) / jnp.maximum(lengths, 1e-8)
    each = jnp.sum(SOFT * soft + COSINE * apart, where=real) / jnp.maximum(counted.positions, 1)
    return hidden._replace(smoothed=HARD * hidden.smoothed + counted.tokens * each)


def count(labels: Int[Array, "B T"], segments: Int[Array, "B T"]) -> Counts:
    """The counts of a batch."""
    return Counts(_is_counted(labels, segments).sum().astype(jnp.float32), (segments > 0).sum())


def _is_counted(labels: Int[Array, "B T"], segments: Int[Array, "B T"]) -> Bool[Array, "B T"]:
    """Returns True where there is a label: neither in padding nor where the label is PAD."""
    return (segments > 0) & (labels != tokenizer.PAD)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _cross_entropy(sharded: bool, chunks: int, skips: bool, *arguments: Any) -> Losses:
    return _in_chunks(False, sharded, chunks, skips, *arguments)[0]


def _backward(
    sharded: bool, chunks: int, skips: bool, gradients: Any, factors: Losses
) -> tuple[Any, ...]:
    factor, (d_outputs, d_matrix) = factors.smoothed, gradients
    return (factor * d_outputs).astype(d_outputs.dtype), factor * d_matrix.T, None, None, None


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
    """The sums and, if asked for, the first's gradients for outputs and (D V) embedding.

    A chunk without labels may be skipped.
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
        return carry, jnp.zeros_like(rows[0]) if differentiate else None

    def one_if_any(carry: Any, rows: Any) -> tuple[Any, Any]:
        return jax.lax.cond(rows[2].any(), one, none, carry, rows)

    # The embedding's gradient is summed transposed: then no logits are.
    zero = Losses(*[jnp.zeros(())] * 3), jnp.zeros(embedding.shape[::-1]) if differentiate else None
    if chunks == 1:
        (sums, d_matrix), d_outputs = one(zero, (outputs, labels, real))
        return sums, (d_outputs, d_matrix)
    # Row r belongs to chunk r % chunks: each chunk then has rows on every device.
    split = [x.reshape(-1, chunks, *x.shape[1:]).swapaxes(0, 1) for x in (outputs, labels, real)]
    (sums, d_matrix), d_outputs = jax.lax.scan(one_if_any if skips else one, zero, tuple(split))
    if differentiate:
        d_outputs = d_outputs.swapaxes(0, 1).reshape(outputs.shape)
    return sums, (d_outputs, d_matrix)


# The gradient of the smoothed loss is found with it; its factor is known only later.
_cross_entropy.defvjp(functools.partial(_in_chunks, True), _backward)


def _of_rows(
    sharded: bool, differentiate: bool, matrix: Any, rows: tuple[Any, Any, Any], eps: Any
) -> tuple[Losses, Any]:
    """The sums over some rows, and the gradient of the first for their logits."""
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
    # Compared, not looked up: the gradient of looking up is a scatter.
    return jnp.arange(logits.shape[-1]) == labels[..., None]
