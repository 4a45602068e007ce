"""The embedded corpus: a small English–German grammar, a real translation problem in miniature.

German asks for what English does not say: gender and case on articles and adjectives, the finite
verb second in a main clause and last in a subordinate one, separable verbs, pronouns that agree
with a noun one or two clauses back, compounds in one word, numbers ones first.

Ten pairs of the training set in `configs/toy.py`:

  The small coat in front of the old forest.
    Der kleine Mantel vor dem alten Wald.
  Thirty-nine red bears read Felix his hotel clock.
    Neununddreißig rote Bären lesen Felix seine Hoteluhr vor.
  The queens that the neighbour fetches can listen.
    Die Königinnen, die der Nachbar abholt, können zuhören.
  Sofia knows that Clara must give Martin the coats.
    Sofia weiß, dass Clara Martin die Mäntel geben muss.
  Julia must sell a hotel cupboard and Greta stops in front of the garden when it is new.
    Julia muss einen Hotelschrank verkaufen und Greta hört vor dem Garten auf, wenn er neu ist.
  Thomas fetches the bear.
    Thomas holt den Bären ab.
  Now Martin lends Felix his small hat.
    Jetzt leiht Martin Felix seinen kleinen Hut aus.
  Does the strange bear seek his heavy letters often?
    Sucht der seltsame Bär oft seine schweren Briefe?
  David must sell the hat although it is old.
    David muss den Hut verkaufen, obwohl er alt ist.
  The cow chooses Paul.
    Die Kuh sucht Paul aus.

The development and test sets hold out combinations, not only strings: one in eight of all
verb–object, adjective–noun and compound combinations occurs in no training sentence, and every
development and test sentence has at least one of them. English sentences are derived as trees with
the Penn Treebank's labels; see `treebank.load_toy`.
"""

import dataclasses
import functools
import hashlib
import random
from collections.abc import Callable
from typing import final

from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import trees
from transformer_jax.data.toy import clauses, grammar

HELD_OUT_SHARE = 8  # one in so many combinations occurs in held-out sentences only

Combination = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A pair, the English side's tree, and the word combinations that occur in it."""

    tree: trees.Tree
    german: str
    combinations: frozenset[Combination]

    @property
    def english(self) -> str:
        """The words of the tree, the last of which is a mark after another."""
        *words, mark = self.tree.words
        return " ".join(words) + mark


@final
class _Writer:
    """Draws random sentences; remembers the combinations of the one being written."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._combinations: set[Combination] = set()

    def sentence(self) -> Sentence:
        self._combinations = set()
        forms: dict[Callable[[], tuple[trees.Tree, str]], int] = {
            self._statement: 4,
            self._question: 2,
            self._reason: 3,
            self._distant_reason: 3,
            self._reported: 2,
            self._relative: 4,
            self._phrase: 6,
            functools.partial(self._statement, short=True): 6,
        }
        (form,) = self._random.choices([*forms], [*forms.values()])
        english, german = form()
        mark = "?" if form == self._question else "."
        marked = trees.beside((english, trees.leaf(".", mark)))
        first, *rest = marked.words
        # The mark belongs to the outermost constituent.
        whole = marked.brackets[0]._replace(end=len(marked.words))
        tree = dataclasses.replace(
            marked,
            words=(first[0].upper() + first[1:], *rest),
            brackets=(whole, *marked.brackets[1:]),
        )
        return Sentence(tree, german[0].upper() + german[1:] + mark, frozenset(self._combinations))

    def _statement(self, short: bool = False) -> tuple[trees.Tree, str]:
        """A main clause; a short one is without time and place."""
        clause = self._clause(short=short)
        time_first = bool(clause.time) and self._chance(0.6)
        german = clause.german("time" if time_first else "second")
        return clause.english(time_first), german

    def _question(self) -> tuple[trees.Tree, str]:
        clause = self._clause()
        return clause.english_question(), clause.german("first")

    def _reason(self) -> tuple[trees.Tree, str]:
        """A main clause and a subordinate one about its subject or its object."""
        if self._chance(0.5):
            first = self._about_thing()
            english, german = self._predicate_of(first.direct)
        else:
            subject = self._noun_phrase("person")
            first = self._clause(subject=subject)
            second = self._clause(subject=clauses.Pronoun(subject), short=True)
            subjunction = self._random.choice(list(grammar.SUBJUNCTIONS))
            english, german = _subordinated(subjunction, second.english(), second.german("last"))
        return first.english(then=english), f"{first.german('second')}, {german}"

    def _distant_reason(self) -> tuple[trees.Tree, str]:
        """The pronoun's noun is a whole clause away."""
        first = self._about_thing()
        second = self._clause(subject=self._noun_phrase("person"), intransitive=True)
        english, german = self._predicate_of(first.direct)
        both = (first.english(), trees.leaf("CC", "and"), second.english(), english)
        german = f"{first.german('second')} und {second.german('second')}, {german}"
        return trees.join("S", *both), german

    def _reported(self) -> tuple[trees.Tree, str]:
        saying = clauses.Clause(self._random.choice(grammar.SAYING), self._noun_phrase("person"))
        clause = self._clause()
        said = trees.join("SBAR", trees.leaf("IN", "that"), clause.english())
        german = f"{saying.german('second')}, dass {clause.german('last')}"
        return saying.english(then=said), german

    def _relative(self) -> tuple[trees.Tree, str]:
        """A subject with a relative clause in which it is the subject or the object."""
        subject = self._noun_phrase(self._random.choice(["person", "animal"]), relative=True)
        case: grammar.Case = "nominative" if self._chance(0.5) else "accusative"
        verb = self._random.choice(grammar.TRANSITIVE)
        auxiliary = self._auxiliary()
        if case == "nominative":
            inner = clauses.Clause(
                verb, direct=self._object_of(verb), plural=subject.plural, auxiliary=auxiliary
            )
        else:
            self._combinations.add((verb.en, subject.noun.en))
            inner = clauses.Clause(verb, subject=self._noun_phrase("person"), auxiliary=auxiliary)
        relative = grammar.DEFINITE[case][subject.agreement]
        outer = self._clause(subject=subject, short=True)
        that = trees.join("WHNP", trees.leaf("WDT", "that"))
        english = outer.english(relative=trees.join("SBAR", that, inner.english()))
        start = subject.german("nominative")
        rest = outer.german("second").removeprefix(f"{start} ")
        return english, f"{start}, {relative} {inner.german('last')}, {rest}"

    def _phrase(self) -> tuple[trees.Tree, str]:
        """A noun phrase alone, as in a headline: in few words it shows which means which."""
        noun_phrase = self._noun_phrase(self._random.choice(grammar.KINDS))
        english, german = noun_phrase.english(), noun_phrase.german("nominative")
        if noun_phrase.noun in grammar.NAMES or self._chance(0.4):
            place = self._place()
            english = trees.join("NP", english, grammar.place_in_english(*place))
            german += f" {grammar.place_in_german(*place)}"
        return trees.join("FRAG", english), german

    def _about_thing(self) -> clauses.Clause:
        """A person does something to a thing, which a later "it" means."""
        verb = self._random.choice(grammar.TRANSITIVE)
        return clauses.Clause(
            verb,
            self._noun_phrase("person"),
            direct=self._object_of(verb, "thing"),
            auxiliary=self._auxiliary(),
        )

    def _predicate_of(self, noun_phrase: grammar.NounPhrase | None) -> tuple[trees.Tree, str]:
        """Because it is old."""
        assert noun_phrase is not None
        pronoun = clauses.Pronoun(noun_phrase)
        subjunction = self._random.choice(list(grammar.SUBJUNCTIONS))
        adjective = self._random.choice(grammar.ADJECTIVES_OF["thing"])
        verb = trees.leaf(*(("VBP", "are") if pronoun.plural else ("VBZ", "is")))
        old = trees.join("ADJP", trees.leaf("JJ", adjective))
        english = trees.join("S", pronoun.english(), trees.join("VP", verb, old))
        german = [pronoun.german("nominative"), grammar.PREDICATES[adjective]]
        german.append("sind" if pronoun.plural else "ist")
        return _subordinated(subjunction, english, " ".join(german))

    def _clause(
        self,
        subject: clauses.Nominal | None = None,
        short: bool = False,
        intransitive: bool = False,
    ) -> clauses.Clause:
        subject = subject or self._noun_phrase(self._random.choice(["person", "animal"]))
        auxiliary = self._auxiliary()
        time = "" if short or self._chance(0.5) else self._random.choice(list(grammar.TIMES))
        draw = 0.9 if intransitive else self._random.random()
        indirect = direct = place = None
        if draw < 0.55:
            verb = self._random.choice(grammar.TRANSITIVE)
            direct = self._object_of(verb)
        elif draw < 0.75:
            verb = self._random.choice(grammar.DITRANSITIVE)
            direct, indirect = self._object_of(verb, "thing"), self._noun_phrase("person")
        else:
            place = None if short else self._place()
            verb = self._random.choice(grammar.INTRANSITIVE)
        return clauses.Clause(verb, subject, indirect, direct, place, time, auxiliary)

    def _place(self) -> tuple[str, grammar.NounPhrase]:
        noun = self._random.choice(grammar.PLACES)
        preposition = self._random.choice(list(grammar.PREPOSITIONS))
        return preposition, self._describe(noun, False, "the")

    def _object_of(
        self, verb: grammar.Verb, kind: grammar.Kind | None = None
    ) -> grammar.NounPhrase:
        drawn = kind or self._random.choice(grammar.KINDS)
        noun_phrase = self._noun_phrase(drawn, is_object=True)
        self._combinations.add((verb.en, noun_phrase.noun.en))
        return noun_phrase

    def _noun_phrase(
        self, kind: grammar.Kind, is_object: bool = False, relative: bool = False
    ) -> grammar.NounPhrase:
        if kind == "person" and not relative and self._chance(0.5):
            return grammar.NounPhrase(self._random.choice(grammar.NAMES), False, determiner="")
        noun = self._random.choice(grammar.NOUNS[kind])
        plural = self._chance(0.35)
        if plural and not relative and self._chance(0.3):
            return self._describe(noun, True, "", self._random.choice(grammar.COUNTS))
        determiners = ["the", "the", "the"] if plural or relative else ["the", "the", "a"]
        if is_object:
            determiners += ["his", "her", "no"]
        return self._describe(noun, plural, self._random.choice(determiners))

    def _describe(
        self, noun: grammar.Noun, plural: bool, determiner: str, count: int = 0
    ) -> grammar.NounPhrase:
        adjective = modifier = ""
        if self._chance(0.35):
            adjective = self._random.choice(grammar.ADJECTIVES_OF[noun.kind])
            self._combinations.add((adjective, noun.en))
        if noun in grammar.FURNITURE and self._chance(0.4):
            modifier = self._random.choice(list(grammar.COMPOUNDS))
            self._combinations.add((modifier, noun.en))
        return grammar.NounPhrase(noun, plural, determiner, adjective, modifier, count)

    def _auxiliary(self) -> tuple[str, ...] | None:
        return self._random.choice(grammar.AUXILIARIES) if self._chance(0.4) else None

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability


def _subordinated(subjunction: str, english: trees.Tree, german: str) -> tuple[trees.Tree, str]:
    first = trees.leaf("WRB" if subjunction == "when" else "IN", subjunction)
    if subjunction == "when":
        first = trees.join("WHADVP", first)
    return trees.join("SBAR", first, english), f"{grammar.SUBJUNCTIONS[subjunction]} {german}"


def is_held_out(combination: Combination, seed: int) -> bool:
    """Whether a combination of words occurs in development and test sentences only."""
    text = f"{seed} {' '.join(combination)}"
    return hashlib.sha256(text.encode()).digest()[0] % HELD_OUT_SHARE == 0


def sentences(pairs: int, held_out_pairs: int, seed: int) -> tuple[list[Sentence], list[Sentence]]:
    """Draws so many training sentences, and so many with held-out combinations.

    All English sentences differ, and so do all German ones.
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
        held = any(is_held_out(combination, seed) for combination in sentence.combinations)
        (held_out if held else train).append(sentence)
    return train[:pairs], held_out[:held_out_pairs]


def sets(config: config_lib.DataConfig) -> dict[str, list[Sentence]]:
    """A training, a development and a test set; of the latter both have combinations held out.

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
    """The toy corpus, in either direction; the seed decides what is drawn and what is held out.

    Raises:
      UserError: the languages are others than en and de, or a set would have no sentence.
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
