"""Scores of runs, and their deviations over sentences.

The test sentences are a sample. The jackknife (Tukey 1958) leaves out one sentence at a time: with
θⱼ the score of a run without sentence j, the mean of these θ̄, and n sentences, the deviations are

  uⱼ = √((n − 1) / n) (θ̄ − θⱼ),   and   Σⱼ uⱼ²

is the variance of the score over sentences. All runs have the same sentences in the same order, so
the variance of a weighted sum of the scores of several runs k is Σⱼ (Σₖ wₖ uₖⱼ)². Unlike a
bootstrap, the jackknife has no random error.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from experiments.results import frames

Counts = Int[np.ndarray, "sentences width"]  # of one run; see `frames.Sweep.counts`
Runs = Mapping[str, Mapping[int, "Run"]]  # by row and seed


@dataclasses.dataclass(frozen=True)
class Run:
    """The score of a run.

    Attributes:
      score: the score, such as BLEU.
      deviations: its deviations over sentences, in the order of the sentences. Empty if the
        per-sentence statistics are unknown.
    """

    score: float
    deviations: Float[np.ndarray, "sentences"] = dataclasses.field(
        default_factory=lambda: np.zeros(0)
    )


def from_counts(counts: Mapping[int, Counts], measure: str) -> dict[int, Run]:
    """Returns the score of each run.

    Args:
      counts: per-sentence counts of each run, by seed.
      measure: "bleu" or "f1".
    """
    score = frames.MEASURES[measure].from_counts
    return {seed: jackknife(run.astype(np.int64), score) for seed, run in counts.items()}


def log_perplexities(
    ppl: Mapping[int, float], nats: Mapping[int, Float[np.ndarray, "sentences 2"]]
) -> dict[int, Run]:
    """Returns the logarithm of the perplexity of each run, in nats per token.

    Args:
      ppl: the perplexity of each run, by seed.
      nats: the negative log-likelihood and the number of tokens of each sentence, by seed. Runs
        that are missing have no deviations.
    """

    def per_token(sums: np.ndarray) -> Any:
        return sums[..., 0] / sums[..., 1]

    return {
        seed: jackknife(nats[seed], per_token) if seed in nats else Run(float(np.log(value)))
        for seed, value in ppl.items()
    }


def jackknife(
    counts: Float[np.ndarray, "sentences width"] | Counts,
    score: Callable[[np.ndarray], Any],
) -> Run:
    """Returns the score of a run with its deviations.

    Args:
      counts: the counts of each sentence.
      score: a function from sums of counts, [..., width], to scores, [...].
    """
    whole = counts.sum(0)
    if len(counts) < 2:
        return Run(float(score(whole)))
    without = np.asarray(score(whole - counts))
    factor = (1 - 1 / len(counts)) ** 0.5
    return Run(float(score(whole)), factor * (without.mean() - without))
