"""What runs are compared by: scores of sums over sentences, of which a run leaves each summand."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from transformer_jax.evaluation import bleu, parseval


@dataclasses.dataclass(frozen=True)
class Measure:
    """A score of a set between 0 and 100."""

    name: str  # as tables head it
    file: str  # of the run's folder, with what is summed, under the measure's key
    width: int  # numbers that are summed
    of_reference: slice  # those of them that the reference alone decides
    from_counts: Callable[[Int[np.ndarray, "_"]], float]  # the score of their sums
    of_sentence: Callable[[Int[np.ndarray, "_"]], float]  # the score of one sentence
    sentence_name: str  # what that is
    # The score that stands in a result.json, or in what it says of the test set.
    of_result: Callable[[Mapping[str, Any]], float]

    def by_length(
        self,
        counts: Int[np.ndarray, "sentences _"],
        lengths: Sequence[int],
        bounds: Sequence[int],
        unit: str = "tokens",
        score: str = "score",
    ) -> list[dict[str, Any]]:
        """Scores of sentences in `bleu.buckets` of their lengths.

        Each has, under such names, the bucket's, its number of `sentences`, and their score.
        """
        return [
            {unit: name, "sentences": len(some), score: self.from_counts(counts[some].sum(axis=0))}
            for name, some in bleu.buckets(lengths, bounds)
        ]


def _bleu(variant: str) -> Measure:
    return Measure(
        "BLEU",
        "bleu_counts.json",
        10,
        slice(1, 2),
        functools.partial(bleu.from_counts, variant=variant),
        bleu.of_sentence,
        "sentence BLEU, smoothed",
        lambda result: result["bleu"][variant]["score"],
    )


F1 = "f1"
MEASURES: dict[str, Measure] = {
    **{variant: _bleu(variant) for variant in (bleu.MAIN, bleu.PAPER)},
    F1: Measure(
        "F1",
        "parse_counts.json",
        len(parseval.COUNTED),
        slice(1, 2),
        parseval.from_counts,
        parseval.from_counts,
        "F1 of a sentence",
        lambda result: result["parses"]["f1"],
    ),
}
