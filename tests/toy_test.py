"""The toy corpus: German that a German would write, and combinations held out."""

import inspect
import re
from typing import Any

import pytest

from configs import toy as toy_config
from tests import tiny
from transformer_jax.data.toy import clauses, generator, grammar


@pytest.fixture(scope="module")
def sets():
    data = toy_config.get_config().to_dict()["data"]
    return generator.sentences(data["toy_pairs"], 2 * data["toy_held_out_pairs"], data["toy_seed"])


def test_it_is_as_large_as_promised_and_disjoint(sets):
    train, held_out = sets
    data = toy_config.get_config().to_dict()["data"]
    assert (len(train), len(held_out)) == (data["toy_pairs"], 2 * data["toy_held_out_pairs"])
    for side in ("english", "german"):
        lines = [getattr(pair, side) for pair in train + held_out]
        assert len(set(lines)) == len(lines)


def test_development_pairs_hold_out_word_combinations(sets):
    train, held_out = sets
    known = frozenset().union(*(pair.combinations for pair in train))
    for pair in held_out:
        assert not pair.combinations <= known
    # Each word alone is well known.
    words = {word for combination in known for word in combination}
    assert {word for pair in held_out for c in pair.combinations for word in c} <= words


def test_the_docstring_shows_ten_pairs(sets):
    shown = re.findall(r"^  (\S.*)\n    (\S.*)$", generator.__doc__ or "", re.MULTILINE)
    assert len(shown) == 10
    assert set(shown) <= {(pair.english, pair.german) for pair in sets[0]}


def load(seed, **fields):
    return generator.load(tiny.data(toy_pairs=50, toy_held_out_pairs=5, toy_seed=seed, **fields))


def test_the_seed_determines_the_corpus():
    draw: Any = inspect.unwrap(generator.sentences)  # conftest keeps what it has drawn
    assert draw(7, 50, 10) == draw(7, 50, 10)
    assert load(7).digest != load(8).digest


def test_directions_mirror_each_other():
    forth, back = load(0), load(0, source_language="de", target_language="en")
    assert list(forth.train.read()) == [(b, a) for a, b in back.train.read()]


NOUNS = {noun.en: noun for kind in grammar.NOUNS.values() for noun in kind}
VERBS = {
    verb.en: verb
    for verbs in (grammar.TRANSITIVE, grammar.DITRANSITIVE, grammar.INTRANSITIVE)
    for verb in verbs
}
PERFECT = grammar.AUXILIARIES[3]


def phrase(noun, determiner="the", **options):
    plural = options.pop("plural", False)
    return grammar.NounPhrase(NOUNS[noun], plural, determiner, **options)


# Written by hand, from a grammar book rather than from the generator.
CASES = [
    (
        clauses.Clause(VERBS["see"], phrase("dog"), direct=phrase("man", adjective="old")),
        "second",
        "the dog sees the old man",
        "der Hund sieht den alten Mann",
    ),
    (
        clauses.Clause(
            VERBS["give"],
            phrase("queen", "a"),
            phrase("neighbour"),
            phrase("hat", "no", adjective="red"),
            time="today",
        ),
        "time",
        "a queen gives the neighbour no red hat today",
        "heute gibt eine Königin dem Nachbarn keinen roten Hut",
    ),
    (
        clauses.Clause(
            VERBS["fetch"], phrase("doctor", plural=True), direct=phrase("horse", "her")
        ),
        "second",
        "the doctors fetch her horse",
        "die Ärztinnen holen ihr Pferd ab",
    ),
    (
        clauses.Clause(
            VERBS["fetch"], phrase("boy"), direct=phrase("clock", "a", adjective="small")
        ),
        "last",
        "the boy fetches a small clock",
        "der Junge eine kleine Uhr abholt",
    ),
    (
        clauses.Clause(
            VERBS["choose"],
            phrase("judge"),
            direct=phrase("calf", "", plural=True, count=23, adjective="red"),
            auxiliary=PERFECT,
        ),
        "first",
        "the judge has chosen twenty-three red calves",
        "hat der Richter dreiundzwanzig rote Kälber ausgesucht",
    ),
    (
        clauses.Clause(
            VERBS["wait"],
            phrase("bear"),
            place=("behind", phrase("door", modifier="garden", adjective="heavy")),
            auxiliary=grammar.AUXILIARIES[0],
        ),
        "last",
        "the bear will wait behind the heavy garden door",
        "der Bär hinter der schweren Gartentür warten wird",
    ),
    (
        clauses.Clause(
            VERBS["lend"], phrase("judge"), phrase("dog", plural=True), phrase("book", "his")
        ),
        "second",
        "the judge lends the dogs his book",
        "der Richter leiht den Hunden sein Buch aus",
    ),
]


@pytest.mark.parametrize(("clause", "order", "english", "german"), CASES)
def test_clauses_are_right_in_both_languages(clause, order, english, german):
    assert " ".join(clause.english().words) == english
    assert clause.german(order) == german


def test_pronouns_agree_with_their_noun():
    clock, table = phrase("clock"), phrase("table")
    assert (
        *clauses.Pronoun(clock).english().words,
        clauses.Pronoun(clock).german("nominative"),
    ) == ("it", "sie")
    assert (
        *clauses.Pronoun(table).english().words,
        clauses.Pronoun(table).german("nominative"),
    ) == ("it", "er")


@pytest.mark.parametrize(
    ("value", "english", "german"),
    [
        (2, "two", "zwei"),
        (12, "twelve", "zwölf"),
        (21, "twenty-one", "einundzwanzig"),
        (40, "forty", "vierzig"),
        (67, "sixty-seven", "siebenundsechzig"),
    ],
)
def test_numbers_are_said_the_german_way_round(value, english, german):
    assert grammar.number(value) == (english, german)
