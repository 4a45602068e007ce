"""chrF (Popović 2015) as sacreBLEU counts it: n-grams of up to 6 characters, F with β = 2.

Unlike BLEU it sees parts of words, and so a wrong ending as half right.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

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
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    sentences = len(references)
    texts = ["".join(text.split()) for text in (*hypotheses, *references)]
    characters = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32).astype(np.int64)
    text_of = np.repeat(np.arange(2 * sentences), [len(text) for text in texts])
    found = np.zeros((sentences, 3 * ORDER), np.int32)
    grams = np.zeros_like(characters)  # the number of the n-gram that begins at each character
    for n in range(1, ORDER + 1):
        last = np.arange(len(characters)) + n - 1
        last = last[last < len(characters)]
        whole = text_of[: len(last)] == text_of[last]  # those that no text's end cuts
        pairs = grams[: len(last)] << 21 | characters[last]  # code points have 21 bits
        grams = np.unique(pairs, return_inverse=True)[1]
        text, kinds = text_of[: len(last)][whole], int(grams.max(initial=0)) + 1
        keys, key_of = np.unique((text % sentences) * kinds + grams[whole], return_inverse=True)
        said, theirs = (
            np.bincount(key_of[side], minlength=len(keys))
            for side in (text < sentences, text >= sentences)
        )
        for place, number in enumerate((said, theirs, np.minimum(said, theirs))):
            summed = np.bincount(keys // kinds, weights=number, minlength=sentences)
            found[:, 3 * (n - 1) + place] = summed
        found[found[:, 3 * n - 2] == 0, 3 * n - 3] = 0
    return found


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
