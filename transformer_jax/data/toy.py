"""The embedded corpus: English–German pairs of a synchronous grammar, with English parse trees.

Each rule of the grammar generates an English tree, in the brackets of the Penn Treebank, and its
German translation. Slots such as {subject} are filled once and shared by both sides. German needs
what English does not say: gender and case of articles and adjectives, the verb second in main
clauses and last in subordinate ones, separable verbs, pronouns that agree with a noun of the clause
before, compounds of one word, numbers with the ones first.

Ten pairs of the training set of `configs/toy.py`:

  The small letters in the city.
    Die kleinen Briefe in der Stadt.
  Twenty-five red flowers.
    Fünfundzwanzig rote Blumen.
  The queens that the neighbour seeks can listen.
    Die Königinnen, die der Nachbar sucht, können zuhören.
  Does the strange horse fetch the doors?
    Holt das seltsame Pferd die Türen ab?
  Clara sells her garden door because it is red.
    Clara verkauft ihre Gartentür, weil sie rot ist.
  Felix believes that the queens can lend the boys her flowers.
    Felix glaubt, dass die Königinnen den Jungen ihre Blumen ausleihen können.
  Greta fetches a table when it is red.
    Greta holt einen Tisch ab, wenn er rot ist.
  Clara has chosen no letter.
    Clara hat keinen Brief ausgesucht.
  Anna sells the garden pictures although they are beautiful.
    Anna verkauft die Gartenbilder, obwohl sie schön sind.
  Thomas sees the table although it is beautiful.
    Thomas sieht den Tisch, obwohl er schön ist.

Development and test sets hold out combinations of words, not only sentences. One in eight
combinations of verb and object, of adjective and noun, and of the two parts of a compound occurs in
no training sentence, and each development and test sentence has at least one of them.
"""

import bisect
import dataclasses
import functools
import hashlib
import itertools
import random
import re
from collections.abc import Mapping
from typing import final

from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import trees

HELD_OUT_ONE_IN = 8  # one in eight combinations is reserved for development and test sentences

Combination = tuple[str, str]

# --- Words ------------------------------------------------------------------------------------

CASES = ("nom", "acc", "dat")


@final
@dataclasses.dataclass(frozen=True)
class Word:
    """A word with all its forms; a format spec selects one, as in f"{word:acc}".

    Attributes:
      forms: the forms by name. A noun's English form is "", a verb's are "s", "p", "base" and
        "participle".
      gender: of a noun, m, f or n; p for a plural.
      head: the word's name in combinations.
    """

    forms: Mapping[str, str]
    gender: str = ""
    head: str = ""

    def __format__(self, form: str) -> str:
        return self.forms[form]

    @property
    def number(self) -> str:
        """Either s (singular) or p (plural)."""
        return "p" if self.gender == "p" else "s"


def _nouns(kind: str, table: str) -> dict[str, list[Word]]:
    """Returns the singulars and the plurals of a kind of nouns.

    Args:
      kind: the name of the nouns in the grammar.
      table: for each noun its English singular and plural, German singular, gender and German
        plural, and for weak masculines the form of the other cases.
    """
    words: dict[str, list[Word]] = {f"{kind}.s": [], f"{kind}.p": []}
    for line in table.strip().splitlines():
        english, english_plural, german, gender, plural, *oblique = line.split()
        dative_plural = plural if plural[-1] in "ns" else f"{plural}n"
        singulars = (german, *(oblique or [german]) * 2)
        plurals = (plural, plural, dative_plural)
        words[f"{kind}.s"].append(_noun(f"(NN {english})", singulars, gender, english))
        words[f"{kind}.p"].append(_noun(f"(NNS {english_plural})", plurals, "p", english))
    return words


def _noun(english: str, german: tuple[str, ...], gender: str, head: str) -> Word:
    """Returns a noun, whose form "second" of a case is the second part of a compound."""
    forms = {"": english, **dict(zip(CASES, german, strict=True))}
    forms |= {f"second {case}": forms[case].lower() for case in CASES}
    return Word(forms, gender, head)


def _names(table: str) -> list[Word]:
    return [
        Word({"": f"(NNP {name})", **dict.fromkeys(CASES, name)}, gender, name)
        for name, gender in (entry.split(":") for entry in table.split())
    ]


def _verbs(table: str) -> list[Word]:
    """Returns verbs; forms with de are German.

    Args:
      table: for each verb its English base form, third person and participle, German third person,
        infinitive and participle, and the prefix of a separable verb. The German third person and
        infinitive are given without the prefix.
    """
    words = []
    for line in table.strip().splitlines():
        base, third, participle, de_third, de_base, de_participle, *prefix = line.split()
        forms = {
            "s": f"(VBZ {third})",
            "p": f"(VBP {base})",
            "base": f"(VB {base})",
            "participle": f"(VBN {participle})",
            "de s": de_third,
            "de p": de_base,
            "de base": "".join(prefix) + de_base,
            "de participle": de_participle,
            "prefix": "".join(prefix),
        }
        words.append(Word(forms, head=base))
    return words


def _pairs(table: str) -> list[Word]:
    """Returns words with one English and one German form, given as "bracket = German"."""
    entries = (line.strip().split(" = ") for line in table.strip().splitlines())
    return [
        Word({"": english, "de": german}, head=re.sub(r"[()]", "", english).split()[-1])
        for english, german in entries
    ]


def _adjectives(*english: str) -> list[Word]:
    german = {
        "new": "neu",
        "small": "klein",
        "red": "rot",
        "green": "grün",
        "beautiful": "schön",
        "heavy": "schwer",
        "young": "jung",
        "strange": "seltsam",
    }
    return [Word({"": f"(JJ {word})", "de": german[word]}, head=word) for word in english]


def _numbers(values: list[int]) -> list[Word]:
    """Returns cardinal numbers of one digit or in the twenties, German with the ones first."""
    english = "two three four five six seven eight nine".split()
    german = "zwei drei vier fünf sechs sieben acht neun".split()
    words = []
    for value in values:
        tens, ones = divmod(value, 10)
        pair = english[ones - 2], german[ones - 2]
        if tens:
            pair = f"twenty-{pair[0]}", f"{pair[1]}undzwanzig"
        words.append(Word({"": f"(CD {pair[0]})", "de": pair[1]}, head=pair[0]))
    return words


def _auxiliary(english: tuple[str, str], german: tuple[str, str], governs: str) -> Word:
    """Returns an auxiliary from its singulars and plurals, and the verb form that it governs."""
    return Word(dict(zip(("s", "p", "de s", "de p"), english + german, strict=True)), head=governs)


WORDS: dict[str, list[Word]] = {
    **_nouns(
        "person",
        """
        man men Mann m Männer
        boy boys Junge m Jungen Jungen
        doctor doctors Ärztin f Ärztinnen
        queen queens Königin f Königinnen
        neighbour neighbours Nachbar m Nachbarn Nachbarn
        """,
    ),
    "name": _names("Peter:m Thomas:m Martin:m Felix:m Anna:f Julia:f Clara:f Greta:f"),
    **_nouns(
        "animal",
        """
        dog dogs Hund m Hunde
        horse horses Pferd n Pferde
        cow cows Kuh f Kühe
        bear bears Bär m Bären Bären
        """,
    ),
    **_nouns(
        "thing",
        """
        letter letters Brief m Briefe
        book books Buch n Bücher
        flower flowers Blume f Blumen
        hat hats Hut m Hüte
        """,
    ),
    **_nouns(
        "furniture",
        """
        table tables Tisch m Tische
        picture pictures Bild n Bilder
        clock clocks Uhr f Uhren
        door doors Tür f Türen
        """,
    ),
    **_nouns(
        "place",
        """
        garden gardens Garten m Gärten
        city cities Stadt f Städte
        village villages Dorf n Dörfer
        school schools Schule f Schulen
        """,
    ),
    "modifier": _pairs(
        """
        (NN kitchen) = Küchen
        (NN garden) = Garten
        (NN city) = Stadt
        (NN school) = Schul
        """
    ),
    "adjective.person": _adjectives("small", "beautiful", "young", "strange"),
    "adjective.animal": _adjectives("small", "beautiful", "young", "strange", "heavy", "red"),
    "adjective.thing": _adjectives("small", "beautiful", "strange", "heavy", "red", "green", "new"),
    "transitive": _verbs(
        """
        see sees seen sieht sehen gesehen
        find finds found findet finden gefunden
        seek seeks sought sucht suchen gesucht
        sell sells sold verkauft verkaufen verkauft
        fetch fetches fetched holt holen abgeholt ab
        pick picks picked hebt heben aufgehoben auf
        choose chooses chosen sucht suchen ausgesucht aus
        """
    ),
    "ditransitive": _verbs(
        """
        give gives given gibt geben gegeben
        show shows shown zeigt zeigen gezeigt
        lend lends lent leiht leihen ausgeliehen aus
        return returns returned gibt geben zurückgegeben zurück
        """
    ),
    "intransitive": _verbs(
        """
        sleep sleeps slept schläft schlafen geschlafen
        laugh laughs laughed lacht lachen gelacht
        wait waits waited wartet warten gewartet
        listen listens listened hört hören zugehört zu
        stop stops stopped hört hören aufgehört auf
        """
    ),
    "saying": _verbs(
        """
        say says said sagt sagen gesagt
        believe believes believed glaubt glauben geglaubt
        know knows known weiß wissen gewusst
        """
    ),
    "auxiliary": [
        _auxiliary(("(MD will)", "(MD will)"), ("wird", "werden"), "base"),
        _auxiliary(("(MD must)", "(MD must)"), ("muss", "müssen"), "base"),
        _auxiliary(("(MD can)", "(MD can)"), ("kann", "können"), "base"),
        _auxiliary(("(VBZ has)", "(VBP have)"), ("hat", "haben"), "participle"),
    ],
    "time": _pairs(
        """
        (NP (NN today)) = heute
        (ADVP (RB often)) = oft
        (ADVP (RB now)) = jetzt
        (PP (IN in) (NP (NN summer))) = im Sommer
        (PP (IN on) (NP (NNP Monday))) = am Montag
        """
    ),
    "conjunction": _pairs(
        """
        (IN because) = weil
        (IN although) = obwohl
        (WHADVP (WRB when)) = wenn
        """
    ),
    "preposition": _pairs(
        """
        (IN in) = in
        (IN behind) = hinter
        (IN near) = bei
        """
    ),
    "number": _numbers([*range(2, 7), *range(22, 27)]),
    # Determiners of objects, inflected as ein.
    "owner": _pairs("(PRP$ his) = sein\n(PRP$ her) = ihr\n(DT no) = kein"),
}


def _paradigm(table: str) -> Word:
    """Returns the forms of the three cases, each for m, f, n and p; - is an empty form."""
    forms = table.replace("-", "").split(" ")
    names = [f"{case} {gender}" for case in CASES for gender in "mfnp"]
    return Word(dict(zip(names, forms, strict=True)))


INFLECTIONS = ("weak", "mixed", "strong")  # of adjectives
# Words that agree with another one, and endings. Relative pronouns are forms of THE too.
AGREEING = {
    "THE": _paradigm("der die das die den die das die dem der dem den"),
    "EIN": _paradigm("- e - e en e - e em er em en"),  # the endings of ein, kein, sein and ihr
    "WEAK": _paradigm("e e e en en e e en en en en en"),  # adjectives after the definite article
    "MIXED": _paradigm("er e es en en e es en en en en en"),  # after ein, kein, sein and ihr
    "STRONG": _paradigm("- - - e - - - e - - - en"),  # after a number
    "HE": Word({"m": "(PRP he)", "f": "(PRP she)", "p": "(PRP they)"}),
    "IT": Word({"s": "(PRP it)", "p": "(PRP they)"}),
    "ER": Word({"m": "er", "f": "sie", "n": "es", "p": "sie"}),
    "DOES": Word({"s": "(VBZ does)", "p": "(VBP do)"}),
    "IS": Word({"s": "(VBZ is)", "p": "(VBP are)"}),
    "IST": Word({"s": "ist", "p": "sind"}),
}

# --- Rules ------------------------------------------------------------------------------------


@final
@dataclasses.dataclass(frozen=True)
class Rule:
    """One way to write a phrase in both languages.

    A slot, {name:form feature}, stands for a form of another phrase, in whose text the feature
    replaces {f}: {subject:de acc} is the subject's form "de" in the accusative. {name} alone is the
    form "en".

    Attributes:
      weight: relative probability among the rules of the same symbol.
      forms: the text of each form.
      symbols: the symbol that a slot is drawn from, where it differs from the slot's name.
      head: the slot that determines the gender, the number and the head word of the phrase.
      combination: two slots whose head words may be a held-out combination.
    """

    weight: int
    forms: Mapping[str, str]
    symbols: Mapping[str, str] = dataclasses.field(default_factory=dict)
    head: str = ""
    combination: tuple[str, str] | None = None

    @functools.cached_property
    def slots(self) -> list[tuple[str, str]]:
        """The slots and their symbols, in the order in which they are drawn."""
        names = dict.fromkeys(re.findall(r"{([a-z]{2,})", " ".join(self.forms.values())))
        return [(name, self.symbols.get(name, name)) for name in names]


def _noun_phrases(kind: str, adjective: str) -> dict[str, list[Rule]]:
    """Returns the noun phrases of one kind.

    The feature of their German forms is the case. A nominal is a noun phrase without its
    determiner; its German form is named after the inflection of the adjective.
    """
    rules: dict[str, list[Rule]] = {}
    for number in "sp":
        symbols = {"noun": f"{kind}.{number}", "adjective": adjective}
        noun = "{noun:{f}}"
        nominals = [Rule(6, {"en": "{noun}", **dict.fromkeys(INFLECTIONS, noun)}, symbols, "noun")]
        inflected = {
            name: f"{{adjective:de}}{{{name.upper()}:{{f}} {{noun.gender}}}} {noun}"
            for name in INFLECTIONS
        }
        described = {"en": "{adjective} {noun}", **inflected}
        nominals.append(Rule(3, described, symbols, "noun", ("adjective", "noun")))
        if kind == "furniture":
            compound = dict.fromkeys(INFLECTIONS, "{modifier:de}{noun:second {f}}")
            forms = {"en": "{modifier} {noun}", **compound}
            nominals.append(Rule(4, forms, symbols, "noun", ("modifier", "noun")))
        rules[f"nominal.{kind}.{number}"] = nominals
    the = {
        "en": "(NP (DT the) {nominal})",
        "de": "{THE:{f} {nominal.gender}} {nominal:weak {f}}",
    }
    indefinite = {
        "en": "(NP (DT a) {nominal})",
        "de": "ein{EIN:{f} {nominal.gender}} {nominal:mixed {f}}",
    }
    counted = {"en": "(NP {number} {nominal})", "de": "{number:de} {nominal:strong {f}}"}
    owned = {
        "en": "(NP {owner} {nominal})",
        "de": "{owner:de}{EIN:{f} {nominal.gender}} {nominal:mixed {f}}",
    }
    singular, plural = ({"nominal": f"nominal.{kind}.{number}"} for number in "sp")
    definite = [Rule(5, the, singular, "nominal"), Rule(3, the, plural, "nominal")]
    subjects = [
        *definite,
        Rule(3, indefinite, singular, "nominal"),
        Rule(1, counted, plural, "nominal"),
    ]
    if kind == "person":
        subjects.append(Rule(10, {"en": "(NP {name})", "de": "{name:{f}}"}, {}, "name"))
    objects = [*subjects, Rule(4, owned, singular, "nominal"), Rule(2, owned, plural, "nominal")]
    rules[f"definite.{kind}"] = definite
    rules[f"subject.{kind}"] = subjects
    rules[f"object.{kind}"] = objects
    return rules


def _either(weights: Mapping[str, int]) -> list[Rule]:
    """Returns rules for a noun phrase of one of several symbols."""
    forms = {"en": "{phrase}", "de": "{phrase:de {f}}"}
    return [Rule(weight, forms, {"phrase": name}, "phrase") for name, weight in weights.items()]


def _verbs_of(frame: str) -> list[Rule]:
    """Returns the verb of a clause, alone or with an auxiliary; the feature is its number.

    In English, "begin" and "end" surround the objects; in a question, "ask" precedes the subject,
    and "asked" and "ended" surround the objects. In German, "finite" is the second
    word of a main clause, "rest" is its end, and "last" is the whole verb at the end of a
    subordinate clause.
    """
    alone = {
        "begin": "(VP {verb:{f}}",
        "ask": "{DOES:{f}}",
        "asked": "(VP {verb:base}",
        "end": ")",
        "ended": ")",
        "finite": "{verb:de {f}}",
        "rest": "{verb:prefix}",
        "last": "{verb:prefix}{verb:de {f}}",
    }
    with_auxiliary = {
        "begin": "(VP {auxiliary:{f}} (VP {verb:{auxiliary.head}}",
        "ask": "{auxiliary:{f}}",
        "asked": "(VP {verb:{auxiliary.head}}",
        "end": "))",
        "ended": ")",
        "finite": "{auxiliary:de {f}}",
        "rest": "{verb:de {auxiliary.head}}",
        "last": "{verb:de {auxiliary.head}} {auxiliary:de {f}}",
    }
    return [
        Rule(3, alone, {"verb": frame}, "verb"),
        Rule(2, with_auxiliary, {"verb": frame}, "verb"),
    ]


def _predicate(
    weight: int, frame: str, english: str, german: str, symbols: Mapping[str, str]
) -> Rule:
    """Returns a verb with its objects; German forms are named as in `_verbs_of`."""
    forms = {
        "en": f"{{verb:begin {{f}}}} {english}{{verb:end}}",
        "ask": "{verb:ask {f}}",
        "asked": f"{{verb:asked}} {english}{{verb:ended}}",
        "finite": "{verb:finite {f}}",
        "middle": german,
        "rest": "{verb:rest}",
        "last": "{verb:last {f}}",
    }
    combination = ("verb", "object") if "{object}" in english else None
    return Rule(weight, forms, {"verb": f"verb.{frame}", **symbols}, "", combination)


# Predicates without and with place or time.
_SHORT = [
    _predicate(3, "intransitive", "", "", {}),
    _predicate(4, "transitive", "{object}", "{object:de acc}", {}),
    _predicate(
        3,
        "ditransitive",
        "{recipient} {object}",
        "{recipient:de dat} {object:de acc}",
        {"recipient": "object.person", "object": "object.thing"},
    ),
]
_LONG = [
    _predicate(2, "intransitive", "{place}", "{place:de}", {}),
    _predicate(2, "intransitive", "{time}", "{time:de}", {}),
    _predicate(2, "transitive", "{object} {place}", "{object:de acc} {place:de}", {}),
    _predicate(3, "transitive", "{object} {time}", "{time:de} {object:de acc}", {}),
]
_SENTENCES = [
    Rule(
        6,
        {
            "en": "(S {subject} {short:en {subject.number}} (. .))",
            "de": "{subject:de nom} {short:finite {subject.number}} {short:middle} {short:rest}.",
        },
    ),
    Rule(
        3,
        {
            "en": "(S {subject} {long:en {subject.number}} (. .))",
            "de": "{subject:de nom} {long:finite {subject.number}} {long:middle} {long:rest}.",
        },
    ),
    Rule(
        2,
        {
            "en": "(S {time} {subject} {short:en {subject.number}} (. .))",
            "de": "{time:de} {short:finite {subject.number}} {subject:de nom} {short:middle} "
            "{short:rest}.",
        },
    ),
    Rule(
        2,
        {
            "en": "(SQ {short:ask {subject.number}} {subject} {short:asked} (. ?))",
            "de": "{short:finite {subject.number}} {subject:de nom} {short:middle} {short:rest}?",
        },
    ),
    Rule(  # the man sells the clock because it is new
        4,
        {
            "en": "(S {subject} (VP {verb:{subject.number}} {object} (SBAR {conjunction} "
            "(S (NP {IT:{object.number}}) (VP {IS:{object.number}} (ADJP {adjective}))))) (. .))",
            "de": "{subject:de nom} {verb:de {subject.number}} {object:de acc} {verb:prefix}, "
            "{conjunction:de} {ER:{object.gender}} {adjective:de} {IST:{object.number}}.",
        },
        {
            "subject": "subject.person",
            "verb": "transitive",
            "object": "object.furniture",
            "adjective": "adjective.thing",
        },
        combination=("verb", "object"),
    ),
    Rule(  # the man waits because he has seen the dog
        2,
        {
            "en": "(S {subject} (VP {verb:{subject.number}} (SBAR {conjunction} "
            "(S (NP {HE:{subject.gender}}) {short:en {subject.number}}))) (. .))",
            "de": "{subject:de nom} {verb:de {subject.number}} {verb:prefix}, {conjunction:de} "
            "{ER:{subject.gender}} {short:middle} {short:last {subject.number}}.",
        },
        {"subject": "subject.person", "verb": "intransitive"},
    ),
    Rule(
        3,
        {
            "en": "(S (NP {name}) (VP {saying:s} (SBAR (IN that) "
            "(S {subject} {short:en {subject.number}}))) (. .))",
            "de": "{name:nom} {saying:de s}, dass {subject:de nom} {short:middle} "
            "{short:last {subject.number}}.",
        },
    ),
    Rule(  # the man that sees the dog sleeps
        3,
        {
            "en": "(S (NP {antecedent} (SBAR (WHNP (WDT that)) (S (VP "
            "{verb:{antecedent.number}} {object})))) {acts:en {antecedent.number}} (. .))",
            "de": "{antecedent:de nom}, {THE:nom {antecedent.gender}} {object:de acc} "
            "{verb:prefix}{verb:de {antecedent.number}}, {acts:finite {antecedent.number}} "
            "{acts:rest}.",
        },
        {"verb": "transitive"},
        combination=("verb", "object"),
    ),
    Rule(  # the dog that the man sees sleeps
        3,
        {
            "en": "(S (NP {antecedent} (SBAR (WHNP (WDT that)) (S {subject} (VP "
            "{verb:{subject.number}})))) {acts:en {antecedent.number}} (. .))",
            "de": "{antecedent:de nom}, {THE:acc {antecedent.gender}} {subject:de nom} "
            "{verb:prefix}{verb:de {subject.number}}, {acts:finite {antecedent.number}} "
            "{acts:rest}.",
        },
        {"subject": "subject.person", "verb": "transitive"},
        combination=("verb", "antecedent"),
    ),
    # Short pairs, from which a model first learns which word means which.
    Rule(4, {"en": "(FRAG {phrase} (. .))", "de": "{phrase:de nom}."}, {"phrase": "object"}),
    Rule(
        2,
        {"en": "(FRAG (NP {phrase} {place}) (. .))", "de": "{phrase:de nom} {place:de}."},
        {"phrase": "object"},
    ),
]
RULES: dict[str, list[Rule]] = {
    **_noun_phrases("person", "adjective.person"),
    **_noun_phrases("animal", "adjective.animal"),
    **_noun_phrases("thing", "adjective.thing"),
    **_noun_phrases("furniture", "adjective.thing"),
    "subject": _either({"subject.person": 2, "subject.animal": 1}),
    "object": _either(
        {"object.person": 1, "object.animal": 1, "object.thing": 1, "object.furniture": 1}
    ),
    "antecedent": _either({"definite.person": 1, "definite.animal": 1}),
    "place": [
        Rule(
            1,
            {
                "en": "(PP {preposition} (NP (DT the) {noun}))",
                "de": "{preposition:de} {THE:dat {noun.gender}} {noun:dat}",
            },
            {"noun": "place.s"},
        )
    ],
    "verb.intransitive": _verbs_of("intransitive"),
    "verb.transitive": _verbs_of("transitive"),
    "verb.ditransitive": _verbs_of("ditransitive"),
    "acts": _SHORT[:1],
    "short": _SHORT,
    "long": _LONG,
    "sentence": _SENTENCES,
}

# --- Sentences --------------------------------------------------------------------------------


@final
class Phrase:
    """A drawn phrase: a rule and the phrases in its slots."""

    def __init__(self, rule: Rule, parts: dict[str, "Phrase | Word"]) -> None:
        self._forms = rule.forms
        self._values: dict[str, object] = {**AGREEING, **parts}
        if rule.head:
            head = parts[rule.head]
            self.gender: str = head.gender
            self.number: str = head.number
            self.head: str = head.head

    def __format__(self, spec: str) -> str:
        form, _, feature = spec.partition(" ")
        return self._forms[form or "en"].format_map(self._values | {"f": feature})


@final
@dataclasses.dataclass(frozen=True)
class Sentence:
    """A pair of sentences.

    Attributes:
      bracketed: the tree of the English sentence in Penn brackets.
      german: the German sentence.
      combinations: the combinations of words that occur in it.
    """

    bracketed: str
    german: str
    combinations: frozenset[Combination]

    @functools.cached_property
    def english(self) -> str:
        """The English sentence, with its final punctuation attached to the last word."""
        *words, mark = re.findall(r" ([^ ()]+)[)]", self.bracketed)
        return " ".join(words) + mark

    @functools.cached_property
    def tree(self) -> trees.Tree:
        """The tree of the English sentence."""
        words: list[str] = []
        tags: list[str] = []
        brackets: list[trees.Bracket] = []
        is_open: list[int] = []
        for label, word in re.findall(r"[(]([^ ()]+) (?:([^ ()]+)[)])?|[)]", self.bracketed):
            if word:
                tags.append(label)
                words.append(word)
            elif label:
                is_open.append(len(brackets))
                brackets.append(trees.Bracket(label, len(words), -1))
            else:
                index = is_open.pop()
                brackets[index] = brackets[index]._replace(end=len(words))
        return trees.Tree(tuple(words), tuple(tags), tuple(brackets))


@final
class _Writer:
    """A source of random sentences."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._combinations: set[Combination] = set()
        self._rules = {
            symbol: (rules, list(itertools.accumulate(rule.weight for rule in rules)))
            for symbol, rules in RULES.items()
        }

    def sentence(self) -> Sentence:
        """Returns a sentence, which may have been returned before."""
        self._combinations = set()
        return sentence_of(self._draw("sentence"), frozenset(self._combinations))

    def _draw(self, symbol: str) -> Phrase | Word:
        if symbol in WORDS:
            return self._random.choice(WORDS[symbol])
        rules, weights = self._rules[symbol]
        rule = rules[bisect.bisect(weights, self._random.random() * weights[-1])]
        parts = {slot: self._draw(name) for slot, name in rule.slots}
        if rule.combination:
            first, second = rule.combination
            self._combinations.add((parts[first].head, parts[second].head))
        return Phrase(rule, parts)


def sentence_of(phrase: Phrase | Word, combinations: frozenset[Combination]) -> Sentence:
    """Returns the pair of sentences of a drawn phrase."""
    german = re.sub(r" ([,.?])", r"\1", " ".join(f"{phrase:de}".split()))
    bracketed = re.sub(
        r"(?<= )[^ ()]+(?=[)])", lambda word: _capitalised(word.group()), f"{phrase}", count=1
    )
    return Sentence(bracketed, _capitalised(german), combinations)


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def is_held_out(combination: Combination, seed: int) -> bool:
    """Returns True if a combination is reserved for the development and test sets."""
    text = f"{seed} {' '.join(combination)}"
    return hashlib.sha256(text.encode()).digest()[0] % HELD_OUT_ONE_IN == 0


def sentences(pairs: int, held_out_pairs: int, seed: int) -> tuple[list[Sentence], list[Sentence]]:
    """Draws training sentences, and sentences with held-out combinations.

    All English sentences are different, and so are all German ones.

    Args:
      pairs: the number of training sentences.
      held_out_pairs: the number of sentences with held-out combinations.
      seed: determines both the sentences and the held-out combinations.
    """
    writer = _Writer(seed)
    train: list[Sentence] = []
    held_out: list[Sentence] = []
    seen: set[str] = set()
    while len(train) < pairs or len(held_out) < held_out_pairs:
        sentence = writer.sentence()
        if sentence.english in seen or sentence.german in seen:
            continue
        seen |= {sentence.english, sentence.german}
        has_held_out = any(is_held_out(pair, seed) for pair in sentence.combinations)
        (held_out if has_held_out else train).append(sentence)
    return train[:pairs], held_out[:held_out_pairs]


def sets(config: config_lib.DataConfig) -> dict[str, list[Sentence]]:
    """Draws a training, a development and a test set.

    Raises:
      UserError: a set would have no sentence.
    """
    for field in ("toy_pairs", "toy_held_out_pairs"):
        if not getattr(config, field):
            raise errors.UserError(f"data.corpus={config.corpus} needs data.{field} of at least 1")
    number = config.toy_held_out_pairs
    train, held_out = sentences(config.toy_pairs, 2 * number, config.toy_seed)
    return {"train": train, "dev": held_out[:number], "test": held_out[number:]}


def load(config: config_lib.DataConfig) -> corpus_lib.Corpus:
    """Draws the toy corpus, in the direction of data.source_language and data.target_language.

    Raises:
      UserError: the languages are not en and de, or a set would have no sentence.
    """
    languages = (config.source_language, config.target_language)
    if sorted(languages) != ["de", "en"]:
        raise errors.UserError(
            f"the toy corpus is in en and de, not in {languages[0] or 'none'} and "
            f"{languages[1] or 'none'}: set data.source_language and data.target_language to these"
        )
    fields = {"en": "english", "de": "german"}
    pairs = {
        name: corpus_lib.Pairs(
            *([getattr(one, fields[language]) for one in drawn] for language in languages)
        )
        for name, drawn in sets(config).items()
    }
    provenance = {"corpus": "toy", "pairs": {name: len(part) for name, part in pairs.items()}}
    return corpus_lib.in_memory(pairs, provenance)
