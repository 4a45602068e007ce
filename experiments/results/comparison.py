"""The rows of a sweep compared with base and with the paper.

`compare` returns a `Comparison`, whose `rows` is a data frame with a line for each row of the
table. Its columns are those of `COLUMNS`; columns of the test set begin with `test_`.
"""

import dataclasses
import enum
import math
import statistics
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from experiments.results import comparable, frames, labels, tuning
from experiments.stats import differences, failures, ranks, scores, verdicts
from experiments.sweep import store
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax import errors

COLUMNS = {
    "row": "name of the row",
    "change": "its changes of base, as text",
    "reference": "the row that it is compared with; missing for base",
    "seeds": "number of finished runs",
    "failed": "number of runs that ended with an error",
    "failed_to_train": "number of finished runs that failed to train; see `failures`",
    "params": "number of parameters",
    "params_share": "parameters relative to base's, minus 1",
    "best_value": "with --tune: the value of the field that is best on the development set",
    "best_score": "with --tune: the score on the test set with this value",
    "paper_ppl": "the paper's perplexity",
    "paper_score": "the paper's BLEU",
    "paper_difference": "the paper's difference from base in BLEU",
    "paper_log_ppl_difference": "the paper's difference from base in ln PPL",
    "paper_params": "the paper's millions of parameters",
    # Each of the following columns also exists for the test set, with the prefix test_. Means are
    # over the runs that did not fail to train, or over all runs if all failed.
    "ppl": "mean perplexity",
    "ppl_sd": "its standard deviation over seeds",
    "score": "mean BLEU or F1",
    "score_sd": "its standard deviation over seeds",
    # The following also exist for ln PPL, with the prefix of `Measure.LOG_PPL`.
    "difference": "score minus that of the reference row, adjusted for seeds; see `differences`",
    "half_width": "half-width of the difference's 95% interval",
    "freedom": "degrees of freedom of the interval",
    "over_seeds": "whether the interval accounts for other seeds",
    "p_value": "the p-value of no difference, corrected for all rows (Holm)",
    "significant": "whether the difference is significant, for all rows together",
    "verdict": "the verdict; see `verdicts`",
}


class Measure(enum.Enum):
    """A measure by which rows are compared: the table's score (BLEU or F1), or ln PPL.

    The value is the prefix of the measure's columns in `Comparison.rows`.
    """

    SCORE = ""
    LOG_PPL = "log_ppl_"

    @property
    def form(self) -> str:
        """The format of a difference."""
        return "+.2f" if self is Measure.SCORE else "+.3f"


@dataclasses.dataclass(frozen=True)
class Measured:
    """The rows of a sweep compared by one measure on one set.

    Attributes:
      scale: the measure, with the constants of its tests.
      means: the rows' means.
      gaps: the difference of each row from its reference row. Rows with a run that failed to train
        have none.
      verdicts: the verdict on each row that has a difference or a failed run.
    """

    scale: verdicts.Scale
    means: differences.Means
    gaps: Mapping[str, differences.Difference]
    verdicts: Mapping[str, verdicts.Verdict]


@dataclasses.dataclass(frozen=True)
class OneSet:
    """The comparison of a sweep's rows on the development set or on the test set.

    Attributes:
      sentences: the number of sentences.
      score: the comparison by BLEU or F1; None if base has no score.
      log_ppl: the comparison by ln PPL; None if base has no perplexity.
      tau: Kendall's tau-b with the paper's BLEU, without rows that failed to train; None without a
        paper.
      tau_of_all: the same with these rows; None if no row failed.
    """

    sentences: int
    score: Measured | None = None
    log_ppl: Measured | None = None
    tau: ranks.Tau | None = None
    tau_of_all: ranks.Tau | None = None

    @property
    def measured(self) -> dict[Measure, Measured]:
        """The comparisons that there are, by their measure."""
        both = {Measure.SCORE: self.score, Measure.LOG_PPL: self.log_ppl}
        return {measure: each for measure, each in both.items() if each}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The comparison of a sweep's rows with base and with the paper.

    Attributes:
      sweep: the results.
      table: the table that the sweep runs.
      rows: a line for each row, by name; see `COLUMNS`.
      dev: the comparison on the development set.
      test: the comparison on the test set; None if base was not scored on it.
      failed: the seeds of the runs that failed to train, for each row or variant that has any.
      tuned: the results of each row with the values of the field of --tune.
    """

    sweep: frames.Sweep
    table: table_lib.Table
    rows: pd.DataFrame
    dev: OneSet
    test: OneSet | None
    failed: Mapping[str, list[int]]
    tuned: Mapping[str, tuning.Tuned]

    @property
    def answer_set(self) -> str:
        """The set whose verdicts answer for the rows: "test" if there is one, otherwise "dev"."""
        return "dev" if self.test is None else "test"

    @property
    def answers(self) -> OneSet:
        """The comparison on `answer_set`."""
        return self.dev if self.test is None else self.test

    @property
    def answer_rows(self) -> pd.DataFrame:
        """`rows` without the columns of the other set, and without the prefix of `answer_set`."""
        prefix = frames.SPLITS["test"]
        of_test = [name for name in self.rows if name.startswith(prefix)]
        if self.test is None:
            return self.rows.drop(columns=of_test)
        names = {name: name.removeprefix(prefix) for name in of_test}
        return self.rows.drop(columns=list(names.values())).rename(columns=names)


def compare(sweep: frames.Sweep, table: table_lib.Table | None = None) -> Comparison:
    """Compares the rows of a sweep.

    Args:
      sweep: the results.
      table: the table that the sweep runs; None for the one that sweep.json names.

    Raises:
      UserError: the runs were not scored on the same corpus in the same way, or the sweep lacks a
        row that claims compare.
    """
    description = sweep.description
    table = table_lib.of_corpus(description.table, description.base, table)
    lost = set(table.needed) - description.rows.keys()
    if lost:
        raise errors.UserError(
            f"{sweep.folder / 'sweep.json'} lacks rows that claims compare "
            f"({', '.join(sorted(lost))}): {store.REMEDY}"
        )
    comparable.require_alike(comparable.measured(sweep), description, table)
    counts = {row: sweep.counts(row, table.measure) for row in description.rows}
    names = comparable.variants(description)
    variants = {name: sweep.counts(name, table.measure) for name in names}
    is_one_corpus = len({table.corpus(row) for row in description.rows}) == 1
    sentences = 0
    if is_one_corpus:
        sentences = comparable.require_same_sentences({**variants, **counts}, table.measure)
    if not is_one_corpus or sentences == 1:  # a single sentence has no variance
        dev = OneSet(sentences)
        rows = _frame(sweep, table, dev, None, {}, {})
        return Comparison(sweep, table, rows, dev, test=None, failed={}, tuned={})
    failed = failures.failed_runs(sweep, table.reported, with_units_of_base(sweep))
    dev = _compare_set(sweep, table, "dev", counts, sentences, failed)
    test = _compare_test(sweep, table, failed) if dev.score else None
    tuned = tuning.tune(sweep, table.measure)
    rows = _frame(sweep, table, dev, test, failed, tuned)
    return Comparison(sweep, table, rows, dev, test, failed, tuned)


def reference(description: store.Description, row: str) -> str:
    """Returns the reference row of a row, to which its score is compared.

    The reference row is base. There is one exception: for a row that sets data.train_max_tokens, it
    is the row that sets only this field, to the same value, if there is such a row.
    """
    field = "data.train_max_tokens"
    overrides = description.rows[row]
    if field in overrides:
        for other, changes in description.rows.items():
            rest = {name: value for name, value in changes.items() if name != field}
            same = changes.get(field) == overrides[field]
            if same and config_lib.replace(description.base, rest) == description.base:
                return other
    return description.base_row


def with_units_of_base(sweep: frames.Sweep) -> list[str]:
    """Returns the rows and variants whose perplexity is over the same tokens as base's.

    Rows with another tokenizer or other directions have other tokens, and encoder-only rows predict
    masked tokens.
    """
    description = sweep.description
    base = sweep.of(description.base_row)
    if not len(base):
        return []
    tokenizer = base["tokenizer_sha256"].iloc[0]
    found = []
    for row in dict.fromkeys(sweep.runs["row"]):
        varied = {"data.vocabulary", "data.directions"} & description.overrides(row).keys()
        is_same = sweep.of(row)["tokenizer_sha256"].iloc[0] == tokenizer
        if is_same and not varied and labels.ppl_of(description, row) == "":
            found.append(row)
    return found


def paper_differences(table: table_lib.Table, base: str, measure: str) -> dict[str, float]:
    """Returns the paper's difference from base for each other row that it has.

    Args:
      table: the table.
      base: the name of the base row.
      measure: "bleu" or "ppl". Differences in BLEU are rounded to one decimal. For "ppl" they are
        differences in ln PPL.
    """
    if base not in table.reported:
        return {}
    theirs, others = table.reported[base], dict(table.reported)
    del others[base]
    if measure == "ppl":
        return {row: math.log(each.ppl / theirs.ppl) for row, each in others.items()}
    return {row: round(each.bleu - theirs.bleu, 1) for row, each in others.items()}


def judge(
    runs: scores.Runs,
    description: store.Description,
    scale: verdicts.Scale,
    paper: Mapping[str, float],
    failed: Mapping[str, list[int]],
) -> Measured | None:
    """Compares rows by one measure on one set.

    Rows with equal settings share their runs. They are tested once, and have the same verdict.

    Args:
      runs: the runs of each row.
      description: the sweep.
      scale: the measure.
      paper: the paper's difference from base of each row that it has.
      failed: the seeds of the runs that failed to train, by row.

    Returns:
      The comparison; None if base has no run.
    """
    base = description.base_row
    if not runs.get(base):
        return None
    means = means_of(runs, description, failed)
    without = [row for row in failed if row != base]
    gaps = {}
    for row in means.runs:
        other = reference(description, row)
        if row != other and other in means.runs and not {row, other} & set(without):
            gaps[row] = means.difference(row, other)
    found = verdicts.judge(gaps, scale, paper)
    for row in without:
        if row in means.runs:
            found[row] = verdicts.failed(len(failed[row]), len(means.runs[row]))
    for row, first in equal_rows(description).items():
        if first in gaps:
            gaps[row] = gaps[first]
        if first in found:
            found[row] = found[first]
    return Measured(scale, means, gaps, found)


def means_of(
    runs: scores.Runs, description: store.Description, failed: Mapping[str, list[int]]
) -> differences.Means:
    """Returns the means of rows: each run counts once, and failed runs of base do not.

    Args:
      runs: the runs of each row. Of rows with equal settings, only the first is used.
      description: the sweep.
      failed: the seeds of the runs that failed to train, by row.
    """
    base = description.base_row
    runs = {row: each for row, each in runs.items() if row not in equal_rows(description)}
    if base in runs:
        lost = failed.get(base, [])
        learned = {seed: run for seed, run in runs[base].items() if seed not in lost}
        runs = {**runs, base: learned or runs[base]}
    return differences.Means(runs, base, [row for row in failed if row != base])


def equal_rows(description: store.Description) -> dict[str, str]:
    """Returns the rows that share runs with an earlier row, each with the earlier row."""
    names = [description.base_row, *description.rows]
    runs = [run for run in description.runs if run.row in names]
    first: dict[str, str] = {}
    equals = {}
    for run in sorted(runs, key=lambda run: names.index(run.row)):
        earlier = first.setdefault(run.config_hash, run.row)
        if earlier != run.row:
            equals[run.row] = earlier
    return equals


def _compare_set(
    sweep: frames.Sweep,
    table: table_lib.Table,
    split: str,
    counts: Mapping[str, Mapping[int, scores.Counts]],
    sentences: int,
    failed: Mapping[str, list[int]],
) -> OneSet:
    description = sweep.description
    base = description.base_row
    runs = {row: scores.from_counts(each, table.measure) for row, each in counts.items()}
    paper = paper_differences(table, base, "bleu")
    score = judge(runs, description, verdicts.SCALES[table.measure], paper, failed)
    same_units = set(with_units_of_base(sweep))
    perplexities = {
        row: scores.log_perplexities(*sweep.likelihoods(row, split))
        for row in description.rows
        if row in same_units
    }
    paper = paper_differences(table, base, "ppl")
    log_ppl = judge(perplexities, description, verdicts.LOG_PPL, paper, failed)
    tau = of_all = None
    if score and table.reported:
        bleu = {row: each.bleu for row, each in table.reported.items()}
        excluded = [row for row in failed if row != base]
        tau = ranks.tau(score.means, bleu, excluded)
        of_all = ranks.tau(score.means, bleu) if set(excluded) & set(score.means.runs) else None
    return OneSet(sentences, score, log_ppl, tau, of_all)


def _compare_test(
    sweep: frames.Sweep, table: table_lib.Table, failed: Mapping[str, list[int]]
) -> OneSet | None:
    """Compares rows on the test set; None if base was not scored on it."""
    counts = {row: sweep.counts(row, table.measure, "test") for row in sweep.description.rows}
    sentences = comparable.require_same_sentences(counts, table.measure, "test")
    if not counts[sweep.description.base_row]:
        return None
    if sentences == 1:
        return OneSet(sentences)
    return _compare_set(sweep, table, "test", counts, sentences, failed)


def _frame(
    sweep: frames.Sweep,
    table: table_lib.Table,
    dev: OneSet,
    test: OneSet | None,
    failed: Mapping[str, list[int]],
    tuned: Mapping[str, tuning.Tuned],
) -> pd.DataFrame:
    description = sweep.description
    base = description.base_row
    paper_bleu, paper_ppl = (paper_differences(table, base, name) for name in ("bleu", "ppl"))
    lines = []
    base_params = next(iter(sweep.values(base, "params")), np.nan)
    errors_of = sweep.failures["row"].value_counts()
    for row in description.rows:
        other = reference(description, row)
        params = next(iter(sweep.values(row, "params")), np.nan)
        theirs = table.reported.get(row)
        line = {
            "row": row,
            "change": labels.change(description, row),
            "reference": other if other != row else None,
            "seeds": len(sweep.of(row)),
            "failed": int(errors_of.get(row, 0)),
            "failed_to_train": len(failed.get(row, [])),
            "params": params,
            "params_share": params / base_params - 1,
            "best_value": tuned[row].best.value if row in tuned else None,
            "best_score": tuned[row].best.score if row in tuned else np.nan,
            "paper_ppl": theirs.ppl if theirs else np.nan,
            "paper_score": theirs.bleu if theirs else np.nan,
            "paper_difference": paper_bleu.get(row, np.nan),
            "paper_log_ppl_difference": paper_ppl.get(row, np.nan),
            "paper_params": theirs.params if theirs and theirs.params else np.nan,
        }
        without = failed.get(row, [])
        line |= _line_of_set(sweep, table, row, "dev", dev, without)
        line |= _line_of_set(sweep, table, row, "test", test or OneSet(0), without)
        lines.append(line)
    frame = pd.DataFrame(lines).set_index("row", drop=False)
    whole = ["seeds", "failed", "failed_to_train", "params", "paper_params"]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def _line_of_set(
    sweep: frames.Sweep,
    table: table_lib.Table,
    row: str,
    split: str,
    compared: OneSet,
    failed: Collection[int],
) -> dict[str, Any]:
    """Returns the columns of a row for one set, "dev" or "test"; see `COLUMNS`."""
    prefix, runs = frames.SPLITS[split], learned_runs(sweep, row, failed)
    line = {
        **mean_and_deviation("ppl", _values(runs, f"{prefix}ppl")),
        **mean_and_deviation("score", _values(runs, f"{prefix}{table.measure}")),
    }
    for measure in Measure:
        name, measured = measure.value, compared.measured.get(measure)
        gap = measured.gaps.get(row) if measured else None
        verdict = measured.verdicts.get(row) if measured else None
        line |= {
            f"{name}difference": gap.mean if gap else np.nan,
            f"{name}half_width": gap.half_width if gap else np.nan,
            f"{name}freedom": gap.freedom if gap else np.nan,
            f"{name}over_seeds": bool(gap and gap.over_seeds),
            f"{name}p_value": verdict.p_value if verdict else np.nan,
            f"{name}significant": bool(verdict and verdict.is_significant),
            f"{name}verdict": verdict.word if verdict else None,
        }
    return {prefix + name: value for name, value in line.items()}


def learned_runs(sweep: frames.Sweep, row: str, failed: Collection[int]) -> pd.DataFrame:
    """Returns the runs of a row without the seeds that failed to train, or all if all failed."""
    own = sweep.of(row)
    kept = own[~own["seed"].isin(failed)]
    return kept if len(kept) else own


def _values(runs: pd.DataFrame, column: str) -> list[float]:
    return runs[column].dropna().tolist() if column in runs else []


def mean_and_deviation(name: str, values: list[float]) -> dict[str, float]:
    """Returns {name: mean of the values, f"{name}_sd": their standard deviation}.

    The mean of no values, and the standard deviation of fewer than two, is NaN.
    """
    return {
        name: statistics.mean(values) if values else np.nan,
        f"{name}_sd": statistics.stdev(values) if len(values) > 1 else np.nan,
    }
