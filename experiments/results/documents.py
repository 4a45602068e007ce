"""The parts of a report: its tables, notes and data.

`report.build` joins them in a `Document`. A `sweep.table.Table` whose report has another form (such
as the table for the paper's Table 2) sets its field `document` to a function that returns the
`Document`.
"""

import collections
import dataclasses
import pathlib
from collections.abc import Iterable, Sequence

import pandas as pd

from experiments.results import frames, labels, tables
from experiments.stats import comparison, differences, ranks, seed_variance, verdicts
from experiments.sweep import cost, store
from transformer_jax import paper
from transformer_jax.data import objectives

DETECTABLE = (
    "Detectable: a true difference of this size is detected with "
    f"{differences.POWER:.0%} power if the standard deviation over seeds is known; with this few "
    "seeds, power is 55 to 80%."
)


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a report that follows the table of rows.

    Attributes:
      tables: the tables of the section.
      notes: notes, each a paragraph, which follow all tables of the report.
    """

    tables: Sequence[tables.Table]
    notes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Document:
    """The tables and notes of a report.

    Attributes:
      tables: the tables, in the order of the report.
      notes: the notes, each a paragraph.
      data: the content of TABLE.csv: unrounded numbers of the first table, and further columns.
      latex: the first table in LaTeX.
    """

    tables: Sequence[tables.Table]
    notes: Sequence[str]
    data: pd.DataFrame
    latex: str


def rows_table(compared: comparison.Comparison) -> tables.Table:
    """Returns the first table of a report: the rows that have run, beside base and the paper."""
    description, score = compared.sweep.description, compared.table.score
    rows = compared.rows
    rows = rows[(rows["seeds"] > 0) | (rows["failed"] > 0)]
    share = rows["params_share"]
    rows = rows.assign(
        ppl_of=[ppl_of(description, row) for row in rows["row"]],
        params_millions=rows["params"].astype(float) / 1e6,
        params_share=share.where(share.abs() > cost.NOTABLE),
        verdict=[_explained(compared, row) for row in rows["row"]],
    )
    columns = [
        tables.Column("row", main=True),
        tables.Column("change", main=True),
        tables.Column("PPL", "ppl", ".3f", "ppl_sd"),
    ]
    if (rows["ppl_of"] != "").any():
        columns.append(tables.Column("PPL of", "ppl_of"))
    columns += [
        tables.Column(score, "score", ".2f", "score_sd", main=True),
        tables.Column("− base", "difference", "+.2f", "half_width", main=True),
    ]
    for field in description.tune:
        name = field.split(".")[-1]
        columns.append(tables.Column(f"best of {name}", "best_score", ".2f"))
        columns.append(tables.Column(name, "best_value"))
    columns += [
        tables.Column("params ×10⁶", "params_millions", ".3g"),
        tables.Column("params − base", "params_share", "+.0%"),
        tables.Column("seeds", form="d"),
    ]
    if (rows["failed"] > 0).any():
        columns.append(tables.Column("failed", form="d"))
    if compared.table.reported:
        columns += [
            tables.Column("PPL", "paper_ppl", ".2f", group="paper"),
            tables.Column("BLEU", "paper_score", ".1f", group="paper"),
            tables.Column("− base", "paper_difference", "+.1f", group="paper"),
            tables.Column("params ×10⁶", "paper_params", "d", group="paper"),
            tables.Column("verdict", main=True),
        ]
    return _with_detectable(rows, columns, "detectable")


def test_set(compared: comparison.Comparison) -> Section:
    """Returns a section with the results on the test set, of rows whose reference row is base."""
    test, description = compared.test, compared.sweep.description
    if test is None:
        return Section([])
    rows = compared.rows
    base = description.base_row
    with_base = rows["reference"].isna() | (rows["reference"] == base)
    rows = rows[with_base & rows["test_score"].notna()]
    rows = rows.assign(test_verdict=[_explained(compared, row, "test") for row in rows["row"]])
    columns = [
        tables.Column("row", main=True),
        tables.Column("PPL", "test_ppl", ".3f", "test_ppl_sd", "test"),
        tables.Column(compared.table.score, "test_score", ".2f", "test_score_sd", "test", True),
        tables.Column("− base", "test_difference", "+.2f", "test_half_width", "test", True),
    ]
    if compared.table.reported:
        columns.append(tables.Column("− base", "paper_difference", "+.1f", group="paper"))
        columns.append(tables.Column("verdict", "test_verdict", main=True))
    sentences = f"{test.sentences:,} sentence{'s' if test.sentences > 1 else ''}"
    title = f"Test set{file_names(description, 'test')}, {sentences}"
    note = seed_variance_note(compared, "test")
    return Section([_with_detectable(rows, columns, "test_detectable", title, note)])


def _with_detectable(
    rows: pd.DataFrame,
    columns: list[tables.Column],
    name: str,
    title: str = "",
    note: str = "",
) -> tables.Table:
    if rows[name].notna().any():
        columns = [*columns, tables.Column("detectable", name, ".1f")]
        note = f"{DETECTABLE} {note}".strip()
    return tables.Table(rows, columns, title, note)


def _explained(compared: comparison.Comparison, row: str, split: str = "dev") -> str | None:
    """Returns the verdict on a row as a text, such as "reproduced" or "undecided (one seed)"."""
    one_set = compared.dev if split == "dev" else compared.test
    if one_set is None or row not in one_set.verdicts:
        return None
    word, gap = one_set.verdicts[row].word, one_set.gaps[row]
    if word != verdicts.UNDECIDED or gap.over_seeds:
        return word
    return f"{word} ({'one seed' if gap.runs[0] == 1 else 'one seed of base'})"


def notes(compared: comparison.Comparison) -> list[str]:
    """Returns the notes that explain the table of rows."""
    sweep, description = compared.sweep, compared.sweep.description
    paragraphs = [labels.base_settings(description)]
    if len(sweep.runs):
        paragraphs.append(
            f"{_measured_on(sweep)} ± after PPL and scores: standard deviation over seeds. ± after "
            "differences: half-width of the 95% interval, over sentences and, where their variance "
            "is known, over seeds."
        )
        paragraphs += [note for note in [seed_variance_note(compared)] if note]
        paragraphs += _paper_notes(compared)
        kinds = collections.Counter(sweep.runs.get("device_kind", pd.Series(dtype=str)).dropna())
        if len(kinds) > 1:
            listed = ", ".join(f"{number} on {kind}" for kind, number in kinds.most_common())
            paragraphs.append(f"Devices of the runs: {listed}.")
        paragraphs.append(
            "params − base: shown above 2%; such a row does not compare parts at equal parameters."
        )
        if description.match:
            paragraphs.append(
                f"--match: rows have base's {description.match}, except those that cannot."
            )
        if not len(sweep.of(description.base_row)):
            paragraphs.append(f"There are no differences: {description.base_row} has not run.")
    run = compared.rows[compared.rows["seeds"] > 0]
    references = run["reference"].dropna()
    others = references[references != description.base_row].unique()
    if len(others):
        paragraphs.append(
            "Rows trained on short sentences only are compared with "
            f"{', '.join(others)}, which was trained on the same ones, instead of base."
        )
    return paragraphs


def _measured_on(sweep: frames.Sweep) -> str:
    description = sweep.description
    data = description.base.data
    signatures = sweep.runs.get("bleu_signature", pd.Series(dtype=str)).dropna()
    signature = next((each for each in signatures if each), "none")
    return (
        f"Development set{file_names(description, 'dev')} of the {data.corpus} corpus, "
        f"{data.source_language} to {data.target_language}. BLEU: {signature}."
    )


def _paper_notes(compared: comparison.Comparison) -> list[str]:
    if not compared.table.reported:
        return []
    paragraphs = [
        f"paper: {compared.table.reported_on}. Across corpora only signs and ranks of differences "
        f"compare. Verdict: {verdicts.RULES}"
    ]
    if compared.tau:
        value, low, high = (
            tables.number(each, ".2f") for each in dataclasses.astuple(compared.tau.estimate)
        )
        paragraphs.append(
            f"Kendall's tau-b with the paper, over the {compared.tau.num_pairs} pairs of rows that "
            f"it separates by at least {ranks.SEPARATED} BLEU: {value} (95%: {low} to {high}), on "
            "the development set."
        )
    description = compared.sweep.description
    width, theirs = description.base.model.d_model, paper.BASE_SIZES["model.d_model"]
    if width < theirs and len(compared.sweep.of("big")):
        model = description.config("big").model
        paragraphs.append(
            f"big: sizes and steps are scaled to this base, rates are not: P_drop="
            f"{model.dropout_rate} applies to {model.d_model} dimensions, in the paper to "
            f"{model.d_model * theirs // width:,}."
        )
    return paragraphs


def seed_variance_note(compared: comparison.Comparison, split: str = "dev") -> str:
    """Returns a note on the pooled standard deviation over seeds; "" without --noise_floor."""
    one_set = compared.dev if split == "dev" else compared.test
    description = compared.sweep.description
    base, runs = description.base_row, len(compared.sweep.of(description.base_row))
    variance = one_set.variance if one_set else None
    if variance is None:
        if runs >= description.noise_floor:
            return ""
        return (
            f"Standard deviation over seeds: {base} has {runs} of {description.noise_floor} runs."
        )
    others = len(variance.rows) - 1
    pooled = f"{variance.pooled.variance**0.5:.2f}"
    rows = f"{others} other row{'s' if others > 1 else ''}"
    pool = f", pooled with {rows} {pooled}" if others else ""
    note = (
        f"Standard deviation over seeds: {base} {variance.base_deviation:.2f} over {runs} runs"
        f"{pool}, with {variance.pooled.freedom} degrees of freedom; used for all rows"
    )
    if not variance.excluded:
        return f"{note}."
    excluded = ", ".join(
        f"{row} ({each.variance**0.5:.2f})" for row, each in variance.excluded.items()
    )
    return (
        f"{note} but those with a run that failed to train, with a lowest development perplexity "
        f"above {seed_variance.FAILED} times base's, which have their own: {excluded}."
    )


def file_names(description: store.Description, split: str) -> str:
    """Returns the file names of the "dev" or "test" set, such as " (newstest2013)"; "" for none."""
    parts = getattr(description.base.data, split).split(",")
    names = ", ".join(pathlib.PurePath(part.strip()).name for part in parts if part.strip())
    return f" ({names})" if names else ""


def shortfalls(sweep: frames.Sweep) -> list[str]:
    """Returns notes on failed runs, rows that have not run, and missing seeds."""
    description = sweep.description
    names = dict.fromkeys(
        name for row in description.rows for name in (row, *description.variants(row).values())
    )
    failed, done = set(sweep.failures["row"]), set(sweep.runs["row"])
    paragraphs = []
    if len(sweep.failures):
        lines = [f"{run.row} (seed {run.seed}: {run.error})" for run in sweep.failures.itertuples()]
        paragraphs.append(f"Failed: {'; '.join(lines)}.")
    if never := [name for name in names if name not in done | failed]:
        paragraphs.append(f"Not run: {', '.join(f'“{name}”' for name in never)}.")
    partly = sweep.missing[sweep.missing["row"].isin(done | failed)]
    if len(partly):
        lines = [f"{run.row} (seed {run.seed})" for run in partly.itertuples()]
        paragraphs.append(f"Missing seeds: {', '.join(lines)}.")
    return paragraphs


def means_and_deviations(
    sweep: frames.Sweep, rows: Iterable[str], names: Sequence[str]
) -> dict[str, list[float]]:
    """Returns columns of means and standard deviations over runs, with a value for each row.

    The values are NaN for a row if one of its runs lacks the number.

    Args:
      sweep: the results.
      rows: the rows.
      names: columns of `Sweep.runs`. The standard deviation of NAME is the column NAME_sd.
    """
    columns: dict[str, list[float]] = {}
    for name in names:
        for row in rows:
            values = sweep.values(row, name)
            complete = values if len(values) == len(sweep.of(row)) else []
            for column, value in comparison.mean_and_deviation(name, complete).items():
                columns.setdefault(column, []).append(value)
    return columns


def data(compared: comparison.Comparison, further: Sequence[str] = ()) -> pd.DataFrame:
    """Returns the content of TABLE.csv: a line for each row of the table, with unrounded numbers.

    Args:
      compared: the rows.
      further: columns of `Sweep.runs` whose means and standard deviations are included.
    """
    rows, table, description = compared.rows, compared.table, compared.sweep.description
    score = table.measure
    columns = {
        **{name: name for name in ("row", "change", "seeds", "failed", "ppl", "ppl_sd")},
        "score": score,
        "score_sd": f"{score}_sd",
        "difference": f"{score}_minus_base",
        "half_width": "interval_half_width",
        "params": "params",
    }
    more = means_and_deviations(compared.sweep, description.rows, further)
    columns |= {name: name for name in more}
    if compared.dev.variance:
        columns |= {"seed_sd": "seed_sd", "seed_sd_freedom": "seed_sd_freedom"}
    for field in description.tune:
        columns |= {"best_value": f"best_{field}_value", "best_score": f"best_{field}_{score}"}
    if table.reported:
        columns |= {
            "paper_ppl": "paper_ppl",
            "paper_score": "paper_bleu",
            "paper_difference": "paper_bleu_minus_base",
            "paper_params": "paper_params_millions",
            "verdict": "verdict",
        }
    if compared.test:
        test = ["ppl", "ppl_sd", "score", "score_sd", "difference", "half_width"]
        test += ["seed_sd", "seed_sd_freedom"] if compared.test.variance else []
        test += ["verdict"] if table.reported else []
        columns |= {f"test_{name}": f"test_{columns[name]}" for name in test}
    return rows.assign(**more)[list(columns)].rename(columns=columns)
