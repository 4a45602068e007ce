"""The rows of a sweep compared with base and with the paper.

`compare` returns a `Comparison`, whose `rows` is a data frame with a line for each row of the
table. Its columns are those of `COLUMNS`; columns of the test set begin with `test_`.
"""

import dataclasses
import statistics
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from experiments.results import frames, labels
from experiments.stats import differences, ranks, seed_variance, tuning, verdicts
from experiments.sweep import store
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax import errors

COLUMNS = {
    "row": "name of the row",
    "change": "its changes of base, as text",
    "reference": "the row that it is compared with; missing for base",
    "seeds": "number of finished runs",
    "failed": "number of failed runs",
    "params": "number of parameters",
    "params_share": "parameters relative to base's, minus 1",
    "best_value": "with --tune: the value of the field that is best on the development set",
    "best_score": "with --tune: the score on the test set with this value",
    "paper_ppl": "the paper's perplexity",
    "paper_score": "the paper's BLEU",
    "paper_difference": "the paper's difference from base",
    "paper_params": "the paper's millions of parameters",
    # Each of the following columns also exists for the test set, with the prefix test_.
    "ppl": "mean perplexity",
    "ppl_sd": "its standard deviation over seeds",
    "score": "mean BLEU or F1",
    "score_sd": "its standard deviation over seeds",
    "difference": "score minus that of the reference row",
    "half_width": "half-width of the difference's 95% interval",
    "freedom": "degrees of freedom of the interval",
    "over_seeds": "whether the interval accounts for other seeds",
    "significant": "whether the difference is significant; with verdicts, for all rows together",
    "detectable": "the detectable difference, where the difference is not significant",
    "seed_sd": "the standard deviation over seeds that intervals use, with --noise_floor",
    "seed_sd_freedom": "its degrees of freedom",
    "verdict": "the verdict on the paper's difference",
}

# Columns of `frames.measured_on` by the names that error messages use.
_NAMES = {
    "data_sha256": "corpus",
    "tokenizer_sha256": "tokenizer",
    "test_sha256": "test set",
    "source_language": "source language",
    "target_language": "target language",
    "length_buckets": "buckets of length",
    "word_buckets": "buckets of words",
}
# For each field, the columns that may differ between runs if a row changes this field.
_VARY_WITH = {
    "data.vocabulary": ("tokenizer_sha256", "length_buckets"),
    "data.directions": ("tokenizer_sha256", "length_buckets"),
    "data.parsed": ("data_sha256", "tokenizer_sha256", "length_buckets"),
}


@dataclasses.dataclass(frozen=True)
class OneSet:
    """The comparison of a sweep's rows on the development set or on the test set.

    Attributes:
      scores: the bootstrap scores of each row with runs that were scored.
      gaps: the difference of each row from its reference row.
      variance: the pooled variance over seeds; None without --noise_floor, or if base has fewer
        than two runs.
      verdicts: the verdict on each row for which the paper reports a score.
      sentences: the number of sentences.
    """

    scores: Mapping[str, differences.Scores]
    gaps: Mapping[str, differences.Difference]
    variance: seed_variance.SeedVariance | None
    verdicts: Mapping[str, verdicts.Verdict]
    sentences: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The comparison of a sweep's rows with base and with the paper.

    Attributes:
      sweep: the results.
      table: the table that the sweep runs.
      rows: a line for each row, by name; see `COLUMNS`.
      dev: the comparison on the development set.
      test: the comparison on the test set; None if base was not scored on it.
      tau: Kendall's tau-b with the paper on the development set; None without a paper.
      tuned: the results of each row with the values of the field of --tune.
    """

    sweep: frames.Sweep
    table: table_lib.Table
    rows: pd.DataFrame
    dev: OneSet
    test: OneSet | None
    tau: ranks.Tau | None
    tuned: Mapping[str, tuning.Tuned]

    def significant_over_seeds(self, row: str) -> bool:
        """Returns True if a row's difference from base is significant, given the seed variance.

        The result is False if the seed variance is unknown.
        """
        line = self.rows.loc[row]
        return bool(line["significant"] and line["over_seeds"])


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
    require_alike(_measured(sweep), description, table)
    paper = paper_differences(description, table)
    counts = {row: sweep.counts(row, table.measure) for row in description.rows}
    variants = {name: sweep.counts(name, table.measure) for name in _variants(description)}
    is_one_corpus = len({table.corpus(row) for row in description.rows}) == 1
    sentences = 0
    if is_one_corpus:
        sentences = require_same_sentences({**variants, **counts}, table.measure)
    if not is_one_corpus or sentences == 1:  # a single sentence has no variance
        dev = OneSet(scores={}, gaps={}, variance=None, verdicts={}, sentences=sentences)
        rows = _frame(sweep, table, dev, None, {}, paper)
        return Comparison(sweep, table, rows, dev, test=None, tau=None, tuned={})
    references = {row: reference(description, row) for row in description.rows}
    dev = _compare_set(sweep, table, counts, references, paper)
    test = _compare_test(sweep, table, references, paper) if dev.gaps else None
    known = {row: scores for row, scores in dev.scores.items() if row in table.reported}
    bleu = {row: reported.bleu for row, reported in table.reported.items()}
    tau = ranks.tau(known, bleu, dev.variance) if known else None
    tuned = tuning.tune(sweep, table.measure)
    rows = _frame(sweep, table, dev, test, tuned, paper)
    return Comparison(sweep, table, rows, dev, test, tau, tuned)


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


def paper_differences(description: store.Description, table: table_lib.Table) -> dict[str, float]:
    """Returns the paper's difference in BLEU from base for each row, rounded to one decimal."""
    base, *others = description.rows
    if base not in table.reported:
        return {}
    of_base = table.reported[base].bleu
    return {
        row: round(table.reported[row].bleu - of_base, 1) for row in others if row in table.reported
    }


def pooled_variance(
    sweep: frames.Sweep, scores: Mapping[str, differences.Scores]
) -> seed_variance.SeedVariance | None:
    """Returns the variance of scores over seeds, pooled over rows; see `seed_variance`.

    Args:
      sweep: the results.
      scores: the bootstrap scores of each row.

    Returns:
      The pooled variance; None without --noise_floor.
    """
    if not sweep.description.noise_floor:
        return None
    of_runs = {row: runs[:, 0].tolist() for row, runs in scores.items()}
    return seed_variance.pool(of_runs, sweep.description.base_row, failed_rows(sweep))


def failed_rows(sweep: frames.Sweep) -> set[str]:
    """Returns the rows that have a run with a too high perplexity; see `seed_variance.FAILED`.

    The result includes variants of rows for --tune.
    """
    base_ppl = sweep.values(sweep.description.base_row, "ppl")
    if not base_ppl:
        return set()
    limit = statistics.mean(base_ppl)
    lowest = sweep.runs.set_index("config_hash")["ppl"]
    if "dev_ppl" in sweep.curves:
        logged = sweep.curves.groupby("config_hash")["dev_ppl"].min()
        lowest = np.fmin(lowest, logged.reindex(lowest.index))
    return {
        row
        for row, ppl in zip(sweep.runs["row"], lowest, strict=True)
        if seed_variance.has_failed(ppl, limit)
    }


def gap(
    scores: Mapping[str, differences.Scores],
    row: str,
    other: str,
    variance: seed_variance.SeedVariance | None,
) -> differences.Difference:
    """Returns the difference between the scores of two rows.

    Args:
      scores: bootstrap scores by row.
      row: the row.
      other: the row whose score is subtracted.
      variance: the pooled variance over seeds; None to estimate the variances from the runs.
    """
    estimates = (variance.of(row), variance.of(other)) if variance else None
    return differences.difference(scores[row], scores[other], estimates)


def _compare_set(
    sweep: frames.Sweep,
    table: table_lib.Table,
    counts: Mapping[str, Mapping[int, differences.Counts]],
    references: Mapping[str, str],
    paper: Mapping[str, float],
) -> OneSet:
    scores = {
        row: differences.bootstrap_scores(runs, table.measure)
        for row, runs in counts.items()
        if runs
    }
    variance = pooled_variance(sweep, scores)
    gaps = {
        row: gap(scores, row, references[row], variance)
        for row in scores
        if row in references and references[row] != row and references[row] in scores
    }
    lengths = [len(run) for runs in counts.values() for run in runs.values()]
    sentences = lengths[0] if lengths else 0  # the same for all runs
    return OneSet(scores, gaps, variance, verdicts.judge(gaps, paper), sentences)


def _compare_test(
    sweep: frames.Sweep,
    table: table_lib.Table,
    references: Mapping[str, str],
    paper: Mapping[str, float],
) -> OneSet | None:
    """Compares rows on the test set: those whose reference row is base.

    Returns:
      The comparison; None if base was not scored on the test set.
    """
    base = sweep.description.base_row
    counts = {row: sweep.counts(row, table.measure, "test") for row in sweep.description.rows}
    sentences = require_same_sentences(counts, table.measure, "test")
    if not counts[base]:
        return None
    if sentences == 1:
        return OneSet(scores={}, gaps={}, variance=None, verdicts={}, sentences=1)
    with_base = {row: base for row, other in references.items() if other == base}
    return _compare_set(sweep, table, counts, with_base, paper)


def _frame(
    sweep: frames.Sweep,
    table: table_lib.Table,
    dev: OneSet,
    test: OneSet | None,
    tuned: Mapping[str, tuning.Tuned],
    paper: Mapping[str, float],
) -> pd.DataFrame:
    description = sweep.description
    lines = []
    base_params = next(iter(sweep.values(description.base_row, "params")), np.nan)
    failed = sweep.failures["row"].value_counts()
    for row in description.rows:
        other = reference(description, row)
        params = next(iter(sweep.values(row, "params")), np.nan)
        theirs = table.reported.get(row)
        line = {
            "row": row,
            "change": labels.change(description, row),
            "reference": other if other != row else None,
            "seeds": len(sweep.of(row)),
            "failed": int(failed.get(row, 0)),
            "params": params,
            "params_share": params / base_params - 1,
            "best_value": tuned[row].best.value if row in tuned else None,
            "best_score": tuned[row].best.score if row in tuned else np.nan,
            "paper_ppl": theirs.ppl if theirs else np.nan,
            "paper_score": theirs.bleu if theirs else np.nan,
            "paper_difference": paper.get(row, np.nan),
            "paper_params": theirs.params if theirs and theirs.params else np.nan,
        }
        line |= _line_of_set(sweep, table, row, "dev", dev)
        line |= _line_of_set(sweep, table, row, "test", test)
        lines.append(line)
    frame = pd.DataFrame(lines).set_index("row", drop=False)
    whole = ["seeds", "failed", "params", "paper_params", "seed_sd_freedom", "test_seed_sd_freedom"]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def _line_of_set(
    sweep: frames.Sweep, table: table_lib.Table, row: str, split: str, compared: OneSet | None
) -> dict[str, Any]:
    """Returns the columns of a row for one set, "dev" or "test"; see `COLUMNS`."""
    prefix = frames.SPLITS[split]
    gap = compared.gaps.get(row) if compared else None
    verdict = compared.verdicts.get(row) if compared else None
    variance = compared.variance.of(row) if compared and compared.variance else None
    significant = verdict.is_significant if verdict else bool(gap and gap.excludes_0)
    line = {
        **mean_and_deviation("ppl", sweep.values(row, f"{prefix}ppl")),
        **mean_and_deviation("score", sweep.values(row, f"{prefix}{table.measure}")),
        **_columns_of_gap(gap),
        "significant": significant,
        "detectable": _detectable(gap, verdict),
        "seed_sd": variance.variance**0.5 if variance else np.nan,
        "seed_sd_freedom": variance.freedom if variance else np.nan,
        "verdict": verdict.word if verdict else None,
    }
    return {prefix + name: value for name, value in line.items()}


def _columns_of_gap(gap: differences.Difference | None) -> dict[str, Any]:
    if gap is None:
        return {
            "difference": np.nan,
            "half_width": np.nan,
            "freedom": np.nan,
            "over_seeds": False,
        }
    return {
        "difference": gap.mean,
        "half_width": gap.half_width,
        "freedom": gap.freedom,
        "over_seeds": bool(gap.over_seeds),
    }


def _detectable(gap: differences.Difference | None, verdict: verdicts.Verdict | None) -> float:
    """Returns the smallest difference that the test of a row would probably detect.

    The result is NaN if the difference is significant or decided, or if the variance over seeds is
    unknown. See `differences.Difference.detectable`.
    """
    if gap is None or not gap.over_seeds:
        return np.nan
    if verdict is None:
        return np.nan if gap.excludes_0 else gap.detectable()
    return gap.detectable(verdict.level) if verdict.word == verdicts.UNDECIDED else np.nan


def mean_and_deviation(name: str, values: list[float]) -> dict[str, float]:
    """Returns {name: mean of the values, f"{name}_sd": their standard deviation}.

    The mean of no values, and the standard deviation of fewer than two, is NaN.
    """
    return {
        name: statistics.mean(values) if values else np.nan,
        f"{name}_sd": statistics.stdev(values) if len(values) > 1 else np.nan,
    }


def _variants(description: store.Description) -> dict[str, str]:
    """Returns the names of all variants for --tune, each with the name of its row."""
    return {
        name: row
        for row in description.rows
        for name in description.variants(row).values()
        if name != row
    }


def require_same_sentences(
    counts: Mapping[str, Mapping[int, differences.Counts]], measure: str, split: str = "dev"
) -> int:
    """Requires that all runs were scored on the same sentences.

    Args:
      counts: per-sentence counts of each run, by row and seed.
      measure: "bleu" or "f1".
      split: the set of the counts, "dev" or "test", for the message.

    Returns:
      The number of sentences; 0 if no run was scored.

    Raises:
      UserError: runs have different numbers of sentences, or references of different lengths.
    """
    of_reference = frames.MEASURES[measure].of_reference
    known: dict[bytes, tuple[str, int]] = {}
    for row, runs in counts.items():
        for seed, run in runs.items():
            name = f"{row} with seed {seed} ({len(run):,} sentences)"
            key = run[:, of_reference].astype(np.int64).tobytes()
            known.setdefault(key, (name, len(run)))
    if len(known) > 1:
        raise errors.UserError(
            f"the {split} sets of {' and '.join(name for name, _ in known.values())} have "
            f"different sentences, or another order: {frames.EVALUATE_AGAIN}"
        )
    return next((sentences for _, sentences in known.values()), 0)


def require_alike(
    records: pd.DataFrame, description: store.Description, table: table_lib.Table
) -> None:
    """Requires that the scores of runs can be compared in one table.

    Args:
      records: a line for each run: row, seed, the columns of `frames.measured_on`, and, once runs
        have finished, the signatures of BLEU. A missing value is not compared.
      description: the sweep.
      table: its table. Only rows on the same corpus are compared.

    Raises:
      UserError: runs on the same corpus differ in a column, such as the tokenizer. A row may differ
        in the columns that its overrides affect: a row that sets decode.alpha is compared in all
        columns but decode_alpha.
    """
    rows_of = {row: row for row in description.rows}
    rows_of |= _variants(description)
    known: dict[tuple[str, str], dict[Hashable, str]] = {}
    for record in records.to_dict("records"):
        row = record["row"]
        overrides = description.overrides(row)
        varied = {field.replace("decode.", "decode_") for field in overrides}
        varied |= {name for field in overrides for name in _VARY_WITH.get(field, ())}
        for name, value in record.items():
            column = str(name)
            is_missing = pd.isna(value) or (column.endswith("_signature") and not value)
            if is_missing or column in ("row", "seed", *varied):
                continue
            rows = known.setdefault((table.corpus(rows_of[row]), column), {})
            if value not in rows:
                rows[value] = row
    for (_, column), rows in known.items():
        if len(rows) > 1:
            name = _NAMES.get(column, column.replace("_", " "))
            values = ", ".join(sorted(str(value)[:60] or "none" for value in rows))
            examples = " and ".join(dict.fromkeys(rows.values()))
            raise errors.UserError(
                f"these results cannot stand in one table: they differ in {name} ({values}): see "
                f"{examples}; give each its own sweep and --workdir"
            )


def _measured(sweep: frames.Sweep) -> pd.DataFrame:
    """Returns the records of the runs for `require_alike`."""
    columns = [
        name
        for name in sweep.runs
        if name in ("row", "seed", *_NAMES)
        or name.startswith("decode_")
        or (name.endswith("_signature") and name.startswith("bleu"))
    ]
    records = sweep.runs[columns]
    for column, unit in (("length_buckets", "tokens"), ("word_buckets", "words")):
        names: dict[str, list[str]] = {}
        for line in sweep.lengths.to_dict("records"):
            if line["unit"] == unit and not line["beyond_training"]:
                names.setdefault(line["config_hash"], []).append(line["bucket"])
        # Rows with equal settings share a run, whose buckets then appear twice.
        joined = {run: ", ".join(dict.fromkeys(each)) for run, each in names.items()}
        records = records.assign(**{column: sweep.runs["config_hash"].map(joined)})
    return records
