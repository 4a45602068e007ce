"""The toy corpus: correct German, trees, and held-out combinations."""

import inspect
import itertools
import re
from typing import Any

import pytest

from configs import toy as toy_config
from tests import tiny
from transformer_jax.data import toy, trees


@pytest.fixture(scope="module")
def sets():
    data = toy_config.get_config().to_dict()["data"]
    return toy.sentences(data["toy_pairs"], 2 * data["toy_held_out_pairs"], data["toy_seed"])


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
    shown = re.findall(r"^  (\S.*)\n    (\S.*)$", toy.__doc__ or "", re.MULTILINE)
    assert len(shown) == 10
    assert set(shown) <= {(pair.english, pair.german) for pair in sets[0]}


def load(seed, **fields):
    return toy.load(tiny.data(toy_pairs=50, toy_held_out_pairs=5, toy_seed=seed, **fields))


def test_the_seed_determines_the_corpus():
    draw: Any = inspect.unwrap(toy.sentences)  # conftest keeps what it has drawn
    assert draw(7, 50, 10) == draw(7, 50, 10)
    assert load(7).digest != load(8).digest


def test_directions_mirror_each_other():
    forth, back = load(0), load(0, source_language="de", target_language="en")
    assert list(forth.train.read()) == [(b, a) for a, b in back.train.read()]


# Written by hand, from a grammar book rather than from the rules.
PAIRS = [
    ("The dog sees the beautiful man.", "Der Hund sieht den schönen Mann."),
    (
        "Today a queen gives the neighbour no red hat.",
        "Heute gibt eine Königin dem Nachbarn keinen roten Hut.",
    ),
    ("The doctors fetch her horse.", "Die Ärztinnen holen ihr Pferd ab."),
    (
        "Anna believes that the boy fetches a small clock.",
        "Anna glaubt, dass der Junge eine kleine Uhr abholt.",
    ),
    (
        "Has the man chosen twenty-three red bears?",
        "Hat der Mann dreiundzwanzig rote Bären ausgesucht?",
    ),
    ("The bear will wait behind the school.", "Der Bär wird hinter der Schule warten."),
    (
        "Peter sells the school clock because it is heavy.",
        "Peter verkauft die Schuluhr, weil sie schwer ist.",
    ),
    (
        "Greta picks her tables although they are new.",
        "Greta hebt ihre Tische auf, obwohl sie neu sind.",
    ),
    (
        "The bears that the queen seeks can stop.",
        "Die Bären, die die Königin sucht, können aufhören.",
    ),
    ("The boy that finds the dog listens.", "Der Junge, der den Hund findet, hört zu."),
    (
        "Clara laughs when she must lend the boys her book.",
        "Clara lacht, wenn sie den Jungen ihr Buch ausleihen muss.",
    ),
    ("A small picture in the garden.", "Ein kleines Bild in dem Garten."),
]


def english(text):
    return " ".join(re.findall(r" ([^ ()]+)\)", text)).lower()


def derivations(symbol, sentence):
    """Yields the phrases of a symbol that may occur in a sentence, by exhaustive search."""
    if symbol in toy.WORDS:
        for word in toy.WORDS[symbol]:
            brackets = [form for form in word.forms.values() if form.startswith("(")]
            if any(f" {english(form)} " in sentence for form in brackets):
                yield word
        return
    for rule in toy.RULES[symbol]:
        choices = [list(derivations(name, sentence)) for _, name in rule.slots]
        for parts in itertools.product(*choices):
            slots = [slot for slot, _ in rule.slots]
            phrase = toy.Phrase(rule, dict(zip(slots, parts, strict=True)))
            has_features = "{f}" in rule.forms.get("en", "{f}")
            if has_features or f" {english(f'{phrase}')} " in sentence:
                yield phrase


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_translations_are_those_of_a_grammar_book(source, target):
    words = f" {source[:-1].lower()} {source[-1]} "
    phrases = list(derivations("sentence", words))
    whole = [phrase for phrase in phrases if f" {english(f'{phrase}')} " == words]
    assert {toy.sentence_of(phrase, frozenset()).german for phrase in whole} == {target}


def test_trees_have_the_labels_of_the_penn_treebank():
    (whole,) = [
        phrase
        for phrase in derivations("sentence", " the boy that finds the dog listens . ")
        if english(f"{phrase}") == "the boy that finds the dog listens ."
    ]
    assert trees.bracketed(toy.sentence_of(whole, frozenset()).tree) == (
        "(S (NP (NP (DT The) (NN boy)) (SBAR (WHNP (WDT that)) (S (VP (VBZ finds) "
        "(NP (DT the) (NN dog)))))) (VP (VBZ listens)) (. .))"
    )
