"""Words and inflection for the toy corpus: nouns, adjectives, verbs, numbers, noun phrases."""

import dataclasses
from typing import Literal, cast, get_args

from transformer_jax.data import trees

Case = Literal["nominative", "accusative", "dative"]
Kind = Literal["person", "animal", "thing"]


@dataclasses.dataclass(frozen=True)
class Noun:
    """A noun in both languages; `oblique` is the accusative and dative of weak masculines."""

    kind: Kind
    en: str
    en_plural: str
    de: str
    gender: str  # m, f or n
    de_plural: str
    oblique: str = ""


@dataclasses.dataclass(frozen=True)
class Verb:
    """A verb in both languages.

    A separable verb (abholen) is given without its prefix: `de_third` holt, `de_plural` holen,
    `prefix` ab, but `de_participle` abgeholt. The infinitive is prefix and finite plural.
    """

    en: str
    en_third: str
    en_participle: str
    de_third: str
    de_plural: str
    de_participle: str
    prefix: str = ""


def _nouns(table: str) -> list[Noun]:
    kind, entries = table.split(":")
    return [Noun(cast(Kind, kind), *entry.split()) for entry in entries.split(";")]


def _words(table: str) -> dict[str, str]:
    return dict(entry.split(":") for entry in table.split())


def _verbs(table: str) -> list[Verb]:
    return [Verb(*entry.split()) for entry in table.split(";")]


PERSONS = _nouns("""person:
man men Mann m Männer; boy boys Junge m Jungen Jungen; doctor doctors Ärztin f Ärztinnen;
queen queens Königin f Königinnen; uncle uncles Onkel m Onkel;
neighbour neighbours Nachbar m Nachbarn Nachbarn; judge judges Richter m Richter
""")
# The same word in both languages: what a model learns to copy first.
NAMES = [
    Noun("person", name, "", name, gender, "")
    for name, gender in _words(
        "Peter:m Thomas:m Martin:m Felix:m Paul:m David:m "
        "Anna:f Julia:f Laura:f Sofia:f Clara:f Greta:f"
    ).items()
]
ANIMALS = _nouns("""animal:
dog dogs Hund m Hunde; horse horses Pferd n Pferde; cow cows Kuh f Kühe;
bear bears Bär m Bären Bären; calf calves Kalb n Kälber
""")
FURNITURE = _nouns("""thing:
table tables Tisch m Tische; picture pictures Bild n Bilder; clock clocks Uhr f Uhren;
door doors Tür f Türen; cupboard cupboards Schrank m Schränke
""")
GOODS = _nouns("""thing:
letter letters Brief m Briefe; book books Buch n Bücher; flower flowers Blume f Blumen;
hat hats Hut m Hüte; car cars Auto n Autos; bag bags Tasche f Taschen;
coat coats Mantel m Mäntel
""")
PLACES = _nouns("""thing:
garden gardens Garten m Gärten; city cities Stadt f Städte; village villages Dorf n Dörfer;
forest forests Wald m Wälder; school schools Schule f Schulen; hotel hotels Hotel n Hotels;
kitchen kitchens Küche f Küchen; castle castles Schloss n Schlösser
""")
# English modifier → first part of a German compound.
COMPOUNDS = _words(
    "kitchen:Küchen garden:Garten city:Stadt school:Schul summer:Sommer winter:Winter "
    "hotel:Hotel forest:Wald"
)
ADJECTIVES = _words(
    "old:alt new:neu small:klein red:rot green:grün beautiful:schön heavy:schwer young:jung "
    "strange:seltsam tired:müd"
)
ADJECTIVES_OF: dict[Kind, list[str]] = {
    "person": [en for en in ADJECTIVES if en not in ("new", "green", "red", "heavy")],
    "animal": [en for en in ADJECTIVES if en not in ("new", "green")],
    "thing": [en for en in ADJECTIVES if en not in ("young", "tired")],
}
KINDS: tuple[Kind, ...] = get_args(Kind)
NOUNS: dict[Kind, list[Noun]] = {"person": PERSONS, "animal": ANIMALS, "thing": FURNITURE + GOODS}
PREDICATES = {**ADJECTIVES, "tired": "müde"}  # as they stand after "to be"
TRANSITIVE = _verbs("""
see sees seen sieht sehen gesehen; find finds found findet finden gefunden;
seek seeks sought sucht suchen gesucht; carry carries carried trägt tragen getragen;
sell sells sold verkauft verkaufen verkauft; fetch fetches fetched holt holen abgeholt ab;
admit admits admitted lässt lassen eingelassen ein;
pick picks picked hebt heben aufgehoben auf;
choose chooses chosen sucht suchen ausgesucht aus
""")
DITRANSITIVE = _verbs("""
give gives given gibt geben gegeben; show shows shown zeigt zeigen gezeigt;
send sends sent schickt schicken geschickt; lend lends lent leiht leihen ausgeliehen aus;
return returns returned gibt geben zurückgegeben zurück;
read reads read liest lesen vorgelesen vor
""")
INTRANSITIVE = _verbs("""
sleep sleeps slept schläft schlafen geschlafen; laugh laughs laughed lacht lachen gelacht;
sing sings sung singt singen gesungen; work works worked arbeitet arbeiten gearbeitet;
wait waits waited wartet warten gewartet; dance dances danced tanzt tanzen getanzt;
listen listens listened hört hören zugehört zu; stop stops stopped hört hören aufgehört auf
""")
SAYING = _verbs("""
say says said sagt sagen gesagt; believe believes believed glaubt glauben geglaubt;
know knows known weiß wissen gewusst; hope hopes hoped hofft hoffen gehofft
""")
TIMES = {  # in German, and their parts of speech in English
    "today": ("heute", "NN"),
    "tomorrow": ("morgen", "NN"),
    "often": ("oft", "RB"),
    "always": ("immer", "RB"),
    "at night": ("nachts", "IN NN"),
    "on Monday": ("am Montag", "IN NNP"),
    "in summer": ("im Sommer", "IN NN"),
    "now": ("jetzt", "RB"),
}
PREPOSITIONS = {"in": "in", "behind": "hinter", "near": "bei", "in front of": "vor"}
SUBJUNCTIONS = {"because": "weil", "although": "obwohl", "when": "wenn"}
# English auxiliary (singular, plural), German (singular, plural), and the form each governs.
AUXILIARIES = (
    ("will", "will", "wird", "werden", "infinitive"),
    ("must", "must", "muss", "müssen", "infinitive"),
    ("can", "can", "kann", "können", "infinitive"),
    ("has", "have", "hat", "haben", "participle"),
)


def _by_case(table: str) -> dict[Case, dict[str, str]]:
    """Nominative, accusative and dative, each for m, f, n and pl; - is no ending."""
    rows = [[form.strip("-") for form in row.split()] for row in table.split(";")]
    return {
        case: dict(zip(("m", "f", "n", "pl"), row, strict=True))
        for case, row in zip(get_args(Case), rows, strict=True)
    }


# Relative pronouns are the same, but for a dative plural, which none here is.
DEFINITE = _by_case("der die das die; den die das die; dem der dem den")
_EIN = _by_case("- e - e; en e - e; em er em en")  # endings of ein, kein and the possessives
_WEAK = _by_case("e e e en; en e e en; en en en en")  # adjectives after the definite article
_MIXED = _by_case("er e es en; en e es en; en en en en")  # after ein, kein and the possessives
_STRONG_PLURAL = {"nominative": "e", "accusative": "e", "dative": "en"}
PRONOUNS = {"m": "er", "f": "sie", "n": "es", "pl": "sie"}

COUNTS = [*range(2, 13), *range(20, 50)]  # that noun phrases have
_ONES_EN = ("zero one two three four five six seven eight nine ten eleven twelve").split()
_ONES_DE = ("null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf").split()
_TENS_EN = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_TENS_DE = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def number(value: int) -> tuple[str, str]:
    """A number from 2 to 12 or 20 to 99 in words: 23 is twenty-three, dreiundzwanzig."""
    if value < len(_ONES_EN):
        return _ONES_EN[value], _ONES_DE[value]
    tens, ones = divmod(value, 10)
    if not ones:
        return _TENS_EN[tens - 2], _TENS_DE[tens - 2]
    german = "ein" if ones == 1 else _ONES_DE[ones]
    return f"{_TENS_EN[tens - 2]}-{_ONES_EN[ones]}", f"{german}und{_TENS_DE[tens - 2]}"


@dataclasses.dataclass(frozen=True)
class NounPhrase:
    """Determiner, number, adjective, compound modifier and noun; the words in English."""

    noun: Noun
    plural: bool
    determiner: str  # "the", "a", "no", "his", "her", or "" before a number and for a name
    adjective: str = ""
    modifier: str = ""  # first part of a compound
    count: int = 0

    @property
    def agreement(self) -> str:
        """What articles and pronouns agree with: m, f, n or pl."""
        return "pl" if self.plural else self.noun.gender

    def english(self) -> trees.Tree:
        """The phrase in English."""
        noun = self.noun.en_plural if self.plural else self.noun.en
        tag = "NNS" if self.plural else "NNP" if self.noun in NAMES else "NN"
        count = number(self.count)[0] if self.count else ""
        parts = (("CD", count), ("JJ", self.adjective), ("NN", self.modifier), (tag, noun))
        words = trees.beside(trees.leaf(*part) for part in parts)
        before_vowel = words.words[0][0] in "aeiou"
        determiner = "an" if self.determiner == "a" and before_vowel else self.determiner
        possessive = determiner in ("his", "her")
        return trees.join("NP", trees.leaf("PRP$" if possessive else "DT", determiner), words)

    def german(self, case: Case) -> str:
        """The phrase in German, in a case."""
        form = self.agreement
        noun = self.noun.de_plural if self.plural else self.noun.de
        if self.plural and case == "dative" and noun[-1] not in "ns":
            noun += "n"
        if not self.plural and case != "nominative" and self.noun.oblique:
            noun = self.noun.oblique
        if self.modifier:
            noun = COMPOUNDS[self.modifier] + noun.lower()
        words = []
        if self.determiner == "the":
            words.append(DEFINITE[case][form])
            ending = _WEAK[case][form]
        elif self.determiner:
            stem = {"a": "ein", "no": "kein", "his": "sein", "her": "ihr"}[self.determiner]
            words.append(stem + _EIN[case][form])
            ending = _MIXED[case][form]
        else:
            ending = _STRONG_PLURAL[case]
        if self.count:
            words.append(number(self.count)[1])
        if self.adjective:
            words.append(ADJECTIVES[self.adjective] + ending)
        return " ".join([*words, noun])


def time_in_english(time: str) -> trees.Tree:
    """An adverb, a noun phrase or a prepositional phrase that says when; "" is absent."""
    if not time:
        return trees.ABSENT
    *preposition, word = time.split()
    *before, tag = TIMES[time][1].split()
    phrase = trees.join("ADVP" if tag == "RB" else "NP", trees.leaf(tag, word))
    return trees.join("PP", trees.leaf(before[0], preposition[0]), phrase) if before else phrase


def place_in_german(preposition: str, noun_phrase: NounPhrase) -> str:
    """A prepositional phrase."""
    return f"{PREPOSITIONS[preposition]} {noun_phrase.german('dative')}"


def place_in_english(preposition: str, noun_phrase: NounPhrase) -> trees.Tree:
    """A prepositional phrase; in front of the house is in the front that is of the house."""
    inner = noun_phrase.english()
    first, *front = preposition.split()
    if front:
        noun, of = front
        of_it = trees.join("PP", trees.leaf("IN", of), inner)
        inner = trees.join("NP", trees.join("NP", trees.leaf("NN", noun)), of_it)
    return trees.join("PP", trees.leaf("IN", first), inner)
