"""What runs are compared by: scores of sums over sentences, of which a run leaves each summand."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from transformer_jax.evaluation import bleu, chrf, parseval


@dataclasses.dataclass(frozen=True)
class Measure:
    """A score of a set between 0 and 100.

    Attributes:
      name: as tables head it.
      file: of the run's folder, with what is summed, under the measure's key.
      width: numbers that are summed.
      of_reference: those of them that the reference alone decides.
      from_counts: the score of their sums.
      of_sentence: the score of one sentence.
      sentence_name: what that is.
      of_result: the score that stands in a result.json, or in what it says of the test set.
      in_results: whether there is one.
    """

    name: str
    file: str
    width: int
    of_reference: slice
    from_counts: Callable[[Int[np.ndarray, "_"]], float]
    of_sentence: Callable[[Int[np.ndarray, "_"]], float]
    sentence_name: str
    of_result: Callable[[Mapping[str, Any]], float]
    in_results: bool = True


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


def _in_no_result(result: Mapping[str, Any]) -> float:
    raise ValueError("chrF stands beside BLEU, in no result.json: no table is compared by it alone")


F1 = "f1"
CHRF = "chrf"
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
    CHRF: Measure(
        "chrF",
        "chrf_counts.json",
        3 * chrf.ORDER,
        slice(1, None, 3),
        chrf.from_counts,
        chrf.from_counts,
        "chrF of a sentence",
        _in_no_result,
        in_results=False,
    ),
}
