"""Clauses of the toy corpus: who does what to whom, said in English and in German word order."""

import dataclasses

from transformer_jax.data import trees
from transformer_jax.data.toy import grammar


@dataclasses.dataclass(frozen=True)
class Pronoun:
    """A third-person pronoun for a noun phrase said before."""

    antecedent: grammar.NounPhrase

    @property
    def plural(self) -> bool:
        """Whether it takes a plural verb."""
        return self.antecedent.plural

    def english(self) -> trees.Tree:
        """he, she, it or they."""
        is_neuter = self.antecedent.noun.kind != "person" and not self.plural
        form = "n" if is_neuter else self.antecedent.agreement
        word = {"m": "he", "f": "she", "n": "it", "pl": "they"}[form]
        return trees.join("NP", trees.leaf("PRP", word))

    def german(self, case: grammar.Case) -> str:
        """er, sie or es: only ever a subject, in the nominative."""
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
    auxiliary: tuple[str, ...] | None = None  # of grammar.AUXILIARIES
    plural: bool = False  # of an absent subject

    def english(
        self,
        time_first: bool = False,
        relative: trees.Tree = trees.ABSENT,
        then: trees.Tree = trees.ABSENT,
    ) -> trees.Tree:
        """The clause in English word order.

        A relative clause stands after the subject, and what is then said after all the rest.
        """
        auxiliary, verb = self._english_verb()
        predicate = self._english_predicate(verb, time_first, then)
        if auxiliary.words:
            predicate = trees.join("VP", auxiliary, predicate)
        subject = self.subject.english() if self.subject else trees.ABSENT
        if relative.words:
            subject = trees.join("NP", subject, relative)
        time = grammar.time_in_english(self.time if time_first else "")
        return trees.join("S", time, subject, predicate)

    def english_question(self) -> trees.Tree:
        """Does the man see the dog; will the man see the dog."""
        assert self.subject is not None
        start, verb = self._english_verb()
        if not start.words:
            start = trees.leaf(*(("VBP", "do") if self.subject.plural else ("VBZ", "does")))
            verb = trees.leaf("VB", self.verb.en)
        predicate = self._english_predicate(verb)
        return trees.join("SQ", start, self.subject.english(), predicate)

    def german(self, order: str) -> str:
        """The clause with its finite verb "first" (questions), "second" or "last".

        "time" is verb-second with the time in front.
        """
        finite, rest = self._german_verb(order == "last")
        subject = [self.subject.german("nominative")] if self.subject else []
        time = [grammar.TIMES[self.time][0]] if self.time else []
        objects = [self.indirect.german("dative")] if self.indirect else []
        objects += [self.direct.german("accusative")] if self.direct else []
        objects += [grammar.place_in_german(*self.place)] if self.place else []
        words = {
            "first": [finite, *subject, *time, *objects, *rest],
            "second": [*subject, finite, *time, *objects, *rest],
            "time": [*time, finite, *subject, *objects, *rest],
            "last": [*subject, *time, *objects, *rest, finite],
        }
        return " ".join(words[order])

    @property
    def _is_plural(self) -> bool:
        return self.subject.plural if self.subject else self.plural

    def _english_predicate(
        self, verb: trees.Tree, time_first: bool = False, then: trees.Tree = trees.ABSENT
    ) -> trees.Tree:
        return trees.join(
            "VP",
            verb,
            self.indirect.english() if self.indirect else trees.ABSENT,
            self.direct.english() if self.direct else trees.ABSENT,
            grammar.place_in_english(*self.place) if self.place else trees.ABSENT,
            grammar.time_in_english("" if time_first else self.time),
            then,
        )

    def _english_verb(self) -> tuple[trees.Tree, trees.Tree]:
        """The auxiliary, which may be absent, and the form of the verb beside it."""
        if self.auxiliary is None:
            finite = ("VBP", self.verb.en) if self._is_plural else ("VBZ", self.verb.en_third)
            return trees.ABSENT, trees.leaf(*finite)
        singular, plural, *_, governed = self.auxiliary
        word = plural if self._is_plural else singular
        participle = governed == "participle"
        form = ("VBN", self.verb.en_participle) if participle else ("VB", self.verb.en)
        return trees.leaf({"has": "VBZ", "have": "VBP"}.get(word, "MD"), word), trees.leaf(*form)

    def _german_verb(self, last: bool) -> tuple[str, list[str]]:
        """The finite verb, and what stands at the end of the clause."""
        if self.auxiliary is not None:
            *_, singular, plural, governed = self.auxiliary
            participle = governed == "participle"
            infinitive = self.verb.prefix + self.verb.de_plural
            nonfinite = self.verb.de_participle if participle else infinitive
            return plural if self._is_plural else singular, [nonfinite]
        finite = self.verb.de_plural if self._is_plural else self.verb.de_third
        if last:
            return self.verb.prefix + finite, []
        return finite, [self.verb.prefix] if self.verb.prefix else []
