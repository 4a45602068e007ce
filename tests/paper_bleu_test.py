"""The paper's BLEU against the original scripts' definitions, worked by hand."""

import collections
import json
import math

import numpy as np
import pytest

from transformer_jax.evaluation import bleu


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # the letter b belongs to the first match
        ("ab-cd-ef", "ab ##AT##-##AT## cd ##AT##-##AT## ef"),
        ("ä-ö-ü", "ä ##AT##-##AT## ö ##AT##-##AT## ü"),  # on bytes: ö has two, one for each
        ("- a -b c- --", "- a -b c- --"),
        ("a---b", "a ##AT##-##AT## --b"),
    ],
)
def test_compounds_are_split_as_the_one_liner_does(sentence, expected):
    assert bleu.split_compounds(sentence) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        # Every quote becomes the same; sentence-final full stop and comma part from words.
        ("„Das ist gut“, sagte er.", "&quot; Das ist gut &quot; , sagte er ."),
        ('"Das ist gut", sagte er.', "&quot; Das ist gut &quot; , sagte er ."),
        ("»Nein«, sagt sie.", "&quot; Nein &quot; , sagt sie ."),
        # Abbreviations and ordinals keep their full stop, unless they end the sentence.
        ("Am 3. Mai kam Dr. Maier.", "Am 3. Mai kam Dr. Maier ."),
        ("Es kostet 1.234,50 Euro (ca. 5 %).", "Es kostet 1.234,50 Euro ( ca. 5 % ) ."),
        ("Die US-Regierung … wartet", "Die US ##AT##-##AT## Regierung ... wartet"),
        ("A & B", "A &amp; B"),
        ("Wie geht’s?", "Wie geht &apos; s ?"),  # only English and Romance languages keep a side
    ],
)
def test_german_is_normalised_and_tokenised(sentence, expected):
    assert bleu.prepare_as_paper([sentence], "de") == [expected]


def test_a_language_is_the_same_wherever_it_was_read():
    for language in json.loads('["de", "fr"]'):  # equal to the text in a program, but another
        found = bleu.prepare_as_paper(["Die US-Regierung"], language)
        assert ("##AT##" in found[0]) == (language == "de")


def test_a_language_that_moses_does_not_know_has_english_abbreviations_alone():
    sentence = """Mr. Smith's "house", he said."""
    found = [bleu.prepare_as_paper([sentence], language)[0] for language in ("xx", "en")]
    assert found[0] == "Mr. Smith &apos; s &quot; house &quot; , he said ."
    assert found[1] == "Mr. Smith &apos;s &quot; house , &quot; he said ."
    assert "+moses.xx." in bleu.score(["a"], ["a"], "xx")[bleu.PAPER]["signature"]


def test_french_compounds_stay_whole():
    assert bleu.prepare_as_paper(["L'après-midi, il dort."], "fr") == [
        "L&apos; après-midi , il dort ."
    ]


def multi_bleu(hypotheses, references):
    """Corpus BLEU as multi-bleu.perl defines it, by loops."""
    correct, total, words, reference_words = [0] * 4, [0] * 4, 0, 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ours, theirs = hypothesis.split(), reference.split()
        words += len(ours)
        reference_words += len(theirs)
        for n in range(1, 5):
            left = collections.Counter(tuple(theirs[i : i + n]) for i in range(len(theirs) - n + 1))
            for i in range(len(ours) - n + 1):
                total[n - 1] += 1
                if left[tuple(ours[i : i + n])] > 0:
                    left[tuple(ours[i : i + n])] -= 1
                    correct[n - 1] += 1
    if not all(correct):
        return 0.0
    brevity = min(1.0, math.exp(1 - reference_words / words))
    precisions = [part / whole for part, whole in zip(correct, total, strict=True)]
    return 100 * brevity * math.prod(precisions) ** 0.25


REFERENCES = [
    "„Wir werden 2,5 Mio. Euro zahlen“, sagte der US-Präsident am 4. Juli.",
    "Die Nord-Süd-Achse ist laut Dr. Müller fertig.",
    "Das Haus ist klein.",
]
HYPOTHESES = [
    '"Wir werden 2,5 Mio. Euro zahlen", sagte der US-Präsident am 4. Juli.',
    "Die Nord-Süd-Achse ist nach Dr. Müller fertig.",
    "Das Haus ist sehr klein.",
]


def test_the_score_is_multi_bleus():
    prepared = [bleu.prepare_as_paper(side, "de") for side in (HYPOTHESES, REFERENCES)]
    expected = multi_bleu(*prepared)
    found = bleu.score(HYPOTHESES, REFERENCES, "de")[bleu.PAPER]
    assert found["score"] == pytest.approx(expected)
    # By hand. The first pair is equal once its quotes are.
    assert prepared[0][0] == prepared[1][0]
    tokens = [len(sentence.split()) for sentence in prepared[0]]
    assert tokens == [18, 12, 6]
    precisions = [(18 + 11 + 5) / 36, (17 + 9 + 3) / 33, (16 + 7 + 1) / 30, (15 + 5 + 0) / 27]
    assert expected == pytest.approx(100 * math.prod(precisions) ** 0.25)
    # sacreBLEU's own tokenisation sees the quotes and does not see the compounds.
    assert bleu.score(HYPOTHESES, REFERENCES, "de")[bleu.MAIN]["score"] < found["score"]


def test_random_texts_score_as_in_loops():
    random = np.random.default_rng(0)
    vocabulary = "der Hund läuft schnell-weg . , und die Katze".split()
    for _ in range(20):
        references = [" ".join(random.choice(vocabulary, 12)) for _ in range(30)]
        hypotheses = [
            " ".join(word for word in reference.split() if random.random() < 0.9)
            for reference in references
        ]
        prepared = [bleu.prepare_as_paper(side, "de") for side in (hypotheses, references)]
        found = bleu.score(hypotheses, references, "de")
        assert found["paper"]["score"] == pytest.approx(multi_bleu(*prepared))
        assert found["paper_lowercase"]["score"] == pytest.approx(
            multi_bleu(*[[sentence.lower() for sentence in side] for side in prepared])
        )


def test_nothing_in_common_scores_nothing():
    assert bleu.score(["a b c d"], ["e f g h"], "de")[bleu.PAPER]["score"] == 0


def test_the_signature_names_language_compounds_and_version():
    found = bleu.score(["a"], ["a"], "de")["paper_lowercase"]["signature"]
    assert "tok:punctuation+moses.de." in found
    assert found.count("+atat") == 1
    assert "case:lc" in found
    assert "smooth:none" in found
    assert "atat" not in bleu.score(["a"], ["a"], "fr")[bleu.PAPER]["signature"]
