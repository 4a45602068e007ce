"""chrF (Popović 2015) as sacreBLEU counts it: n-grams of up to 6 characters, F with β = 2.

Unlike BLEU it sees parts of words, and so a wrong ending as half right.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from sacrebleu.metrics import helpers

ORDER = 6  # characters of the longest n-grams
BETA = 2  # how much more recall weighs than precision
# SacreBLEU's, but for its version.
SIGNATURE = f"nrefs:1|case:mixed|eff:yes|nc:{ORDER}|nw:0|space:no"


def counts(hypotheses: Sequence[str], references: Sequence[str]) -> Int[np.ndarray, "sentences 18"]:
    """What chrF sums over sentences: for n = 1 to 6, n-grams said, the reference's, and matches.

    White space does not count. N-grams of a sentence whose reference has none of their length do
    not either.

    Raises:
      ValueError: there are not as many hypotheses as references.
    """
    found = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        sides = (helpers.extract_all_char_ngrams(text, ORDER) for text in (hypothesis, reference))
        sentence: list[int] = []
        for said, theirs in zip(*sides, strict=True):
            matches = said & theirs
            sentence += [said.total() if theirs else 0, theirs.total(), matches.total()]
        found.append(sentence)
    return np.array(found, np.int32).reshape(-1, 3 * ORDER)


def from_counts(counts: Int[np.ndarray, "18"]) -> float:
    """chrF, between 0 and 100, of what `counts` gives, summed over sentences.

    Precision and recall are means over those n that both sides have n-grams of.
    """
    summed = counts.tolist()
    known = [
        (matches / said, matches / theirs)
        for said, theirs, matches in zip(summed[::3], summed[1::3], summed[2::3], strict=True)
        if said and theirs
    ]
    if not any(precision for precision, _ in known):
        return 0.0
    precision, recall = (sum(each) / len(known) for each in zip(*known, strict=True))
    return 100 * (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)
