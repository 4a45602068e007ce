"""Greedy and beam search over any model that decodes step by step (section 6.1 of the paper).

Beam search keeps the W best open hypotheses of each sentence, and its best finished one. It scores
a finished hypothesis Y by log P(Y) / penalty(|Y|), where |Y| counts the end token.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax import sequences
from transformer_jax.data import tokenizer

Penalty = Callable[[Float[Array, "..."], float], Float[Array, "..."]]

PENALTIES: dict[str, Penalty] = {
    # Wu et al. 2016, equation 14: the paper's.
    "gnmt": lambda length, alpha: ((5 + length) / 6) ** alpha,
    # fairseq, Marian, CTranslate2, Hugging Face: alpha = 0.6 means something else there.
    "length": lambda length, alpha: length**alpha,
}


class Translations(NamedTuple):
    """The best hypothesis of each sentence.

    Attributes:
      tokens: up to and including the end token; 0 after it.
      scores: its penalised log-probability; of a hypothesis cut off at the length limit, because
        the search met no end token, the log-probability so far, penalised in the same way.
    """

    tokens: Int[Array, "B L"]
    scores: Float[Array, "B"]


Search = Callable[[Any, sequences.Sequences], Translations]


def build(model: nn.Module, config: config_lib.DecodeConfig) -> Search:
    """A search as a function of the model's parameters and of source sentences, one to a row.

    It compiles once for each shape of the source. A translation has at most config.extra_tokens
    more tokens than its source.

    Raises:
      UserError: the length penalty is unknown.
    """
    penalty = config_lib.lookup("decode.penalty", config.penalty, PENALTIES)
    if config.beam_size == 1:
        return jax.jit(lambda params, source: _greedy(model, config, penalty, params, source))
    return jax.jit(lambda params, source: _beam(model, config, penalty, params, source))


class _Beam(NamedTuple):
    """Open hypotheses, best first, and the best finished one, of each sentence."""

    step: Int[Array, ""]  # tokens that each open hypothesis has
    tokens: Int[Array, "B W L"]
    scores: Float[Array, "B W"]  # log-probabilities, not penalised
    best_tokens: Int[Array, "B L"]
    best_score: Float[Array, "B"]  # penalised
    model_state: Any


def _beam(
    model: nn.Module,
    config: config_lib.DecodeConfig,
    penalty: Penalty,
    params: Any,
    source: sequences.Sequences,
) -> Translations:
    batch, source_length = source.tokens.shape
    width, length = config.beam_size, source_length + config.extra_tokens
    limits = (source.segments > 0).sum(axis=1) + config.extra_tokens  # counts the end token
    longest_penalty = penalty(limits.astype(jnp.float32), config.alpha)

    def searching(beam: _Beam) -> Bool[Array, "B"]:
        # Log-probabilities only fall, and the penalty grows with length, so an open hypothesis can
        # at best keep its log-probability and end at the limit.
        bound = beam.scores[:, 0] / longest_penalty
        return (beam.step < limits) & (bound > beam.best_score)

    def advance(beam: _Beam) -> _Beam:
        last = jnp.where(beam.step > 0, beam.tokens[:, :, beam.step - 1], tokenizer.START)
        logits, model_state = model.apply(
            params, last, beam.step, beam.model_state, method="decode_step"
        )
        scores = beam.scores[:, :, None] + jax.nn.log_softmax(logits.astype(jnp.float32))
        vocabulary = scores.shape[-1]
        # Of 2W continuations at most W end here, so W stay open.
        top_scores, top = jax.lax.top_k(scores.reshape(batch, -1), 2 * width)
        parents, words = top // vocabulary, top % vocabulary
        hypotheses = jnp.take_along_axis(beam.tokens, parents[:, :, None], axis=1)
        hypotheses = hypotheses.at[:, :, beam.step].set(words)
        ended = words == tokenizer.END

        still = searching(beam)
        penalised = top_scores / penalty((beam.step + 1).astype(jnp.float32), config.alpha)
        finished = jnp.where(ended & still[:, None], penalised, -jnp.inf)
        winner = finished.argmax(axis=1)
        score = jnp.take_along_axis(finished, winner[:, None], axis=1)[:, 0]
        better = score > beam.best_score
        winner_tokens = jnp.take_along_axis(hypotheses, winner[:, None, None], axis=1)[:, 0]

        open_scores, chosen = jax.lax.top_k(jnp.where(ended, -jnp.inf, top_scores), width)
        # A sentence that is decided or at its limit keeps the hypotheses it has.
        scores = jnp.where(still[:, None], open_scores, beam.scores)
        open_tokens = jnp.take_along_axis(hypotheses, chosen[:, :, None], axis=1)
        rows = jnp.take_along_axis(parents, chosen, axis=1) + width * jnp.arange(batch)[:, None]
        return _Beam(
            beam.step + 1,
            jnp.where(still[:, None, None], open_tokens, beam.tokens),
            scores,
            jnp.where(better[:, None], winner_tokens, beam.best_tokens),
            jnp.where(better, score, beam.best_score),
            _select(model_state, rows.reshape(-1)),
        )

    start = _Beam(
        jnp.zeros((), jnp.int32),
        jnp.zeros((batch, width, length), jnp.int32),
        jnp.full((batch, width), -jnp.inf).at[:, 0].set(0.0),
        jnp.zeros((batch, length), jnp.int32),
        jnp.full(batch, -jnp.inf),
        model.apply(params, source, width, length, method="start_decoding"),
    )
    beam = jax.lax.while_loop(lambda b: jnp.any(searching(b)), advance, start)
    none_ended = jnp.isneginf(beam.best_score)
    return Translations(
        jnp.where(none_ended[:, None], beam.tokens[:, 0], beam.best_tokens),
        jnp.where(none_ended, beam.scores[:, 0] / longest_penalty, beam.best_score),
    )


def _select(state: Any, rows: Int[Array, "N"]) -> Any:
    """The caches of chosen hypotheses; what belongs to a sentence stays as it is."""
    return state._replace(caches=jax.tree.map(lambda cache: cache[rows], state.caches))


def _greedy(
    model: nn.Module,
    config: config_lib.DecodeConfig,
    penalty: Penalty,
    params: Any,
    source: sequences.Sequences,
) -> Translations:
    """Takes the likeliest token at each step."""
    batch, source_length = source.tokens.shape
    length = source_length + config.extra_tokens
    limits = (source.segments > 0).sum(axis=1) + config.extra_tokens
    positions = jnp.arange(length)

    def is_open(index: Int[Array, ""], tokens: Int[Array, "B L"]) -> Bool[Array, "B"]:
        return (index < limits) & ~jnp.any(tokens == tokenizer.END, axis=1)

    def advance(carry: Any) -> Any:
        index, tokens, scores, state = carry
        last = jnp.where(index > 0, tokens[:, index - 1], tokenizer.START)
        logits, state = model.apply(params, last[:, None], index, state, method="decode_step")
        log_probabilities = jax.nn.log_softmax(logits[:, 0].astype(jnp.float32))
        still = is_open(index, tokens)
        word = jnp.where(still, log_probabilities.argmax(axis=-1), tokenizer.PAD)
        scores += jnp.where(still, log_probabilities.max(axis=-1), 0.0)
        return index + 1, jnp.where(positions == index, word[:, None], tokens), scores, state

    start = (
        jnp.zeros((), jnp.int32),
        jnp.zeros((batch, length), jnp.int32),
        jnp.zeros(batch),
        model.apply(params, source, 1, length, method="start_decoding"),
    )
    _, tokens, scores, _ = jax.lax.while_loop(
        lambda carry: jnp.any(is_open(carry[0], carry[1])), advance, start
    )
    lengths = (tokens != tokenizer.PAD).sum(axis=1)
    return Translations(tokens, scores / penalty(lengths.astype(jnp.float32), config.alpha))
