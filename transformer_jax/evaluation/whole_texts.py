"""What a model of whole texts, which writes none, is worth on held-out sentences.

That is the perplexity of hidden words, and how often it tells a translation from another sentence
of equal length (`data.negatives`).
"""

import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool
from scipy import stats

from transformer_jax import config as config_lib
from transformer_jax import files, models, sequences
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.data import examples as examples_lib
from transformer_jax.data import objectives
from transformer_jax.distributed import hosts, sharding
from transformer_jax.evaluation import evaluators
from transformer_jax.models import embedding, interface

_log = logging.getLogger(__name__)


def likelihoods(
    model: interface.Architecture,
    pairs: dataset_lib.HeldOut,
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
) -> Callable[[Any], evaluators.Likelihoods]:
    """Returns a function from parameters to the likelihoods of hidden words.

    The hidden words are the same for every run. An objective without words has the likelihoods of
    its answers instead.
    """
    name, examples = next(iter(examples_lib.held_out(pairs, config).items()))
    if name != objectives.PAIR_CLASSIFICATION:
        return evaluators.likelihoods(model, examples, config.data, mesh)
    answers = _answers(model, examples, config, mesh)
    return lambda params: answers(params)[1]


def score(
    name: str,
    model: interface.Architecture,
    params: Any,
    pairs: dataset_lib.HeldOut,
    likelihoods_of: Callable[[Any], evaluators.Likelihoods],
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
    workdir: files.Path,
) -> dict[str, Any]:
    """Scores a model on a set: `ppl`, `eval_seconds`, and no BLEU.

    The first process writes nll.json as `evaluators.score` does. A model trained to answer also
    has an `accuracy`, the share of right answers with its interval.
    """
    started = time.monotonic()
    measured = likelihoods_of(params)
    if hosts.is_first():
        measured.write(workdir, name)
    found: dict[str, Any] = {"ppl": measured.perplexity, "bleu": {}, "bleu_by_length": []}
    found["bleu_beyond_training"] = None
    examples = examples_lib.held_out(pairs, config)
    if objectives.PAIR_CLASSIFICATION in examples:
        candidates = examples[objectives.PAIR_CLASSIFICATION]
        right, _ = _answers(model, candidates, config, mesh)(params)
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


def _answers(
    model: interface.Architecture,
    examples: Sequence[objectives.Example],
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
) -> Callable[[Any], tuple[Bool[np.ndarray, "examples"], evaluators.Likelihoods]]:
    """Returns a function from parameters to the right answers and the answers' likelihoods.

    A model gives the likelier of the two answers.
    """
    ids = np.array(objectives.pair_labels(objectives.ids_of(config)))
    batches = evaluators.packed(examples, config.data, mesh)

    @functools.partial(jax.jit, out_shardings=sharding.replicated(mesh))
    def log_probabilities(params: Any, batch: sequences.Batch) -> Array:
        with sharding.activation_rules(mesh):
            outputs = models.outputs(model, params, batch)
            return jax.nn.log_softmax(embedding.logits(embedding.of(params)[ids], outputs))

    def measure(params: Any) -> tuple[np.ndarray, evaluators.Likelihoods]:
        right, nats = np.zeros(len(examples), bool), np.zeros(len(examples))
        for each in batches:
            batch, numbers = each.batch, each.at(each.batch.target.segments)
            scores = np.asarray(log_probabilities(params, sharding.put(batch, mesh)))
            for answer, other in ((0, 1), (1, 0)):
                asked = batch.labels == ids[answer]
                right[numbers[asked]] = scores[asked, answer] > scores[asked, other]
                nats[numbers[asked]] = -scores[asked, answer]
        return right, evaluators.Likelihoods(nats, np.ones(len(examples), np.int64))

    return measure
