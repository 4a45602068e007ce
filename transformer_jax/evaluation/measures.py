"""Metrics by which runs are compared, such as BLEU and F1.

A metric is computed from counts of each sentence, such as matching n-grams, summed over sentences.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from transformer_jax.evaluation import bleu, parseval


@dataclasses.dataclass(frozen=True)
class Measure:
    """A metric of a set of sentences, such as BLEU, between 0 and 100."""

    name: str  # heading in tables
    file: str  # file of a run's folder that holds the counts of each sentence, by metric
    width: int  # number of counts of a sentence
    of_reference: slice  # indices of the counts that depend on the reference alone
    from_counts: Callable[[Int[np.ndarray, "*B _"]], Float[Any, "*B"]]  # scores of summed counts

    def by_length(
        self,
        counts: Int[np.ndarray, "sentences _"],
        lengths: Sequence[int],
        bounds: Sequence[int],
        unit: str = "tokens",
        score: str = "score",
    ) -> list[dict[str, Any]]:
        """Groups sentences by length, and returns the score of each group.

        Args:
          counts: the counts of each sentence.
          lengths: the length of each sentence.
          bounds: the greatest length of each group but the last, ascending (see `bleu.buckets`).
          unit: the unit of the lengths, which is the key of a group's range.
          score: the key of a group's score.

        Returns:
          A dictionary for each group, such as {"tokens": "1-20", "sentences": 7, "score": 31.2}.
        """
        return [
            {unit: name, "sentences": len(some), score: self.from_counts(counts[some].sum(axis=0))}
            for name, some in bleu.buckets(lengths, bounds)
        ]


def _bleu(variant: str) -> Measure:
    return Measure(
        name="BLEU",
        file="bleu_counts.json",
        width=10,
        of_reference=slice(1, 2),
        from_counts=functools.partial(bleu.from_counts, variant=variant),
    )


F1 = "f1"
MEASURES: dict[str, Measure] = {
    bleu.MAIN: _bleu(bleu.MAIN),
    bleu.PAPER: _bleu(bleu.PAPER),
    F1: Measure(
        name="F1",
        file="parse_counts.json",
        width=len(parseval.COUNTED),
        of_reference=slice(1, 2),
        from_counts=parseval.from_counts,
    ),
}
