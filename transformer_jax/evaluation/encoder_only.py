"""Evaluation of encoder-only models: perplexity of labels, and accuracy of pair classification."""

import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool

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
    """Returns a function that computes the likelihoods of held-out labels, given parameters.

    The labels are masked tokens, all tokens or the labels of pairs; the first objective in
    `Objective.scored_by` determines which. They are the same for all seeds.
    """
    name, examples = next(iter(examples_lib.held_out(pairs, config).items()))
    if name != objectives.PAIR_CLASSIFICATION:
        return evaluators.likelihoods(model, examples, config.data, mesh)
    classify = _classifier(model, examples, config, mesh)
    return lambda params: classify(params)[1]


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
    """Scores a model on a set, and writes nll.json in the first process.

    Args:
      name: the name of the set, such as "dev" or "test".
      model: the model.
      params: the model's parameters.
      pairs: the set.
      likelihoods_of: the function that `likelihoods` returns for the set.
      config: the run's config.
      mesh: devices that compute.
      workdir: the run's folder.

    Returns:
      `ppl`, `eval_seconds`, empty fields for BLEU and, if the objective classifies pairs, the
      `accuracy` of the classification.
    """
    started = time.monotonic()
    measured = likelihoods_of(params)
    if hosts.is_first():
        measured.write(workdir, name)
    scores: dict[str, Any] = {
        "ppl": measured.perplexity,
        "bleu": {},
        "bleu_by_length": [],
        "bleu_beyond_training": None,
    }
    candidates = examples_lib.held_out(pairs, config).get(objectives.PAIR_CLASSIFICATION)
    if candidates is not None:
        is_right, _ = _classifier(model, candidates, config, mesh)(params)
        scores["accuracy"] = accuracy(int(is_right.sum()), len(is_right))
        share, low, high, answers = scores["accuracy"].values()
        _log.info(
            f"{name}: {share:.1%} of {answers} pairs classified right ({low:.1%} to {high:.1%})"
        )
    _log.info("%s: ppl %.3f", name, scores["ppl"])
    return {**scores, "eval_seconds": time.monotonic() - started}


def accuracy(right: int, answers: int) -> dict[str, float]:
    """Returns the share of right answers, its 95% Wilson interval and the number of answers."""
    from scipy import stats  # imported here, because it takes half a second

    low, high = stats.binomtest(right, answers).proportion_ci(0.95, "wilson")
    return {"share": right / answers, "low": low, "high": high, "answers": answers}


def _classifier(
    model: interface.Architecture,
    examples: Sequence[objectives.Example],
    config: config_lib.Config,
    mesh: jax.sharding.Mesh,
) -> Callable[[Any], tuple[Bool[np.ndarray, "examples"], evaluators.Likelihoods]]:
    """Returns a function that classifies pairs, given a model's parameters.

    The function returns a mask of the pairs that are classified right, and the likelihoods of the
    right labels. The model chooses the likelier of the two labels of `objectives.pair_labels`. The
    likelihoods are normalised over these two labels.
    """
    ids = np.array(objectives.pair_labels(objectives.ids_of(config)))
    batches = evaluators.packed(examples, config.data, mesh)

    @functools.partial(jax.jit, out_shardings=sharding.replicated(mesh))
    def log_probabilities(params: Any, batch: sequences.Batch) -> Array:
        with sharding.activation_rules(mesh):
            outputs = models.outputs(model, params, batch)
            return jax.nn.log_softmax(embedding.logits(embedding.of(params)[ids], outputs))

    def classify(params: Any) -> tuple[np.ndarray, evaluators.Likelihoods]:
        is_right, nats = np.zeros(len(examples), bool), np.zeros(len(examples))
        for packed in batches:
            batch, numbers = packed.batch, packed.at(packed.batch.target.segments)
            scores = np.asarray(log_probabilities(params, sharding.put(batch, mesh)))
            for label, other in ((0, 1), (1, 0)):
                labelled = batch.labels == ids[label]
                is_right[numbers[labelled]] = scores[labelled, label] > scores[labelled, other]
                nats[numbers[labelled]] = -scores[labelled, label]
        return is_right, evaluators.Likelihoods(nats, np.ones(len(examples), np.int64))

    return classify
