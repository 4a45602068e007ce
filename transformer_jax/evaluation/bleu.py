"""BLEU in every variant that we report, each with the signature that says what it is."""

from collections.abc import Sequence
from typing import TypedDict

from sacrebleu.metrics import bleu as sacrebleu

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
