"""BLEU of degraded newstest references: golden numbers, with the files in $NEWSTEST.

The golden numbers of the paper's variant were checked once against `multi_bleu`, the loops of
tests/paper_bleu_test.py; those of sacreBLEU against its command.
"""

import os
import pathlib

import pytest

from tests.paper_bleu_test import multi_bleu
from transformer_jax.data import text
from transformer_jax.evaluation import bleu

FOLDER = os.environ.get("NEWSTEST", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="$NEWSTEST names no folder of newstest2013.de")

GOLDEN = {
    "newstest2013": {
        "sacrebleu_13a": 59.036645,
        "sacrebleu_13a_lowercase": 70.523469,
        "sacrebleu_intl": 59.356968,
        "sacrebleu_intl_lowercase": 70.835868,
        "paper": 59.226284,
        "paper_lowercase": 70.721678,
    },
    "newstest2014": {  # whose references have „ where hypotheses have ": the paper's maps both
        "sacrebleu_13a": 56.940334,
        "sacrebleu_13a_lowercase": 68.523279,
        "sacrebleu_intl": 57.164580,
        "sacrebleu_intl_lowercase": 68.774407,
        "paper": 58.704194,
        "paper_lowercase": 70.563840,
    },
}


def degrade(sentence, number):
    """Returns a degraded translation: quotes plain, words dropped, exchanged or capitalised."""
    for quote in "„“”":
        sentence = sentence.replace(quote, '"')
    words = [word for place, word in enumerate(sentence.split(" ")) if (place + number) % 9]
    if len(words) > 3 and number % 3 == 0:
        words[1], words[2] = words[2], words[1]
    if number % 5 == 0:
        words = [word.capitalize() for word in words]
    return " ".join(words)


@pytest.mark.parametrize("name", ["newstest2013", "newstest2014"])
def test_degraded_references_score_as_they_did(name):
    references = text.read_lines(pathlib.Path(FOLDER) / f"{name}.de")
    hypotheses = [degrade(sentence, number) for number, sentence in enumerate(references)]
    scores = bleu.score(hypotheses, references, "de")
    found = {variant: score["score"] for variant, score in scores.items()}
    assert found == pytest.approx(GOLDEN[name], abs=1e-6)
    prepared = [bleu.prepare_as_paper(side, "de") for side in (hypotheses, references)]
    assert found[bleu.PAPER] == pytest.approx(multi_bleu(*prepared))
