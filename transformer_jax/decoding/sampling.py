"""Sampling of text token by token: greedy, from all tokens, top-k or nucleus sampling.

Each method divides the logits by a temperature, keeps the likeliest tokens and draws one of them.
The methods differ in the number of tokens that they keep.
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
    """The sampling method and its parameters."""

    method: str  # a key of METHODS
    temperature: float  # divisor of the logits
    top_k: int  # top_k: number of tokens that are kept
    top_p: float  # nucleus: least probability of the kept tokens together


Kept = Int[Array, "#*B"]
# Each method returns the number of kept tokens, given the probabilities in descending order.
METHODS: dict[str, Callable[[Float[Array, "*B V"], Drawing], Kept]] = {
    "greedy": lambda best, settings: jnp.ones(best.shape[:-1], jnp.int32),
    "all": lambda best, settings: jnp.full(best.shape[:-1], best.shape[-1]),
    # Fan et al. 2018.
    "top_k": lambda best, settings: jnp.full(best.shape[:-1], settings.top_k),
    # Holtzman et al. 2020: the fewest tokens whose probabilities sum to top_p.
    "nucleus": lambda best, settings: jnp.maximum(
        jnp.sum(jnp.cumsum(best, axis=-1) - best < settings.top_p, axis=-1), 1
    ),
}


def log_probabilities(logits: Float[Array, "*B V"], settings: Drawing) -> Float[Array, "*B V"]:
    """Returns the log-probability with which each token is drawn.

    It is minus infinity for tokens that the method does not keep. If several tokens are equally
    likely, those with lower ids are kept first.
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
    """Returns random texts that begin with a prompt, sampled from a model without a source.

    Args:
      model: the model.
      params: the model's parameters.
      prompt: the tokens that each text begins with.
      number: number of texts.
      length: most tokens of a text.
      settings: settings of sampling.
      key: key of the random numbers.
      vocab_size: tokens are drawn from the ids below this number; None: from all ids.

    Returns:
      The tokens of each text up to and including EOS, and 0 after it.
    """
    forced = jnp.pad(prompt, (0, max(length - len(prompt), 0)))[:length]
    empty = batching.fill([[((), ())]] * number, 1, 1).source
    state = model.apply(params, jax.tree.map(jnp.asarray, empty), 1, length, method="prefill")

    def one(carry: Any, step: Any) -> tuple[Any, Int[Array, "B"]]:
        tokens, ended, state = carry
        index, prompt_token = step
        logits, state = model.apply(params, tokens[:, None], index, state, method="decode_step")
        likely = log_probabilities(logits[:, 0, :vocab_size], settings)
        drawn = jax.random.categorical(jax.random.fold_in(key, index), likely)
        tokens = jnp.where(index < len(prompt), prompt_token, drawn)
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
    """Returns texts that begin with a prompt, sampled from a trained language model.

    Args:
      run: the trained model.
      prompt: the beginning of each text.
      number: number of texts.
      length: most tokens of a text.
      settings: settings of sampling.
      seed: seed of the random numbers.

    Raises:
      UserError: the method is unknown, a setting is NaN, the model has a source language, the
        prompt is too long, or `length` is more than learned positions allow.
    """
    fields.require_known("--method", settings.method, METHODS)
    for flag in ("temperature", "top_p"):
        if math.isnan(getattr(settings, flag)):
            raise errors.UserError(f"--{flag}=nan is not a number")
    model, ids = run.config.model, run.tokenizer.encode([prompt])[0]
    if run.config.data.source_language:
        raise errors.UserError(
            f"this run translates from {run.config.data.source_language}: use python -m "
            "transformer_jax.translate"
        )
    if len(ids) >= length:
        raise errors.UserError(
            f"the prompt has {len(ids)} tokens and leaves none of --tokens={length} to draw"
        )
    limit = model.max_positions - int(run.model.one_sequence)  # the source's EOS takes one
    if positions.KINDS[model.position].bounded and length > limit:
        raise errors.UserError(
            f"--tokens={length} is more than this model's learned positions allow, {limit}"
        )
    tokens = continuations(
        run.model,
        run.params,
        jnp.array(ids, jnp.int32),
        number,
        length,
        settings,
        jax.random.key(seed),
        run.tokenizer.vocab_size,
    )
    return run.tokenizer.decode(np.asarray(tokens).tolist())
