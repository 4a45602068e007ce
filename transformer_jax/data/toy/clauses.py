"""Clauses of the toy corpus: who does what to whom, said in English and in German word order."""

import dataclasses
from collections.abc import Sequence

from transformer_jax.data.toy import grammar


@dataclasses.dataclass(frozen=True)
class Pronoun:
    """A third-person pronoun for a noun phrase said before."""

    antecedent: grammar.NounPhrase

    @property
    def plural(self) -> bool:
        """Whether it takes a plural verb."""
        return self.antecedent.plural

    def english(self) -> str:
        """he, she, it or they."""
        noun = self.antecedent.noun
        if self.plural:
            return "they"
        return {"m": "he", "f": "she"}[noun.gender] if noun.kind == "person" else "it"

    def german(self, case: grammar.Case) -> str:
        """er, sie or es: only ever a subject."""
        if case != "nominative":
            raise ValueError("pronouns are subjects in this grammar")
        return grammar.PRONOUNS[self.antecedent.agreement]


Nominal = grammar.NounPhrase | Pronoun


@dataclasses.dataclass(frozen=True)
class Clause:
    """What is said, in neither language yet; an object or subject may be absent (relatives)."""

    verb: grammar.Verb
    subject: Nominal | None = None
    indirect: grammar.NounPhrase | None = None
    direct: grammar.NounPhrase | None = None
    place: tuple[str, grammar.NounPhrase] | None = None
    time: str = ""
    auxiliary: int | None = None  # index into grammar.AUXILIARIES
    plural: bool = False  # of an absent subject

    def english(self, time_first: bool = False) -> str:
        """The clause in English word order."""
        plural = self.subject.plural if self.subject else self.plural
        if self.auxiliary is None:
            verb = self.verb.en if plural else self.verb.en_third
        else:
            verb = f"{self._english_auxiliary(plural)} {self._english_nonfinite()}"
        return self._english(time_first, [self.subject.english() if self.subject else "", verb])

    def english_question(self) -> str:
        """Does the man see the dog; will the man see the dog."""
        assert self.subject is not None
        plural = self.subject.plural
        if self.auxiliary is None:
            start, verb = ("do" if plural else "does"), self.verb.en
        else:
            start, verb = self._english_auxiliary(plural), self._english_nonfinite()
        return self._english(False, [start, self.subject.english(), verb])

    def german(self, order: str) -> str:
        """The clause with its finite verb "first" (questions), "second" or "last".

        "time" is verb-second with the time in front.
        """
        finite, rest = self._german_verb(order == "last")
        subject = [self.subject.german("nominative")] if self.subject else []
        time = [grammar.TIMES[self.time]] if self.time else []
        objects = []
        if self.indirect:
            objects.append(self.indirect.german("dative"))
        if self.direct:
            objects.append(self.direct.german("accusative"))
        if self.place:
            preposition, noun_phrase = self.place
            german = grammar.PREPOSITIONS[preposition]
            objects.append(f"{german} {noun_phrase.german('dative')}")
        words = {
            "first": [finite, *subject, *time, *objects, *rest],
            "second": [*subject, finite, *time, *objects, *rest],
            "time": [*time, finite, *subject, *objects, *rest],
            "last": [*subject, *time, *objects, *rest, finite],
        }
        return " ".join(words[order])

    def _english(self, time_first: bool, start: Sequence[str]) -> str:
        words = [self.time if time_first else "", *start]
        if self.indirect:
            words.append(self.indirect.english())
        if self.direct:
            words.append(self.direct.english())
        if self.place:
            words += [self.place[0], self.place[1].english()]
        words.append("" if time_first else self.time)
        return " ".join(word for word in words if word)

    def _english_auxiliary(self, plural: bool) -> str:
        assert self.auxiliary is not None
        return grammar.AUXILIARIES[self.auxiliary][int(plural)]

    def _english_nonfinite(self) -> str:
        assert self.auxiliary is not None
        participle = grammar.AUXILIARIES[self.auxiliary][4] == "participle"
        return self.verb.en_participle if participle else self.verb.en

    def _german_verb(self, last: bool) -> tuple[str, list[str]]:
        """The finite verb, and what stands at the end of the clause."""
        plural = self.subject.plural if self.subject else self.plural
        if self.auxiliary is not None:
            auxiliary = grammar.AUXILIARIES[self.auxiliary]
            participle = auxiliary[4] == "participle"
            nonfinite = self.verb.de_participle if participle else self.verb.de_infinitive
            return auxiliary[3 if plural else 2], [nonfinite]
        finite = self.verb.de_plural if plural else self.verb.de_third
        if last:
            return self.verb.prefix + finite, []
        return finite, [self.verb.prefix] if self.verb.prefix else []
