"""What a model of whole texts, which writes none, is worth on held-out sentences.

That is the perplexity of hidden words, and how often it knows a translation from what looks like
one (`data.couples`).
"""

import functools
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array
from scipy import stats

from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import examples as examples_lib
from transformer_jax.data import objectives
from transformer_jax.distributed import sharding
from transformer_jax.evaluation import evaluators
from transformer_jax.models import embedding, interface

_log = logging.getLogger(__name__)


def perplexity(
    model: interface.Architecture,
    pairs: dataset_lib.HeldOut,
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
) -> Callable[[Any], float]:
    """exp(mean negative log-likelihood) of hidden words, as a function of the parameters.

    They are the same for every run. Where a run asks of no words, it is the perplexity of answers.
    """
    examples = examples_lib.held_out(pairs, config)
    if "words" in examples:
        return evaluators.perplexity(model, examples["words"], config.data, mesh)
    right = _right(model, examples["answers"], config, mesh)
    return lambda params: math.exp(np.mean(right(params)[1]))


def score(
    name: str,
    model: interface.Architecture,
    params: Any,
    pairs: dataset_lib.HeldOut,
    perplexity_of: Callable[[Any], float],
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
) -> dict[str, Any]:
    """Scores a model on a set: `ppl`, `eval_seconds`, and no BLEU.

    If it was trained to answer, `accuracy` has the share of right answers with its interval.
    """
    started = time.monotonic()
    found: dict[str, Any] = {"ppl": perplexity_of(params), "bleu": {}, "bleu_by_length": []}
    found["bleu_beyond_training"] = None
    examples = examples_lib.held_out(pairs, config)
    if "answers" in examples:
        right, _ = _right(model, examples["answers"], config, mesh)(params)
        found["accuracy"] = accuracy(int(right.sum()), len(right))
        share, low, high, answers = found["accuracy"].values()
        _log.info(
            f"{name}: is this the translation of that? {share:.1%} of {answers} answers right "
            f"({low:.1%} to {high:.1%})"
        )
    _log.info("%s: ppl %.3f", name, found["ppl"])
    return {**found, "eval_seconds": time.monotonic() - started}


def accuracy(right: int, answers: int) -> dict[str, float]:
    """The share of right answers, Wilson's 95% interval, and how many answers there are."""
    low, high = stats.binomtest(right, answers).proportion_ci(0.95, "wilson")
    return {"share": right / answers, "low": low, "high": high, "answers": answers}


def _right(
    model: interface.Architecture,
    examples: Sequence[objectives.Example],
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
) -> Callable[[Any], tuple[np.ndarray, np.ndarray]]:
    """Which answers are right, and the nats that each costs, as a function of the parameters.

    Of two answers it gives the likelier.
    """
    ids = np.array(objectives.answers(objectives.ids_of(config)))
    batches = evaluators.packed(examples, config.data, mesh)

    @functools.partial(jax.jit, out_shardings=sharding.replicated(mesh))
    def log_probabilities(params: Any, batch: sequences.Batch) -> Array:
        with sharding.activation_rules(mesh):
            outputs = models.outputs(model, params, batch)[:, : batch.labels.shape[1]]
            return jax.nn.log_softmax(embedding.logits(embedding.of(params)[ids], outputs))

    def measure(params: Any) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for batch in batches:
            scores = np.asarray(log_probabilities(params, sharding.put(batch, mesh)))
            for number in (0, 1):
                of_true = scores[batch.labels == ids[number]]
                found += [of_true[:, [number, 1 - number]]]
        given, other = np.concatenate(found).T
        return given > other, -given

    return measure
