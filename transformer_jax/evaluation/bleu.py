"""BLEU in every variant that we report, each with the signature that says what it is.

The paper's variant takes, without Perl, the steps of tensor2tensor's `get_ende_bleu.sh`:
punctuation replaced, Moses' tokens, and in German compounds split at hyphens; `multi-bleu.perl`
then counts what stands between spaces. That script replaces punctuation in translations alone; here
both of Moses' scripts, `replace-unicode-punctuation` and `normalize-punctuation`, are applied to
translations and references: newstest2014's references have „ where its translations have ".
"""

import importlib.metadata
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int
from sacrebleu.metrics import bleu as sacrebleu

FEWEST = 20  # sentences that make a bucket of lengths worth comparing; the last has as many
MAIN = "sacrebleu_13a"  # the variant that tables show
PAPER = "paper"  # tokenised BLEU as the paper reports it

_HYPHEN = re.compile(rb"(\S)-(\S)")
# What multi-bleu.perl counts, of sentences that are prepared as the paper's.
_MULTI_BLEU = {"tokenize": "none", "smooth_method": "none"}
_VARIANTS: dict[str, dict[str, Any]] = {  # sacreBLEU's options
    MAIN: {"tokenize": "13a"},
    "sacrebleu_13a_lowercase": {"tokenize": "13a", "lowercase": True},
    "sacrebleu_intl": {"tokenize": "intl"},
    "sacrebleu_intl_lowercase": {"tokenize": "intl", "lowercase": True},
    PAPER: _MULTI_BLEU,
    "paper_lowercase": {**_MULTI_BLEU, "lowercase": True},
}


def bounds(source_lengths: Sequence[int], width: int) -> list[int]:
    """Where buckets of so many tokens end, but the last, which has `FEWEST` sentences or more."""
    ends = range(width, max(source_lengths), width)
    return [end for end in ends if sum(length > end for length in source_lengths) >= FEWEST]


def buckets(lengths: Sequence[int], bounds: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """The names of buckets of lengths, with the places of those in it.

    The bounds are the greatest lengths of each but the last, ascending; an empty one is left out.
    """
    for low, high in itertools.pairwise([0, *bounds, max(lengths)]):
        if chosen := [place for place, length in enumerate(lengths) if low < length <= high]:
            yield f"{low + 1}-{high}", chosen


def score(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict[str, dict[str, Any]]:
    """Corpus BLEU of hypotheses against one reference each, by variant.

    Each has the `score`, between 0 and 100, and the `signature`, in the form of sacreBLEU's also
    where sentences were prepared. Both sides are in one language, by which the paper's variant
    tokenises; of one that Moses does not know it has English's abbreviations, and no other rules.

    Raises:
      ValueError: there are not as many hypotheses as references.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    sides = (hypotheses, references)
    as_paper = [prepare_as_paper(side, language) for side in sides]  # slow: once for all variants
    prepared = f"punctuation+moses.{language}.{importlib.metadata.version('sacremoses')}"
    prepared += "+atat" if language == "de" else ""  # compounds
    scores = {}
    for variant in _VARIANTS:
        metric = _metric(variant)
        ours, theirs = as_paper if _is_as_paper(variant) else sides
        result = metric.corpus_score(list(ours), [list(theirs)])
        signature = str(metric.get_signature()).replace("tok:none", f"tok:{prepared}")
        scores[variant] = {"score": result.score, "signature": signature}
    return scores


def counts(
    hypotheses: Sequence[str], references: Sequence[str], language: str, variant: str
) -> Int[np.ndarray, "sentences 10"]:
    """What corpus BLEU sums over sentences, for tests of significance.

    That is for each sentence its words, its reference's, and for n = 1 to 4 its n-grams that the
    reference has, then all its n-grams.
    """
    metric, sides = _metric(variant), [hypotheses, references]
    if _is_as_paper(variant):
        sides = [prepare_as_paper(side, language) for side in sides]
    pairs = zip(*sides, strict=True)
    found = [metric.corpus_score([hypothesis], [[reference]]) for hypothesis, reference in pairs]
    rows = [[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in found]
    return np.array(rows, np.int32).reshape(-1, 10)


def from_counts(
    counts: Int[np.ndarray, "10"], variant: str, effective_order: bool = False
) -> float:
    """Corpus BLEU of what `counts` gives, summed over sentences."""
    words, reference, *ngrams = counts.tolist()
    smoothing = _VARIANTS[variant].get("smooth_method", "exp")
    return sacrebleu.BLEU.compute_bleu(
        ngrams[:4], ngrams[4:], words, reference, smoothing, effective_order=effective_order
    ).score


def of_sentence(counts: Int[np.ndarray, "10"]) -> float:
    """BLEU of one sentence in the main variant, smoothed, as sacreBLEU's `sentence_bleu` does it.

    N-grams longer than the sentence do not count against it (its "effective order").
    """
    return from_counts(counts, MAIN, effective_order=True)


def _metric(variant: str) -> sacrebleu.BLEU:
    # `force` silences advice about hypotheses that look tokenised; it changes no score.
    return sacrebleu.BLEU(**_VARIANTS[variant], force=True)


def _is_as_paper(variant: str) -> bool:
    return _VARIANTS[variant]["tokenize"] == "none"


def prepare_as_paper(sentences: Sequence[str], language: str) -> list[str]:
    """Sentences with their tokens between single spaces.

    The language decides about abbreviations, quotes and compounds.
    """
    import sacremoses  # reads its tables of characters when it is imported: half a second

    # perl_parity: two quotes as the script treats them, not as its port thinks better.
    normaliser = sacremoses.MosesPunctNormalizer(
        language, pre_replace_unicode_punct=True, perl_parity=True
    )
    tokeniser = sacremoses.MosesTokenizer(language)
    prepared = [
        " ".join(tokeniser.tokenize(normaliser.normalize(sentence))) for sentence in sentences
    ]
    return [split_compounds(sentence) for sentence in prepared] if language == "de" else prepared


def split_compounds(sentence: str) -> str:
    """Parts every hyphen from what surrounds it: rich-text becomes rich ##AT##-##AT## text.

    Like the original one-liner this works on bytes, and a letter between two hyphens belongs to
    the first only: a-b-c becomes a ##AT##-##AT## b-c.
    """
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", sentence.encode()).decode()
