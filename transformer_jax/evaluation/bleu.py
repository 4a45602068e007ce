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
from jaxtyping import Float, Int
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
_CASED: dict[str, dict[str, Any]] = {**_SACREBLEU, PAPER: _MULTI_BLEU}
_LOWERCASED: dict[str, dict[str, Any]] = {
    f"{name}{_LOWERCASE}": {**options, "lowercase": True} for name, options in _CASED.items()
}
_VARIANTS = _CASED | _LOWERCASED  # sacreBLEU's options of each variant
# Further codes of the languages for which sacreBLEU chooses a tokeniser.
_CODES = {"zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh", "jpn": "ja", "kor": "ko"}
# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Japanese and Chinese.
_UNSPACED = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


@functools.cache
def main_variant(language: str) -> str:
    """Returns the name of the BLEU variant that tables show for a target language.

    The variant is sacreBLEU with its own choice of tokeniser for the language. A warning is logged
    if the tokeniser is not installed.

    Args:
      language: the code of the language, such as zh, zho or zh-CN.
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
    return f"sacrebleu_{tokeniser}"


def bounds(source_lengths: Sequence[int], width: int) -> list[int]:
    """Returns the bounds by which `buckets` groups source lengths.

    A bound is the greatest length of a bucket. The last bucket has no bound. Each other bucket
    spans `width` tokens. The last bucket has at least `FEWEST` sentences if there is a bound.
    """
    ends = range(width, max(source_lengths), width)
    return [end for end in ends if sum(length > end for length in source_lengths) >= FEWEST]


def buckets(lengths: Sequence[int], bounds: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """Groups lengths into buckets, and leaves out empty buckets.

    Args:
      lengths: the lengths.
      bounds: the greatest length of each bucket but the last, ascending.

    Yields:
      The range of a bucket, such as "1-20", and the indices of the lengths in this range.
    """
    for low, high in itertools.pairwise([0, *bounds, max(lengths)]):
        if chosen := [index for index, length in enumerate(lengths) if low < length <= high]:
            yield f"{low + 1}-{high}", chosen


def score(
    hypotheses: Sequence[str], references: Sequence[str], language: str
) -> dict[str, dict[str, Any]]:
    """Returns corpus BLEU of hypotheses against one reference each, by variant.

    Args:
      hypotheses: the translations of a model.
      references: the reference of each translation.
      language: the language of hypotheses and references. It selects the main variant, and the
        rules of Moses' tokeniser. For a language that Moses does not know, it applies the rules for
        English abbreviations alone.

    Returns:
      For each variant, the main one first, the `score` between 0 and 100 and its `signature`. A
      warning is logged if the main variant splits at spaces and the references have none.

    Raises:
      ValueError: the numbers of hypotheses and references differ.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    names = (main_variant(language), "sacrebleu_intl", PAPER)
    text = "".join(references).replace(" ", "")
    is_unspaced = 2 * len(_UNSPACED.findall(text)) > len(text)
    if is_unspaced and names[0] == MAIN:
        _log.warning(
            "BLEU means little: the tokeniser 13a, which is that of language %s, splits at spaces, "
            "and the references have none between words: name their language, or separate words",
            language,
        )
    # Preparing sentences is slow, so that it is done once for all variants.
    as_paper = [prepare_as_paper(side, language) for side in (hypotheses, references)]
    prepared = f"punctuation+moses.{language}.{importlib.metadata.version('sacremoses')}"
    if language == "de":
        prepared += "+atat"  # compounds
    scores = {}
    variants = [f"{name}{suffix}" for name in names for suffix in ("", _LOWERCASE)]
    for variant in variants:
        metric = _metric(variant)
        prepared_sides = as_paper if _is_as_paper(variant) else (hypotheses, references)
        result = metric.corpus_score(list(prepared_sides[0]), [list(prepared_sides[1])])
        signature = str(metric.get_signature()).replace("tok:none", f"tok:{prepared}")
        scores[variant] = {"score": result.score, "signature": signature}
    return scores


def counts(
    hypotheses: Sequence[str], references: Sequence[str], language: str, variant: str
) -> Int[np.ndarray, "sentences 10"]:
    """Returns the ten counts of each sentence that corpus BLEU sums, for tests of significance.

    Count 0 is the number of words in the hypothesis, and count 1 that of words in the reference.
    Counts 2 to 5 are the n-grams that hypothesis and reference have in common, for n = 1 to 4.
    Counts 6 to 9 are the n-grams in the hypothesis, for n = 1 to 4.
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
    counts: Int[np.ndarray, "*B 10"], variant: str, effective_order: bool = False
) -> Float[Any, "*B"]:
    """Returns corpus BLEU as sacreBLEU computes it, given sums of the rows that `counts` returns.

    Args:
      counts: the ten counts, summed over sentences.
      variant: the BLEU variant.
      effective_order: whether n-grams that are longer than the hypothesis are ignored.
    """
    words, reference = counts[..., 0], counts[..., 1]
    matches, totals = counts[..., 2:6], counts[..., 6:]
    exist = totals > 0
    has_match = matches.any(axis=-1)
    if _VARIANTS[variant].get("smooth_method", "exp") == "exp":
        # The first n without matches counts as half a match, the second as a quarter, and so on.
        missing = exist & (matches == 0)
        matches = np.where(missing, 0.5 ** np.cumsum(missing, axis=-1), matches)
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithms = np.log(100 * matches / totals)
        brevity_penalty = np.exp(np.minimum(0, 1 - reference / words))
        logarithms = np.where(exist, logarithms, 0 if effective_order else -np.inf)
        orders = exist.sum(axis=-1) if effective_order else 4
        scores = brevity_penalty * np.exp(logarithms.sum(axis=-1) / orders)
    return np.where(has_match, scores, 0.0)[()]  # [()] makes a 0-dimensional array a number


def of_sentence(counts: Int[np.ndarray, "10"]) -> Float[Any, ""]:
    """Returns the smoothed BLEU of a single sentence, given its ten counts from `counts`.

    The score equals that of sacreBLEU's `sentence_bleu`. N-grams that are longer than the sentence
    are ignored.
    """
    return from_counts(counts, MAIN, effective_order=True)


def _metric(variant: str) -> sacrebleu.BLEU:
    # `force` silences advice about hypotheses that look tokenised; it changes no score.
    return sacrebleu.BLEU(**_VARIANTS[variant], force=True)


def _is_as_paper(variant: str) -> bool:
    return _VARIANTS[variant]["tokenize"] == "none"


def prepare_as_paper(sentences: Sequence[str], language: str) -> list[str]:
    """Tokenises sentences for the paper's BLEU variant, and joins the tokens with single spaces.

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

    The function has the effect of tensor2tensor's command in Perl, which works on bytes. If a
    single letter is between two hyphens, only the first hyphen is separated: a-b-c becomes
    a ##AT##-##AT## b-c.
    """
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", sentence.encode()).decode()
