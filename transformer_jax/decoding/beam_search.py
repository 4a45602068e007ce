"""Greedy and beam search over models that decode step by step (section 6.1 of the paper).

Beam search keeps the W best open hypotheses of each sentence, and its best finished one. The score
of a finished hypothesis Y is log P(Y) / penalty(|Y|), where |Y| counts EOS.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from transformer_jax import config as config_lib
from transformer_jax import fields, sequences
from transformer_jax.data import tokenizer
from transformer_jax.distributed import sharding
from transformer_jax.models import interface

STEPS_AT_A_TIME = 4  # steps between two checks of which sentences are decided
# Once at most one row in SHRINK is undecided, decided rows are dropped, down to FEWEST_ROWS rows:
# each number of rows is compiled separately.
SHRINK, FEWEST_ROWS = 4, 16
# Positions of the caches beyond the source's length, until a translation needs more. Each step
# reads the whole cache; each size is compiled separately.
HEADROOM = 8
CHUNK = 128  # most neighbouring logits of a chunk of `_greatest`

Penalty = Callable[[Float[Array, "..."], float], Float[Array, "..."]]

PENALTIES: dict[str, Penalty] = {
    # Wu et al. 2016, equation 14; used by the paper.
    "gnmt": lambda length, alpha: ((5 + length) / 6) ** alpha,
    # Used by fairseq, Marian, CTranslate2 and Hugging Face; an alpha is not comparable to gnmt's.
    "length": lambda length, alpha: length**alpha,
}


class Translations(NamedTuple):
    """The best translation of each sentence, and its score.

    If no hypothesis of a sentence ends with EOS within the length limit, the translation is the
    best open hypothesis, without EOS. It is scored in the same way.
    """

    tokens: Int[Any, "B L"]  # up to and including EOS; 0 after it
    scores: Float[Any, "B"]  # penalised log-probabilities


class _Beam(NamedTuple):
    """The state of the search: the open hypotheses and the best finished one of each sentence.

    A hypothesis is finished if it ends with EOS, and open otherwise. Open hypotheses are sorted by
    score, best first.
    """

    step: Int[Array, ""]  # number of tokens of each open hypothesis
    limits: Int[Array, "B"]  # most tokens of a hypothesis, EOS included
    tokens: Int[Array, "B W L"]
    scores: Float[Array, "B W"]  # log-probabilities, not penalised
    best_tokens: Int[Array, "B L"]
    best_score: Float[Array, "B"]  # penalised
    model_state: interface.DecodingState


@final
class BeamSearch:
    """A function that translates source sentences, given a model's parameters.

    Each row of the source holds one sentence. A translation has at most config.extra_tokens more
    tokens than its source. The programs of the search are compiled for each shape of the source.

    The search runs a few steps at a time. A sentence is decided when no open hypothesis can become
    better than the sentence's best finished hypothesis. Between steps, the rows of decided
    sentences may be dropped.
    """

    def __init__(
        self,
        model: interface.Decoder,
        config: config_lib.DecodeConfig,
        mesh: jax.sharding.Mesh | None = None,
        *,
        one_core: bool = False,
        vocab_size: int | None = None,
    ) -> None:
        """Prepares the search without compiling it.

        Args:
          model: the model.
          config: the sizes of the search, and its length penalty.
          mesh: devices that sentences are sharded over; None: the default device. Every process
            gets all translations.
          one_core: whether a search uses only one core of a CPU, so that several searches can run
            in parallel.
          vocab_size: translations consist of the ids below this number; None: of all ids.

        Raises:
          UserError: the length penalty is unknown.
        """
        self._model, self._config, self._vocab_size = model, config, vocab_size
        self._penalty = fields.lookup("decode.penalty", config.penalty, PENALTIES)
        self._mesh = mesh
        self._parts = sharding.batch_shards(mesh) if mesh else 1
        # With a beam of one, the single best continuation is greedy search.
        self._continuations = 2 * config.beam_size if config.beam_size > 1 else 1
        # All programs return beams with the same sharding, so that none is compiled twice.
        rows: Any = sharding.batch_sharding(mesh) if mesh else None
        # Replicated, because every host reads all sentences.
        everywhere: Any = sharding.replicated(mesh) if mesh else None
        beam = _Beam(everywhere, rows, rows, rows, rows, rows, rows)
        options = {"xla_cpu_multi_thread_eigen": False} if one_core else None
        compiled = functools.partial(jax.jit, compiler_options=options)
        self._start = compiled(self._first, out_shardings=beam)
        self._run = compiled(
            self._several_steps, donate_argnums=1, out_shardings=(beam, everywhere, everywhere)
        )
        self._keep = compiled(_rows, out_shardings=beam)
        self._lengthen = compiled(_lengthened, out_shardings=beam)

    def __call__(self, params: Any, source: sequences.Sequences) -> Translations:
        beam = self._start(params, source)
        batch, _, length = beam.tokens.shape
        room = self._room(source)
        translations = Translations(
            np.zeros((batch, length), np.int32), np.zeros(batch, np.float32)
        )
        sentences = np.arange(batch)  # index of each row's sentence; -1: the row is decided
        for end in itertools.count(STEPS_AT_A_TIME, STEPS_AT_A_TIME):
            if room < min(end, length):
                beam, room = self._lengthen(beam), length
            beam, is_open, best = self._run(params, beam)
            done = ~np.asarray(is_open) & (sentences >= 0)
            for all_rows, rows in zip(translations, best, strict=True):
                all_rows[sentences[done]] = np.asarray(rows)[done]
            sentences = np.where(done, -1, sentences)
            left = np.flatnonzero(sentences >= 0)
            if not len(left):
                break
            fewer = max(FEWEST_ROWS, -(-len(sentences) // SHRINK))
            fewer = -(-fewer // self._parts) * self._parts
            if len(left) <= fewer < len(sentences):
                rows = np.resize(left, fewer)
                sentences = np.where(np.arange(fewer) < len(left), sentences[rows], -1)
                beam = self._keep(beam, rows)
        return translations

    def _room(self, source: sequences.Sequences) -> int:
        """Returns the number of target positions for which the first caches have room.

        It is the source's length plus HEADROOM, rounded up to a multiple of STEPS_AT_A_TIME, but at
        most the length of the longest possible translation.
        """
        length = source.tokens.shape[1]
        room = -(-(length + HEADROOM) // STEPS_AT_A_TIME) * STEPS_AT_A_TIME
        return min(room, length + self._config.extra_tokens)

    def _first(self, params: Any, source: sequences.Sequences) -> _Beam:
        batch, source_length = source.tokens.shape
        width, length = self._config.beam_size, source_length + self._config.extra_tokens
        with sharding.activation_rules(self._mesh):
            room = self._room(source)
            state: Any = self._model.apply(params, source, width, room, method="prefill")
        return _Beam(
            jnp.zeros((), jnp.int32),
            (source.segments > 0).sum(axis=1) + self._config.extra_tokens,
            jnp.zeros((batch, width, length), jnp.int32),
            jnp.full((batch, width), -jnp.inf, jnp.float32).at[:, 0].set(0.0),
            jnp.zeros((batch, length), jnp.int32),
            jnp.full(batch, -jnp.inf, jnp.float32),
            state,
        )

    def _penalised(
        self, scores: Float[Array, "*B"], lengths: Int[Array, "*#B"]
    ) -> Float[Array, "*B"]:
        return scores / self._penalty(lengths.astype(jnp.float32), self._config.alpha)

    def _searching(self, beam: _Beam) -> Bool[Array, "B"]:
        # Log-probabilities only decrease, and the penalty grows with length, so that an open
        # hypothesis can at best keep its log-probability and end at the limit.
        bound = self._penalised(beam.scores[:, 0], beam.limits)
        return (beam.step < beam.limits) & (bound > beam.best_score)

    def _several_steps(
        self, params: Any, beam: _Beam
    ) -> tuple[_Beam, Bool[Array, "B"], Translations]:
        """Runs up to STEPS_AT_A_TIME steps of the search, fewer if all sentences are decided.

        Returns:
          The beam, a mask of the undecided sentences, and each sentence's best translation so far.
        """
        end = beam.step + STEPS_AT_A_TIME
        beam = jax.lax.while_loop(
            lambda beam: (beam.step < end) & jnp.any(self._searching(beam)),
            lambda beam: self._one_step(params, beam),
            beam,
        )
        none_ended = jnp.isneginf(beam.best_score)
        cut_off = self._penalised(beam.scores[:, 0], beam.limits)
        best = Translations(
            jnp.where(none_ended[:, None], beam.tokens[:, 0], beam.best_tokens),
            jnp.where(none_ended, cut_off, beam.best_score),
        )
        return beam, self._searching(beam), best

    def _one_step(self, params: Any, beam: _Beam) -> _Beam:
        width = beam.scores.shape[1]
        last = jnp.where(beam.step > 0, beam.tokens[:, :, beam.step - 1], tokenizer.BOS)
        with sharding.activation_rules(self._mesh):
            decoded: Any = self._model.apply(
                params, last, beam.step, beam.model_state, method="decode_step"
            )
        logits, model_state = decoded
        # At most W of 2W continuations end here, so that W stay open.
        top_scores, parents, tokens = _continuations(
            beam.scores, logits[..., : self._vocab_size], self._continuations
        )
        hypotheses = jnp.take_along_axis(beam.tokens, parents[:, :, None], axis=1)
        hypotheses = hypotheses.at[:, :, beam.step].set(tokens)
        ended = tokens == tokenizer.EOS

        undecided = self._searching(beam)
        finished = jnp.where(
            ended & undecided[:, None], self._penalised(top_scores, beam.step + 1), -jnp.inf
        )
        winner = finished.argmax(axis=1)
        score = jnp.take_along_axis(finished, winner[:, None], axis=1)[:, 0]
        better = score > beam.best_score
        winner_tokens = jnp.take_along_axis(hypotheses, winner[:, None, None], axis=1)[:, 0]

        open_scores, chosen = jax.lax.top_k(jnp.where(ended, -jnp.inf, top_scores), width)
        # Decided sentences keep their hypotheses.
        open_tokens = jnp.take_along_axis(hypotheses, chosen[:, :, None], axis=1)
        return _Beam(
            beam.step + 1,
            beam.limits,
            jnp.where(undecided[:, None, None], open_tokens, beam.tokens),
            jnp.where(undecided[:, None], open_scores, beam.scores),
            jnp.where(better[:, None], winner_tokens, beam.best_tokens),
            jnp.where(better, score, beam.best_score),
            model_state.select(jnp.take_along_axis(parents, chosen, axis=1)),
        )


def _continuations(
    scores: Float[Array, "B W"], logits: Float[Array, "B W V"], number: int
) -> tuple[Float[Array, "B M"], Int[Array, "B M"], Int[Array, "B M"]]:
    """Returns the best continuations of each sentence's hypotheses by one token.

    Args:
      scores: log-probabilities of the hypotheses.
      logits: logits of the next token of each hypothesis.
      number: the number M of continuations of each sentence.

    Returns:
      For each continuation, its log-probability, the index of the hypothesis that it continues, and
      its new token.
    """
    logits = logits.astype(jnp.float32)
    # A sentence's best continuations are among the best continuations of each of its hypotheses,
    # which logits alone determine.
    each = min(number, logits.shape[-1])
    best, tokens = _greatest(logits, each)
    normaliser = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    all_scores = (scores[:, :, None] + best - normaliser).reshape(len(scores), -1)
    top, indices = jax.lax.top_k(all_scores, number)
    tokens = jnp.take_along_axis(tokens.reshape(len(scores), -1), indices, axis=1)
    return top, indices // each, tokens


def _greatest(
    x: Float[Array, "*B V"], number: int
) -> tuple[Float[Array, "*B M"], Int[Array, "*B M"]]:
    """Returns the values and indices of the M greatest elements, as `jax.lax.top_k` does.

    The M greatest elements are in the M chunks with the greatest maxima. The function finds these
    chunks first, and then searches only them. On a CPU, this takes a half to a quarter of the time
    of `top_k`. On a TPU, it avoids that `top_k` sorts all elements.
    """
    *batch, size = x.shape
    # Chunks that divide the size evenly save a CPU a slow copy.
    chunk = next((n for n in range(CHUNK, CHUNK // 2, -1) if size % n == 0), CHUNK)
    chunks = -(-size // chunk)
    if chunks <= 2 * number:
        best, indices = jax.lax.top_k(x, number)
        return best, indices
    widths = [(0, 0)] * len(batch) + [(0, chunks * chunk - size)]
    parts = jnp.pad(x, widths, constant_values=-jnp.inf).reshape(*batch, chunks, chunk)
    _, chosen = jax.lax.top_k(parts.max(axis=-1), number)
    chosen = jnp.sort(chosen)  # so that equal elements keep their order
    few = jnp.take_along_axis(parts, chosen[..., None], axis=-2).reshape(*batch, -1)
    best, indices = jax.lax.top_k(few, number)
    return best, jnp.take_along_axis(chosen, indices // chunk, axis=-1) * chunk + indices % chunk


def _rows(beam: _Beam, rows: Int[Array, "B"]) -> _Beam:
    """Returns the beam with only the given rows."""
    of_sentences = beam._replace(step=None)
    return jax.tree.map(lambda x: x[rows], of_sentences)._replace(step=beam.step)


def _lengthened(beam: _Beam) -> _Beam:
    """Returns the beam with caches extended to the length of the longest possible translation."""
    return beam._replace(model_state=beam.model_state.lengthened(beam.tokens.shape[2]))
