"""The parts of a report: its tables, notes and data.

`report.build` joins them in a `Document`. A `sweep.table.Table` whose report has another form (such
as the table for the paper's Table 2) sets its field `document` to a function that returns the
`Document`.
"""

import collections
import dataclasses
import math
import pathlib
import textwrap
from collections.abc import Iterable, Sequence

import pandas as pd

from experiments.results import comparison, convergence, frames, labels, tables
from experiments.stats import failures, ranks, verdicts
from experiments.sweep import cost, store
from transformer_jax import paper

SMOOTHING = "train.label_smoothing"
SHORT_CHANGE = 30  # characters of a change in narrow terminals
SHORT_VERDICTS = {
    verdicts.SAME: "same",
    verdicts.OPPOSITE: "opposite",
    verdicts.AS_PAPER: "none",
    verdicts.PAPER_HAS_NONE: "differs",
    verdicts.SMALLER: "< paper",
    verdicts.BETTER: "better",
    verdicts.WORSE: "worse",
    verdicts.NO_DIFFERENCE: "none",
    verdicts.NOT_RESOLVED: "?",
}
SHORT_LEGEND = {
    "same": "as the paper",
    "differs": "paper has none",
    "none": "no difference",
    "?": "not resolved",
    "†": "by design",
}


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
    """Returns the first table of a report: the rows that have run, beside base and the paper.

    It is of the test set if the runs were scored on it, otherwise of the development set.
    """
    description, table = compared.sweep.description, compared.table
    rows = compared.answer_rows
    rows = rows[(rows["seeds"] > 0) | (rows["failed"] > 0)]
    share = rows["params_share"]
    rows = rows.assign(
        change=[labels.meaning(description, row) for row in rows["row"]],
        short_change=[
            textwrap.shorten(
                labels.meaning(description, row, False), SHORT_CHANGE, placeholder=" …"
            )
            for row in rows["row"]
        ],
        ppl_of=[labels.ppl_of(description, row) for row in rows["row"]],
        params_millions=rows["params"].astype(float) / 1e6,
        params_share=share.where(share.abs() > cost.NOTABLE),
        last_quarter=pd.Series(convergence.texts(compared), compared.rows["row"]),
    )
    rows = _with_verdicts(compared, rows, compared.answers)
    columns = [
        tables.Column("row", main=True),
        tables.Column("change", main=True, short="short_change", spare=1),
        tables.Column("params − base", "params_share", "+.0%"),
        *_measure_columns(compared, rows, comparison.Measure.SCORE),
        *_measure_columns(compared, rows, comparison.Measure.LOG_PPL),
    ]
    if (rows["ppl_of"] != "").any():
        columns.append(tables.Column("PPL of", "ppl_of"))
    columns.append(tables.Column("seeds", form="d"))
    if (rows["last_quarter"] != "").any():
        columns.append(tables.Column("last quarter", "last_quarter"))
    for field in description.tune:
        name = field.split(".")[-1]
        columns.append(tables.Column(f"best of {name}", "best_score", ".2f"))
        columns.append(tables.Column(name, "best_value"))
    if table.reported and compared.test is None:
        columns += _paper_columns()
    columns.append(tables.Column("params ×10⁶", "params_millions", ".3g"))
    if (rows["failed"] > 0).any():
        columns.append(tables.Column("failed", form="d"))
    return tables.Table(rows, columns, "" if compared.test is None else _title(compared, "test"))


def _measure_columns(
    compared: comparison.Comparison, rows: pd.DataFrame, measure: comparison.Measure
) -> list[tables.Column]:
    """Returns the columns of a measure."""
    prefix, is_score = measure.value, measure is comparison.Measure.SCORE
    if is_score:
        group, paper_form = compared.table.score, "+.1f"
        difference = f"− {compared.sweep.description.base_row}"
        columns = [tables.Column("ours ± SD", "score", ".2f", "score_sd", group, main=True)]
    else:
        group, paper_form = "PPL", measure.form
        difference = f"ln PPL − {compared.sweep.description.base_row}"
        columns = [tables.Column("ours ± SD", "ppl", ".3f", "ppl_sd", group)]
    names = (f"{prefix}difference", measure.form, f"{prefix}half_width")
    if is_score or rows[names[0]].notna().any():
        spare = 0 if is_score else 3
        columns.append(tables.Column(difference, *names, group, main=True, spare=spare))
    if compared.table.reported:
        head = f"paper {difference}"
        name = f"paper_{prefix}difference"
        columns.append(tables.Column(head, name, paper_form, group=group))
    if rows[f"{prefix}verdict"].notna().any():
        short = f"{prefix}short_verdict"
        spare = 0 if is_score else 2
        columns.append(tables.Column("says", f"{prefix}verdict", "", "", group, True, short, spare))
    return columns


def development_set(compared: comparison.Comparison) -> Section:
    """Returns a section with the results on the development set, if the first table has others."""
    rows = compared.rows[compared.rows["seeds"] > 0]
    if compared.test is None or not len(rows):
        return Section([])
    rows = _with_verdicts(compared, rows, compared.dev)
    columns = [
        tables.Column("row", main=True),
        *_measure_columns(compared, rows, comparison.Measure.SCORE),
        *_measure_columns(compared, rows, comparison.Measure.LOG_PPL),
    ]
    if compared.table.reported:
        columns += _paper_columns()
    return Section([tables.Table(rows, columns, _title(compared, "dev"))])


def _title(compared: comparison.Comparison, split: str) -> str:
    """Returns a title such as "Test set (newstest2014), 3,003 sentences"."""
    compared_set = compared.dev if split == "dev" else compared.test
    name = {"dev": "Development set", "test": "Test set"}[split]
    files = file_names(compared.sweep.description, split)
    return f"{name}{files}, {compared_set.sentences if compared_set else 0:,} sentences"


def _paper_columns() -> list[tables.Column]:
    return [
        tables.Column("BLEU", "paper_score", ".1f", group="paper"),
        tables.Column("PPL", "paper_ppl", ".2f", group="paper"),
        tables.Column("params ×10⁶", "paper_params", "d", group="paper"),
    ]


def _with_verdicts(
    compared: comparison.Comparison, rows: pd.DataFrame, one_set: comparison.OneSet
) -> pd.DataFrame:
    """Returns rows with texts for the verdicts on a set, and short texts for narrow terminals."""
    texts = {}
    for measure, measured in one_set.measured.items():
        for name, explain in (("verdict", _explained), ("short_verdict", _short_verdict)):
            texts[measure.value + name] = [
                explain(measured, row, is_by_design(compared, row, measure)) for row in rows["row"]
            ]
    return rows.assign(**texts)


def _explained(measured: comparison.Measured, row: str, by_design: bool) -> str | None:
    """Returns the verdict on a row as a text, such as "better" or "not resolved (one seed)".

    † marks perplexities that the row changes by design.
    """
    if row not in measured.verdicts:
        return None
    word = measured.verdicts[row].word
    gap = measured.gaps.get(row)
    if gap and not gap.over_seeds:
        word += " (one seed)" if max(gap.runs) == 1 else " (seeds do not differ)"
    return f"{word} †" if by_design else word


def _short_verdict(measured: comparison.Measured, row: str, by_design: bool) -> str | None:
    """Returns the verdict on a row as a short text, for narrow terminals; see `SHORT_VERDICTS`."""
    if row not in measured.verdicts:
        return None
    verdict = measured.verdicts[row]
    if verdict.failed:
        return f"fail {verdict.failed}/{verdict.runs}"
    return f"{SHORT_VERDICTS[verdict.word]}{'†' if by_design else ''}"


def is_by_design(compared: comparison.Comparison, row: str, measure: comparison.Measure) -> bool:
    """Returns True if a row changes a measure by design, as label smoothing does perplexity."""
    changes = labels.changes(compared.sweep.description, row)
    return measure is comparison.Measure.LOG_PPL and SMOOTHING in changes


def notes(compared: comparison.Comparison) -> list[str]:
    """Returns the notes that explain the table of rows."""
    sweep, description = compared.sweep, compared.sweep.description
    paragraphs = [labels.base_settings(description)]
    if len(sweep.runs):
        paragraphs += [_legend(compared), _measured_on(compared)]
        paragraphs += _failures(compared)
        paragraphs += [note for note in [seed_variance_note(compared)] if note]
        paragraphs += _paper_notes(compared)
        kinds = collections.Counter(sweep.runs.get("device_kind", pd.Series(dtype=str)).dropna())
        if len(kinds) > 1:
            listed = ", ".join(f"{number} on {kind}" for kind, number in kinds.most_common())
            paragraphs.append(f"Devices of the runs: {listed}.")
        if convergence.of_rows(compared).notna().any():
            paragraphs.append(
                "last quarter: change of development perplexity over the last quarter of the "
                "steps, of the runs that learned, and how many of all runs moved by more than "
                f"{convergence.NOTABLE:.0%}."
            )
        paragraphs.append(
            "change: d_k and d_v are named where they are not in proportion to d_model / h. "
            "params − base: shown above 2%; such a row does not compare parts at equal parameters."
        )
        if not description.match:
            paragraphs.append(
                "Rows differ in FLOPs too; --match=flops gives all rows those of base."
            )
        else:
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


def _legend(compared: comparison.Comparison) -> str:
    """Returns the legend of the columns of differences and verdicts."""
    answers, score = compared.answers, compared.table.score
    measured = answers.measured.values()
    if not any(each.gaps for each in measured):
        return "± after means: standard deviation over seeds."
    over_sentences = [each.scale.name for each in measured if each.means.over_sentences]
    sentences = f" and, for {' and '.join(over_sentences)}, other sentences"
    is_tested = any(gap.over_seeds for each in measured for gap in each.gaps.values())
    parts = ["± after means: standard deviation over seeds."]
    if not is_tested:
        parts.append(
            "− base: the row minus base, with a 95% interval for other sentences alone where "
            "their statistics are known. One seed a row: no difference is tested for other seeds."
        )
        return " ".join(parts)
    parts.append(
        "− base: the row minus base, averaged over runs and adjusted for the seeds that they have, "
        f"with a 95% interval for other random seeds{sentences if over_sentences else ''}."
    )
    not_chance = "our difference is not chance (5% error for the whole column, Holm)"
    scale, percent = verdicts.SCALES[compared.table.measure], 100 * verdicts.LOG_PPL.equivalence
    within = f"within ±{scale.equivalence} {score}, or ±{percent:.0f}% of perplexity"
    if compared.table.reported:
        parts.append(
            f"Same direction: {not_chance} and has the paper's sign; sizes are not compared, since "
            f"corpus and model are smaller. No difference: {within}. Smaller than the paper's: a "
            "difference as large as the paper's would be seen."
        )
    else:
        parts.append(f"Better, worse: {not_chance}. No difference: {within}.")
    parts.append(f"Not resolved: these runs cannot tell{_detectable(answers)}.")
    if compared.table.reported:
        parts.append(
            "The paper reports one run a row, so its differences below about 0.3 BLEU may be "
            "chance."
        )
    smoothed = [
        row
        for row in (answers.log_ppl.gaps if answers.log_ppl else ())
        if SMOOTHING in labels.changes(compared.sweep.description, row)
    ]
    if smoothed:
        parts.append("† Label smoothing changes perplexity by design.")
    return " ".join(parts)


def _detectable(answers: comparison.OneSet) -> str:
    """Returns a text with the differences that the tests would mostly detect."""
    sizes = []
    for each in answers.measured.values():
        size = verdicts.detectable(each.gaps, each.verdicts)
        if size is not None and each is answers.log_ppl:
            sizes.append(f"{tables.number(math.expm1(size), '.1%')} of perplexity")
        elif size is not None:
            sizes.append(f"{tables.number(size, '.1f')} {each.scale.name}")
    return f"; a difference of {' or '.join(sizes)} mostly would be seen" if sizes else ""


def _failures(compared: comparison.Comparison) -> list[str]:
    """Returns a note on the rows with runs that failed to train."""
    sweep, score = compared.sweep, compared.table.score
    parts = []
    for row, seeds in compared.failed.items():
        if row not in compared.answer_rows.index:
            continue
        runs = len(sweep.of(row))
        number = runs - len(seeds)
        text = f"{row}: {number} of {runs} runs learned"
        if number:
            value = tables.number(compared.answer_rows.loc[row, "score"], ".2f")
            text += f"; {'the one that did' if number == 1 else 'those that did'}: {value} {score}"
        parts.append(text)
    if not parts:
        return []
    return [
        f"{'. '.join(parts)}. A run failed to train if its lowest development perplexity is above "
        f"{failures.FAILED} times base's final one (rows without a paper's score: and above "
        f"{failures.FAILED} times their best run). Such a row has no difference and is left out "
        "of the tests, of pooled variances and of tau; its means are over the runs that learned."
    ]


def _measured_on(compared: comparison.Comparison) -> str:
    sweep, description = compared.sweep, compared.sweep.description
    data = description.base.data
    signatures = sweep.runs.get("bleu_signature", pd.Series(dtype=str)).dropna()
    signature = next((f" BLEU: {each}." for each in signatures if each), "")
    sentences = f", {compared.answers.sentences:,} sentences" if compared.answers.sentences else ""
    name = {"dev": "Development set", "test": "Test set"}[compared.answer_set]
    return (
        f"{name}{file_names(description, compared.answer_set)}{sentences}, of the {data.corpus} "
        f"corpus, {data.source_language} to {data.target_language}.{signature}"
    )


def about(compared: comparison.Comparison) -> str:
    """Returns a line about the data and the base row of a sweep."""
    data = compared.sweep.description.base.data
    sentences = _title(compared, compared.answer_set)
    settings = labels.base_settings(compared.sweep.description)
    return f"{sentences}, {data.source_language} to {data.target_language}. {settings}"


def _paper_notes(compared: comparison.Comparison) -> list[str]:
    if not compared.table.reported:
        return []
    paragraphs = [
        f"paper: {compared.table.reported_on}. Across corpora only signs and ranks of differences "
        "compare."
    ]
    taus = [
        f"{name} {_tau(each.tau)}{f'; with the failed rows {_tau(all_rows)}' if all_rows else ''}"
        for name, each, all_rows in (
            ("development set", compared.dev, compared.dev.tau_of_all),
            ("test set", compared.test, compared.test.tau_of_all if compared.test else None),
        )
        if each and each.tau
    ]
    if taus:
        paragraphs.append(
            "Kendall's tau-b with the paper in BLEU, over the pairs of rows that it separates by "
            f"at least {ranks.SEPARATED}: {'; '.join(taus)}. Intervals are for other seeds and "
            "sentences; p is that of a permutation test against chance."
        )
    description = compared.sweep.description
    width, theirs = description.base.model.d_model, paper.BASE_SIZES["model.d_model"]
    if width < theirs and len(compared.sweep.of("big")):
        model = description.config("big").model
        paragraphs.append(
            f"big: sizes and steps are scaled to this base, the dropout rate is not: P_drop="
            f"{model.dropout_rate} applies to {model.d_model} dimensions, in the paper to "
            f"{model.d_model * theirs // width:,}."
        )
    return paragraphs


def _tau(tau: ranks.Tau) -> str:
    value, low, high = (tables.number(each, ".2f") for each in dataclasses.astuple(tau.estimate))
    p_value = "< 0.001" if tau.p_value < 0.001 else f"= {tau.p_value:.3f}"
    return f"{value} (95%: {low} to {high}; p {p_value}; {tau.num_pairs} pairs)"


def seed_variance_note(compared: comparison.Comparison) -> str:
    """Returns a note on the standard deviations over seeds; "" if no row has two runs."""
    description = compared.sweep.description
    base, runs = description.base_row, len(compared.sweep.of(description.base_row))
    parts = []
    for each in compared.answers.measured.values():
        components = each.means.components
        if components is None or not components.total:
            continue
        form = ".4f" if each is compared.answers.log_ppl else ".2f"
        text = f"{each.scale.name} {components.total**0.5:{form}}"
        if components.seed:
            text += (
                f" (estimated by REML: {components.seed**0.5:{form}} for the seed's effect on all "
                f"rows, {components.run**0.5:{form}} for the run)"
            )
        text += f", {components.total_freedom} degrees of freedom"
        own = [
            f"{row} ({variance**0.5:{form}})"
            for row, variance in each.means.own.items()
            if row not in compared.failed
        ]
        if own:
            text += f"; not pooled, since they vary more than all others: {', '.join(own)}"
        parts.append(text)
    notes = []
    if parts:
        notes.append(
            "Standard deviation of a run over seeds, pooled over rows and used for rows with one "
            f"run too: {'. '.join(parts)}."
        )
    if runs < description.noise_floor:
        notes.append(f"{base} has {runs} of {description.noise_floor} runs.")
    return " ".join(notes)


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
    first = ["row", "change", "seeds", "failed", "failed_to_train"]
    of_set = {
        "ppl": "ppl",
        "ppl_sd": "ppl_sd",
        "score": score,
        "score_sd": f"{score}_sd",
        "difference": f"{score}_minus_base",
        "half_width": "interval_half_width",
        "freedom": f"{score}_freedom",
        "p_value": f"{score}_p_value",
        "verdict": "verdict",
        "log_ppl_difference": "log_ppl_minus_base",
        "log_ppl_half_width": "log_ppl_half_width",
        "log_ppl_freedom": "log_ppl_freedom",
        "log_ppl_p_value": "log_ppl_p_value",
        "log_ppl_verdict": "log_ppl_verdict",
    }
    columns = {**{name: name for name in first}, **of_set, "params": "params"}
    more = means_and_deviations(compared.sweep, description.rows, further)
    columns |= {name: name for name in more}
    for field in description.tune:
        columns |= {"best_value": f"best_{field}_value", "best_score": f"best_{field}_{score}"}
    if table.reported:
        columns |= {
            "paper_ppl": "paper_ppl",
            "paper_score": "paper_bleu",
            "paper_difference": "paper_bleu_minus_base",
            "paper_log_ppl_difference": "paper_log_ppl_minus_base",
            "paper_params": "paper_params_millions",
        }
    if compared.test:
        columns |= {f"test_{name}": f"test_{column}" for name, column in of_set.items()}
    more["last_quarter"] = convergence.of_rows(compared).tolist()
    columns["last_quarter"] = "dev_ppl_last_quarter_change"
    return rows.assign(**more)[list(columns)].rename(columns=columns)
