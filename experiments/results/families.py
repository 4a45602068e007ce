"""Sections of the report of experiments.families.

One compares vocabularies and translation directions, the other compares encoder-only models.
"""

import math
import re
import statistics

import numpy as np
import pandas as pd

from experiments.results import comparison, documents, frames, labels, tables
from transformer_jax.evaluation import encoder_only as accuracy_lib

VARIED = ("data.vocabulary", "data.directions")  # fields that rows in `multilingual` change
_MULTILINGUAL = (
    "Tokens: per sentence of the development set, end and tags included. PPL is per token, so that "
    "between vocabularies only nats a sentence compare: tokens × ln PPL. Speeds are those of "
    "training, where a sentence may be of any direction."
)
_ENCODER_ONLY = (
    "Encoder-only models, and ELMo, generate no text. Their PPL is that of masked tokens in "
    "held-out pairs, the same for all rows; ELMo's is that of all tokens, each predicted from one "
    "side, as the mean of both directions, and does not compare with it. Accuracy: of answers to "
    "whether a sentence is the translation of another, for each held-out source with its "
    "translation and with another target of equal length; 50% is chance. It is the mean over "
    "seeds; the interval is Wilson's over the questions alone."
)


def multilingual(compared: comparison.Comparison) -> documents.Section:
    """Returns a section with tokens, speed, and BLEU by direction, of rows that change VARIED."""
    sweep, description = compared.sweep, compared.sweep.description
    varied = [
        row
        for row, overrides in description.rows.items()
        if len(sweep.of(row)) and any(field in overrides for field in VARIED)
    ]
    if not varied:
        return documents.Section([])
    runs = sweep.runs.assign(
        nats=sweep.runs.get("target_tokens", math.nan) * sweep.runs["ppl"].map(math.log)
    )
    numbers = {
        "bleu": ("BLEU", ".2f"),
        "source_tokens": ("source tokens", ".1f"),
        "target_tokens": ("target tokens", ".1f"),
        "nats": ("nats a sentence", ".2f"),
        "tokens_per_second": ("target tokens/s", ".0f"),
        "sentences_per_second": ("sentences/s", ".0f"),
    }
    for name in sweep.runs:
        if direction := re.fullmatch(r"([a-z]+-[a-z]+)_bleu", name):
            numbers[name] = (f"BLEU {direction[1]}", ".2f")
    lines = []
    base = [description.base_row] if len(sweep.of(description.base_row)) else []
    for row in dict.fromkeys([*base, *varied]):
        own = runs[runs["row"] == row]
        line: dict[str, object] = {"row": row}
        for name in numbers:
            values = own[name].dropna().tolist() if name in own else []
            line |= comparison.mean_and_deviation(name, values)
        lines.append(line)
    columns = [
        tables.Column("row"),
        *(tables.Column(head, name, form, f"{name}_sd") for name, (head, form) in numbers.items()),
    ]
    title = "Vocabularies and directions"
    return documents.Section([tables.Table(pd.DataFrame(lines), columns, title)], [_MULTILINGUAL])


def encoder_only(compared: comparison.Comparison) -> documents.Section:
    """Returns a section with perplexity and accuracy of the rows that generate no text."""
    sweep = compared.sweep
    rows = [
        row
        for row in sweep.description.rows
        if len(sweep.of(row)) and not sweep.values(row, "bleu")
    ]
    if not rows:
        return documents.Section([])
    lines = []
    for row in rows:
        ppl = comparison.mean_and_deviation("ppl", sweep.values(row, "ppl"))
        ppl_of = labels.ppl_of(sweep.description, row) or "target tokens"
        lines.append({"row": row, **ppl, "ppl_of": ppl_of, **_accuracy(sweep, row)})
    columns = [
        tables.Column("row"),
        tables.Column("PPL", "ppl", ".2f", "ppl_sd"),
        tables.Column("PPL of", "ppl_of"),
        tables.Column("accuracy", "share", ".1%"),
        tables.Column("low", "", ".1%", group="95% interval"),
        tables.Column("high", "", ".1%", group="95% interval"),
        tables.Column("answers", form=",d"),
    ]
    frame = pd.DataFrame(lines).astype({"answers": "Int64"})
    title = "Encoder-only models"
    return documents.Section([tables.Table(frame, columns, title)], [_ENCODER_ONLY])


def _accuracy(sweep: frames.Sweep, row: str) -> dict[str, float]:
    """Returns the mean accuracy over seeds with its interval, and the number of answers."""
    shares, answers = sweep.values(row, "accuracy"), sweep.values(row, "answers")
    if not shares:
        return dict.fromkeys(("share", "low", "high", "answers"), np.nan)
    right = round(answers[0] * statistics.fmean(shares))
    return accuracy_lib.accuracy(right, int(answers[0]))
