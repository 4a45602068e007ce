"""Corpus BLEU in several variants, each with a signature in sacreBLEU's form.

The paper's variant repeats the steps of tensor2tensor's `get_ende_bleu.sh` without Perl: it
replaces punctuation, applies Moses' tokeniser, splits German compounds at hyphens, and counts words
between spaces as `multi-bleu.perl` does. The script normalises the punctuation of translations
alone; here Moses' `replace-unicode-punctuation` and `normalize-punctuation` are applied to both
sides, because newstest2014's references have „ where its translations have ".
"""

import functools
import importlib.metadata
import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int
from sacrebleu.metrics import bleu as sacrebleu

_log = logging.getLogger(__name__)

FEWEST = 20  # least sentences in the last bucket of `bounds`
# The variant that tables show has the tokeniser that sacreBLEU chooses for the language.
_TOKENISERS = ("13a", *sacrebleu.BLEU._TOKENIZER_MAP.values())
MAIN_VARIANTS = tuple(f"sacrebleu_{name}" for name in _TOKENISERS)
MAIN = "sacrebleu_13a"  # the one of most languages
PAPER = "paper"  # tokenised BLEU as the paper reports it

_HYPHEN = re.compile(rb"(\S)-(\S)")
# Options that count as multi-bleu.perl does, for sentences of `prepare_as_paper`.
_MULTI_BLEU = {"tokenize": "none", "smooth_method": "none"}
_SACREBLEU = {f"sacrebleu_{name}": {"tokenize": name} for name in (*_TOKENISERS, "intl")}
_LOWERCASE = "_lowercase"
_VARIANTS: dict[str, dict[str, Any]] = {**_SACREBLEU, PAPER: _MULTI_BLEU}  # sacreBLEU's options
_VARIANTS |= {f"{name}{_LOWERCASE}": {**_VARIANTS[name], "lowercase": True} for name in _VARIANTS}
# Further codes of the languages for which sacreBLEU chooses a tokeniser.
_CODES = {"zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh", "jpn": "ja", "kor": "ko"}
# Languages without spaces between words, and without a tokeniser in sacreBLEU's choice.
_UNSPACED = {"th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod", "dz", "dzo"}


@functools.cache
def main_variant(language: str) -> str:
    """Returns the variant of tables: sacreBLEU with the tokeniser that it chooses for a language.

    The language is a code such as zh, zho or zh-CN. Logs a warning if sacreBLEU has no tokeniser
    for a language that does not separate words by spaces, or if its tokeniser is not installed.
    """
    code = re.split("[-_]", language.lower())[0]
    tokeniser = sacrebleu.BLEU._TOKENIZER_MAP.get(_CODES.get(code, code), "13a")
    try:
        sacrebleu.BLEU(tokenize=tokeniser)
    except RuntimeError as error:  # MeCab is missing
        _log.warning(
            "BLEU of %s uses sacreBLEU's tokeniser 13a, which splits at spaces, because %s is not "
            "installed: %s",
            language,
            tokeniser,
            " ".join(str(error).split()),
        )
        return MAIN
    if code in _UNSPACED:
        _log.warning(
            "BLEU of %s means little: sacreBLEU has no tokeniser for the language, and 13a splits "
            "at spaces; separate the words of both sides by spaces first",
            language,
        )
    return f"sacrebleu_{tokeniser}"


def bounds(source_lengths: Sequence[int], width: int) -> list[int]:
    """Returns the upper bounds of all buckets of source lengths, except that of the last bucket.

    Each bucket except the last spans `width` tokens. The last bucket has at least `FEWEST`
    sentences.
    """
    ends = range(width, max(source_lengths), width)
    return [end for end in ends if sum(length > end for length in source_lengths) >= FEWEST]


def buckets(lengths: Sequence[int], bounds: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """Yields the range of each bucket of lengths, such as "1-20", and the indices of its lengths.

    The bounds are the greatest lengths of all buckets but the last, ascending. Empty buckets are
    left out.
    """
    for low, high in itertools.pairwise([0, *bounds, max(lengths)]):
        if chosen := [index for index, length in enumerate(lengths) if low < length <= high]:
            yield f"{low + 1}-{high}", chosen


def score(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict[str, dict[str, Any]]:
    """Returns corpus BLEU of hypotheses against one reference each, by variant.

    Args:
      hypotheses: translations.
      references: their references.
      language: language of both sides. It selects the main variant, and the rules of Moses'
        tokeniser; if Moses does not know the language, it applies English abbreviations alone.

    Returns:
      For each variant, the main one first, the `score` between 0 and 100 and its `signature`.

    Raises:
      ValueError: the numbers of hypotheses and references differ.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    # Preparing sentences is slow, so that it is done once for all variants.
    as_paper = [prepare_as_paper(side, language) for side in (hypotheses, references)]
    prepared = f"punctuation+moses.{language}.{importlib.metadata.version('sacremoses')}"
    prepared += "+atat" if language == "de" else ""  # compounds
    scores = {}
    names = (main_variant(language), "sacrebleu_intl", PAPER)
    for variant in (f"{name}{suffix}" for name in names for suffix in ("", _LOWERCASE)):
        metric = _metric(variant)
        prepared_sides = as_paper if _is_as_paper(variant) else (hypotheses, references)
        result = metric.corpus_score(list(prepared_sides[0]), [list(prepared_sides[1])])
        signature = str(metric.get_signature()).replace("tok:none", f"tok:{prepared}")
        scores[variant] = {"score": result.score, "signature": signature}
    return scores


def counts(
    hypotheses: Sequence[str], references: Sequence[str], language: str, variant: str
) -> Int[np.ndarray, "sentences 10"]:
    """Returns the counts of each sentence that corpus BLEU sums, for tests of significance.

    The ten counts are: the words of the hypothesis; the words of the reference; for n = 1 to 4, the
    n-grams that both have in common; and for n = 1 to 4, the n-grams of the hypothesis.
    """
    metric = _metric(variant)
    if _is_as_paper(variant):
        hypotheses = prepare_as_paper(hypotheses, language)
        references = prepare_as_paper(references, language)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        score = metric.corpus_score([hypothesis], [[reference]])
        rows.append([score.sys_len, score.ref_len, *score.counts, *score.totals])
    return np.array(rows, np.int32).reshape(-1, 10)


def from_counts(
    counts: Int[np.ndarray, "10"], variant: str, effective_order: bool = False
) -> float:
    """Returns corpus BLEU from the counts of `counts`, summed over sentences."""
    words, reference, *ngrams = counts.tolist()
    smoothing = _VARIANTS[variant].get("smooth_method", "exp")
    return sacrebleu.BLEU.compute_bleu(
        ngrams[:4], ngrams[4:], words, reference, smoothing, effective_order=effective_order
    ).score


def of_sentence(counts: Int[np.ndarray, "10"]) -> float:
    """Returns the smoothed BLEU of a sentence, which equals that of sacreBLEU's `sentence_bleu`.

    N-grams longer than the sentence are ignored (`effective_order`).
    """
    return from_counts(counts, MAIN, effective_order=True)


def _metric(variant: str) -> sacrebleu.BLEU:
    # `force` silences advice about hypotheses that look tokenised; it changes no score.
    return sacrebleu.BLEU(**_VARIANTS[variant], force=True)


def _is_as_paper(variant: str) -> bool:
    return _VARIANTS[variant]["tokenize"] == "none"


def prepare_as_paper(sentences: Sequence[str], language: str) -> list[str]:
    """Returns sentences tokenised for the paper's variant, with single spaces between tokens.

    The language determines the rules for abbreviations, quotes and compounds.
    """
    import sacremoses  # imported here, because reading its tables takes half a second

    # perl_parity: two quotes are treated as in the Perl script, from which the port deviates.
    normaliser = sacremoses.MosesPunctNormalizer(
        language, pre_replace_unicode_punct=True, perl_parity=True
    )
    tokeniser = sacremoses.MosesTokenizer(language)
    prepared = [
        " ".join(tokeniser.tokenize(normaliser.normalize(sentence))) for sentence in sentences
    ]
    return [split_compounds(sentence) for sentence in prepared] if language == "de" else prepared


def split_compounds(sentence: str) -> str:
    """Separates hyphens from the words around them: rich-text becomes rich ##AT##-##AT## text.

    Like tensor2tensor's one-liner this works on bytes, and of two hyphens around a single letter it
    separates the first only: a-b-c becomes a ##AT##-##AT## b-c.
    """
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", sentence.encode()).decode()
