"""BLEU in every variant that we report, each with the signature that says what it is."""

import itertools
from collections.abc import Sequence
from typing import TypedDict

from sacrebleu.metrics import bleu as sacrebleu

FEWEST = 20  # sentences that make a bucket of lengths worth comparing; the last has as many
MAIN = "sacrebleu_13a"  # the variant that tables show

_VARIANTS = {
    "sacrebleu_13a": {"tokenize": "13a"},
    "sacrebleu_13a_lowercase": {"tokenize": "13a", "lowercase": True},
    "sacrebleu_intl": {"tokenize": "intl"},
    "sacrebleu_intl_lowercase": {"tokenize": "intl", "lowercase": True},
}


class Score(TypedDict):
    """A score between 0 and 100, and sacreBLEU's signature."""

    score: float
    signature: str


class Bucket(TypedDict):
    """Corpus BLEU (the main variant) over the sentences whose source has so many tokens."""

    tokens: str
    sentences: int
    score: float


def bounds(source_lengths: Sequence[int], width: int) -> list[int]:
    """Where buckets of so many tokens end, but the last, which holds at least `FEWEST` sentences.

    Args:
      source_lengths: tokens of each sentence.
      width: tokens of a bucket.
    """
    ends = range(width, max(source_lengths), width)
    return [end for end in ends if sum(length > end for length in source_lengths) >= FEWEST]


def score_by_length(
    hypotheses: Sequence[str],
    references: Sequence[str],
    source_lengths: Sequence[int],
    bounds: Sequence[int],
) -> list[Bucket]:
    """BLEU of sentences by the number of their source's tokens.

    Args:
      hypotheses: translations.
      references: one each.
      source_lengths: of each sentence.
      bounds: the most tokens of each bucket but the last, ascending; a bucket without sentences
        is left out.
    """
    buckets: list[Bucket] = []
    edges = [0, *bounds, max(source_lengths)]
    for low, high in itertools.pairwise(edges):
        chosen = [i for i, length in enumerate(source_lengths) if low < length <= high]
        if chosen:
            metric = sacrebleu.BLEU(**_VARIANTS[MAIN], force=True)
            result = metric.corpus_score(
                [hypotheses[i] for i in chosen], [[references[i] for i in chosen]]
            )
            buckets.append(
                Bucket(tokens=f"{low + 1}-{high}", sentences=len(chosen), score=result.score)
            )
    return buckets


def score(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """Corpus BLEU of hypotheses against one reference each, by variant.

    Raises:
      ValueError: there are not as many hypotheses as references.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    scores: dict[str, Score] = {}
    for name, options in _VARIANTS.items():
        # `force` silences advice about hypotheses that look tokenised; it changes no score.
        metric = sacrebleu.BLEU(**options, force=True)
        result = metric.corpus_score(list(hypotheses), [list(references)])
        scores[name] = Score(score=result.score, signature=str(metric.get_signature()))
    return scores
