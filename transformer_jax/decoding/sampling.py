"""Text drawn token by token: greedily, from all tokens, from the top k, or from the nucleus.

All are one: the model's distribution, at a temperature, is cut to its likeliest tokens, and one of
these is drawn. The ways differ in how many they keep.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from transformer_jax import errors, fields
from transformer_jax.data import batching
from transformer_jax.data import tokenizer as tokenizer_lib
from transformer_jax.decoding import translator as translator_lib
from transformer_jax.models import interface, positions


class Drawing(NamedTuple):
    """How to draw; each way reads what it needs."""

    method: str  # of METHODS
    temperature: float  # logits are divided by it, before all else
    top_k: int  # top_k: the number of tokens that are kept
    top_p: float  # nucleus: the probability that kept tokens have together, at least


Kept = Int[Array, "#*B"]
# How many tokens are kept, from their probabilities, the greatest first.
METHODS: dict[str, Callable[[Float[Array, "*B V"], Drawing], Kept]] = {
    "greedy": lambda best, settings: jnp.ones(best.shape[:-1], jnp.int32),
    "all": lambda best, settings: jnp.full(best.shape[:-1], best.shape[-1]),
    # Fan et al. 2018.
    "top_k": lambda best, settings: jnp.full(best.shape[:-1], settings.top_k),
    # Holtzman et al. 2020: the fewest tokens that together are likely enough.
    "nucleus": lambda best, settings: jnp.maximum(
        jnp.sum(jnp.cumsum(best, axis=-1) - best < settings.top_p, axis=-1), 1
    ),
}


def log_probabilities(logits: Float[Array, "*B V"], settings: Drawing) -> Float[Array, "*B V"]:
    """Of each token to be drawn; minus infinity for those that are not kept.

    Of equally likely tokens the first is kept before the others.
    """
    logits = logits.astype(jnp.float32) / settings.temperature
    order = jnp.argsort(-logits, axis=-1)  # stable
    best = jnp.take_along_axis(jax.nn.softmax(logits), order, axis=-1)
    rank = jnp.argsort(order, axis=-1)
    kept = rank < METHODS[settings.method](best, settings)[..., None]
    return jax.nn.log_softmax(jnp.where(kept, logits, -jnp.inf))


@functools.partial(jax.jit, static_argnums=(0, 3, 4, 5, 7))
def continuations(
    model: interface.Decoder,
    params: Any,
    prompt: Int[Array, "T"],
    number: int,
    length: int,
    settings: Drawing,
    key: PRNGKeyArray,
    vocab_size: int | None = None,
) -> Int[Array, "B L"]:
    """So many texts that begin with a prompt, as tokens up to and including EOS, and 0 after it.

    A text of `length` tokens is cut off there. The source is empty. Tokens are drawn from the first
    vocab_size ids; None: from all.
    """
    forced = jnp.pad(prompt, (0, max(length - len(prompt), 0)))[:length]
    empty = batching.fill([[((), ())]] * number, 1, 1).source
    state = model.apply(params, jax.tree.map(jnp.asarray, empty), 1, length, method="prefill")

    def one(carry: Any, step: Any) -> tuple[Any, Int[Array, "B"]]:
        tokens, ended, state = carry
        index, given = step
        logits, state = model.apply(params, tokens[:, None], index, state, method="decode_step")
        likely = log_probabilities(logits[:, 0, :vocab_size], settings)
        drawn = jax.random.categorical(jax.random.fold_in(key, index), likely)
        tokens = jnp.where(index < len(prompt), given, drawn)
        tokens = jnp.where(ended, tokenizer_lib.PAD, tokens)
        return (tokens, ended | (tokens == tokenizer_lib.EOS), state), tokens

    start = jnp.full(number, tokenizer_lib.BOS), jnp.zeros(number, bool), state
    return jax.lax.scan(one, start, (jnp.arange(length), forced))[1].T


def texts(
    run: translator_lib.Translator,
    prompt: str,
    number: int,
    length: int,
    settings: Drawing,
    seed: int,
) -> list[str]:
    """So many texts of a trained run that begin with a prompt, each of `length` tokens at most.

    Raises:
      UserError: a setting is unknown or no number, the run translates, or there is no room for so
        many tokens.
    """
    fields.require_known("--method", settings.method, METHODS)
    for flag in ("temperature", "top_p"):
        if math.isnan(getattr(settings, flag)):
            raise errors.UserError(f"--{flag}=nan is no number")
    model, ids = run.config.model, run.tokenizer.encode([prompt])[0]
    if run.config.data.source_language:
        raise errors.UserError(
            f"this run translates from {run.config.data.source_language}: use python -m "
            "transformer_jax.translate"
        )
    if len(ids) >= length:
        raise errors.UserError(
            f"the prompt has {len(ids)} tokens, which leaves none of --tokens={length} to be drawn"
        )
    limit = model.max_positions - int(run.model.one_sequence)  # the source's EOS stands before
    if positions.KINDS[model.position].bounded and length > limit:
        raise errors.UserError(
            f"--tokens={length} is more than this model's learned positions allow, {limit}"
        )
    found = continuations(
        run.model, run.params, jnp.array(ids, jnp.int32), number, length, settings,
        jax.random.key(seed), run.tokenizer.vocab_size,
    )  # fmt: skip
    return run.tokenizer.decode(np.asarray(found).tolist())
