"""The answer of a sweep in words: a few sentences, with one answer for each row."""

import dataclasses
import math

import pandas as pd

from experiments.results import comparison, documents, labels, tables
from experiments.stats import verdicts

MOST_NAMED = 8  # rows that are named as not resolved; more are counted
WORSE, BETTER, SAME = "worse", "better", "no different"
SMALLER, OPEN = "smaller", "open"  # smaller than the paper's difference, not resolved
PAPERS = {verdicts.PAPER_HAS_NONE: ", paper: none", verdicts.OPPOSITE: ", paper: opposite"}
SETS = {"dev": "development set", "test": "test set"}
SCORE, LOG_PPL = comparison.Measure.SCORE, comparison.Measure.LOG_PPL


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer of a sweep for a row.

    Attributes:
      word: `WORSE`, `BETTER`, `SAME`, `SMALLER` or `OPEN`.
      measure: the measure that says so; for `SMALLER` and `OPEN`, `LOG_PPL`.
      name: the name of the row for a sentence.
      difference: the difference in the measure.
      size: the difference, as a text.
    """

    word: str
    measure: comparison.Measure
    name: str
    difference: float
    size: str


def answers_of(compared: comparison.Comparison) -> list[Answer]:
    """Returns an answer for each tested row: by the score if that decides, otherwise by ln PPL."""
    rows = compared.answer_rows
    tested = rows[rows["over_seeds"] | rows["log_ppl_over_seeds"]]
    found = []
    for _, line in tested.iterrows():
        words = {measure: _word(line, measure, compared) for measure in (SCORE, LOG_PPL)}
        chosen = SCORE if words[SCORE] in {WORSE, BETTER, SAME} else LOG_PPL
        word = words[chosen]
        if word == OPEN and words[SCORE] == SMALLER:
            word = SMALLER
        name = labels.plain_name(compared.sweep.description, line["row"])
        difference = float(line[f"{chosen.value}difference"])
        size = _size(difference, chosen)
        if line["reference"] != compared.sweep.description.base_row:
            size += f" against {line['reference']}"
        size += PAPERS.get(line[f"{chosen.value}verdict"], "")
        found.append(Answer(word, chosen, name, difference, size))
    return found


def summary(compared: comparison.Comparison) -> list[str]:
    """Returns sentences that summarise the results of a sweep. Each row is named once."""
    found = answers_of(compared)

    def listed(word: str, measure: comparison.Measure) -> str:
        chosen = [each for each in found if (each.word, each.measure) == (word, measure)]
        if word not in {WORSE, BETTER}:
            return ", ".join(each.name for each in chosen)
        chosen.sort(key=lambda each: -abs(each.difference))
        return ", ".join(f"{each.name} ({each.size})" for each in chosen)

    sentences = []
    for word in (WORSE, BETTER):
        if rows := listed(word, SCORE):
            where = f" in {compared.table.score} on the {SETS[compared.answer_set]}"
            than = f"{word.capitalize()} than {compared.sweep.description.base_row}"
            sentences.append(f"{than}{'' if sentences else where}: {rows}.")
    if rows := listed(SAME, SCORE):
        sentences.append(f"No difference in {compared.table.score}: {rows}.")
    by_ppl = [(word, listed(word, LOG_PPL)) for word in (WORSE, BETTER, SAME)]
    if said := [f"{word}: {rows}" for word, rows in by_ppl if rows]:
        sentences.append(f"By perplexity alone, {'; '.join(said)}.")
    if rows := listed(SMALLER, LOG_PPL):
        sentences.append(f"Effect smaller than the paper's: {rows}.")
    if number := sum(each.word == OPEN for each in found):
        rows = listed(OPEN, LOG_PPL) if number <= MOST_NAMED else _count(number)
        sentences.append(f"Not resolved: {rows}.")
    return [*sentences, *_untested(compared, len(found)), counts(compared)]


def _word(line: pd.Series, measure: comparison.Measure, compared: comparison.Comparison) -> str:
    """Returns what a measure says about a row."""
    if documents.is_by_design(compared, line["row"], measure):
        return OPEN
    verdict = line[f"{measure.value}verdict"]
    if verdict in {verdicts.AS_PAPER, verdicts.NO_DIFFERENCE}:
        return SAME
    if line[f"{measure.value}significant"]:
        is_higher = line[f"{measure.value}difference"] > 0
        return BETTER if is_higher == (measure is SCORE) else WORSE
    return SMALLER if verdict == verdicts.SMALLER else OPEN


def _size(difference: float, measure: comparison.Measure) -> str:
    if measure is SCORE:
        return tables.number(difference, "+.1f")
    return tables.number(math.expm1(difference), "+.0%")


def _untested(compared: comparison.Comparison, tested: int) -> list[str]:
    """Returns sentences on the rows that are not tested, and on those that failed to train."""
    rows = compared.answer_rows
    compared_rows = (rows["difference"].notna() | rows["log_ppl_difference"].notna()).sum()
    sentences = []
    if untested := int(compared_rows) - tested:
        sentences.append(f"Not tested, as nothing is known of seed noise: {_count(untested)}.")
    return sentences + [
        f"{labels.plain_name(compared.sweep.description, line.row)}: {line.failed_to_train} of "
        f"{line.seeds} seeds failed to train."
        for line in rows.itertuples()
        if line.failed_to_train
    ]


def counts(compared: comparison.Comparison) -> str:
    """Returns a sentence on how many rows and seeds have run."""
    rows = compared.answer_rows
    seeds = sorted({int(number) for number in rows["seeds"] if number}) or [0]
    runs = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    done = (rows["seeds"] > 0).sum()
    return f"{done} of {_count(len(rows))} run, {runs} {'seed' if runs == '1' else 'seeds'} each."


def _count(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"
