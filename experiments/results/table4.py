"""The report of experiments.table4: the results of a sweep beside the paper's Table 4."""

import statistics
from typing import Any

import numpy as np
import pandas as pd

from experiments.results import comparison, documents, labels, lengths, sensitivity, tables
from transformer_jax import paper

FURTHER = ("recall", "precision", "exact", "crossing", "tagging", "malformed")
_NOTES = (
    "The paper's rows are its Table 4: F1 on section 23 of the Wall Street Journal. Ours are on "
    "the test set of their corpus, and compare with each other only.",
    "F1: labelled brackets as EVALB counts them by COLLINS.prm, over all sentences, malformed "
    "trees as they were repaired. exact: sentences with all brackets right; crossing: brackets a "
    "sentence that cross one of the treebank's; tagging: words with the right part of speech, "
    "where trees have them; malformed: trees in need of repair. All but crossing in percent. ± "
    "after a value: standard deviation over seeds; after a difference, and after ours on test "
    "sets: half-width of the 95% interval, over sentences and, where rows have several, seeds.",
)


def document(compared: comparison.Comparison) -> documents.Document:
    """Returns the report of parsers.

    It has tables of the development set, of F1 by length of sentence, and of the test sets, with
    the paper's rows and ours.
    """
    sweep = compared.sweep
    shown: list[tables.Table] = []
    if len(sweep.runs):
        head = "F1, {bucket} words ({sentences})"
        shown.append(_development_set(compared))
        by_length = lengths.by_length(sweep, "words", head, "By length")
        if by_length:
            shown.append(by_length)
        tuned = sensitivity.section(compared)
        shown += tuned.tables
    else:
        tuned = documents.Section([])
    whole = _paper_table(compared)
    notes = [labels.base_settings(sweep.description), *_NOTES]
    variance = documents.seed_variance_note(compared)
    if variance:
        notes.append(variance)
    notes += [*tuned.notes, *documents.shortfalls(sweep)]
    return documents.Document(
        tables=[*shown, whole],
        notes=notes,
        data=documents.data(compared, FURTHER),
        latex=tables.latex(whole),
    )


def _development_set(compared: comparison.Comparison) -> tables.Table:
    sweep, rows = compared.sweep, compared.rows[compared.rows["seeds"] > 0]
    further = documents.means_and_deviations(sweep, rows["row"], FURTHER)
    rows = rows.assign(
        change=[labels.meaning(sweep.description, row) for row in rows["row"]],
        params_millions=rows["params"].astype(float) / 1e6,
        **further,
    )
    columns = [
        tables.Column("row", main=True),
        tables.Column("change", main=True, spare=1),
        tables.Column("PPL", "ppl", ".3f", "ppl_sd"),
        tables.Column("F1", "score", ".2f", "score_sd", main=True),
        tables.Column(
            f"− {sweep.description.base_row}",
            "difference",
            "+.2f",
            "half_width",
            main=True,
        ),
        *(tables.Column(name, form=".2f", deviation=f"{name}_sd") for name in FURTHER),
        tables.Column("params ×10⁶", "params_millions", ".3g"),
        tables.Column("seeds", form="d"),
    ]
    return tables.Table(rows, columns, "Development set")


def _paper_table(compared: comparison.Comparison) -> tables.Table:
    """Returns the paper's table, followed by our rows that have test scores."""
    lines: list[dict[str, Any]] = [
        {"parser": row.name, "training": row.training, "f1": row.f1} for row in paper.TABLE4
    ]
    description = compared.sweep.description
    corpus = f"{description.base.data.corpus}{documents.file_names(description, 'test')} only"
    for row, overrides in description.rows.items():
        scores = compared.sweep.values(row, "test_f1")
        if scores:
            training = "semi-supervised" if "data.parsed" in overrides else corpus
            lines.append({
                "parser": f"ours: {row}",
                "training": training,
                "ours": statistics.mean(scores),
                "half_width": _half_width(compared, row),
            })  # fmt: skip
    columns = [
        tables.Column("parser"),
        tables.Column("training"),
        tables.Column("F1", "f1", ".1f", group="paper"),
        tables.Column("F1", "ours", ".2f", "half_width", group="ours"),
    ]
    names = ["parser", "training", "f1", "ours", "half_width"]
    return tables.Table(pd.DataFrame(lines, columns=names), columns, "Test sets")


def _half_width(compared: comparison.Comparison, row: str) -> float:
    """Returns the half-width of the 95% interval of a row's F1 on the test set.

    The variance over seeds is pooled over rows. The half-width is NaN for rows without counts or
    errors, and for a test set of a single sentence.
    """
    measured = compared.test.score if compared.test else None
    if measured is None or row not in measured.means.runs:
        return np.nan
    return measured.means.interval(row).half_width
