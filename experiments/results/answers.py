"""The answer of a sweep in words: a few sentences, with one answer for each row."""

import math
from collections.abc import Iterable

import pandas as pd

from experiments.results import comparison, documents, labels, tables
from experiments.stats import verdicts

MOST_NAMED = 8  # rows that are named as not resolved; more are counted
WORSE, BETTER, SAME, SMALLER = "worse", "better", "no different", "smaller"
SETS = {"dev": "development set", "test": "test set"}


def summary(compared: comparison.Comparison) -> list[str]:
    """Returns sentences that summarise the results of a sweep.

    Each row is named once: by its score if that decides about the row, otherwise by its perplexity.
    """
    rows = compared.answer_rows
    done = rows[rows["seeds"] > 0]
    by_score = {row: _direction(rows.loc[row], "", compared) for row in done.index}
    by_ppl = {row: _direction(rows.loc[row], "log_ppl_", compared) for row in done.index}
    tested = done[done["over_seeds"] | done["log_ppl_over_seeds"]]
    names = {row: labels.plain_name(compared.sweep.description, row) for row in done.index}
    sentences = []
    for word in (WORSE, BETTER):
        chosen = [row for row in tested.index if by_score[row] == word]
        chosen.sort(key=lambda row: -abs(rows.loc[row, "difference"]))
        if chosen:
            listed = (f"{names[row]} ({_score(rows.loc[row], compared)})" for row in chosen)
            where = f" in {compared.table.score} on the {SETS[compared.answer_set]}"
            where = "" if sentences else where
            sentences.append(f"{word.capitalize()} than base{where}: {', '.join(listed)}.")
    if same := [names[row] for row in tested.index if by_score[row] == SAME]:
        sentences.append(f"No difference in {compared.table.score}: {', '.join(same)}.")
    open_rows = [row for row in tested.index if by_score[row] in {None, SMALLER}]
    parts = []
    for word in (WORSE, BETTER, SAME):
        chosen = [row for row in open_rows if by_ppl[row] == word]
        if chosen:
            listed = (f"{names[row]} ({_percent(rows.loc[row])})" for row in chosen)
            parts.append(f"{word}: {', '.join(listed)}")
    if parts:
        sentences.append(f"By perplexity alone, {'; '.join(parts)}.")
    open_rows = [row for row in open_rows if by_ppl[row] in {None, SMALLER}]
    smaller = [row for row in open_rows if SMALLER in {by_score[row], by_ppl[row]}]
    if smaller:
        listed = ", ".join(names[row] for row in smaller)
        sentences.append(f"Effect smaller than the paper's: {listed}.")
    sentences += _not_resolved(names[row] for row in open_rows if row not in smaller)
    one = (done["difference"].notna() | done["log_ppl_difference"].notna()).sum() - len(tested)
    if one:
        sentences.append(f"One seed, not tested for seed noise: {_count(int(one))}.")
    sentences += [
        f"{names[line.row]}: {line.failed_to_train} of {line.seeds} seeds failed to train."
        for line in done.itertuples()
        if line.failed_to_train
    ]
    return [*sentences, _counts(done, len(rows))]


def _direction(line: pd.Series, prefix: str, compared: comparison.Comparison) -> str | None:
    """Returns what a measure says about a row: WORSE, BETTER, SAME or SMALLER; None if open."""
    description = compared.sweep.description
    if prefix and documents.SMOOTHING in labels.changes(description, line["row"]):
        return None  # label smoothing changes perplexity by design
    word = line[f"{prefix}verdict"]
    if word in {verdicts.AS_PAPER, verdicts.NO_DIFFERENCE}:
        return SAME
    if line[f"{prefix}significant"]:
        return BETTER if (line[f"{prefix}difference"] > 0) != bool(prefix) else WORSE
    return SMALLER if word == verdicts.SMALLER else None


def _score(line: pd.Series, compared: comparison.Comparison) -> str:
    """Returns a difference in score, with the reference row if that is not base."""
    text = tables.number(line["difference"], "+.1f")
    is_base = line["reference"] == compared.sweep.description.base_row
    return text if is_base else f"{text} against {line['reference']}"


def _percent(line: pd.Series) -> str:
    return tables.number(math.expm1(line["log_ppl_difference"]), "+.0%")


def _not_resolved(names: Iterable[str]) -> list[str]:
    names = list(names)
    if not names:
        return []
    listed = ", ".join(names) if len(names) <= MOST_NAMED else _count(len(names))
    return [f"Not resolved: {listed}."]


def _counts(done: pd.DataFrame, rows: int) -> str:
    seeds = sorted({int(number) for number in done["seeds"]}) or [0]
    runs = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"{len(done)} of {_count(rows)} run, {runs} {'seed' if runs == '1' else 'seeds'} each."


def _count(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"
