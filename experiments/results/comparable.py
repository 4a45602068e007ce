"""Checks that the runs of a table can be compared: the same corpus, sentences, and decoding."""

from collections.abc import Hashable, Mapping

import numpy as np
import pandas as pd

from experiments.results import frames
from experiments.sweep import store
from experiments.sweep import table as table_lib
from transformer_jax import errors

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


def variants(description: store.Description) -> dict[str, str]:
    """Returns the names of all variants for --tune, each with the name of its row."""
    return {
        name: row
        for row in description.rows
        for name in description.variants(row).values()
        if name != row
    }


def require_same_sentences(
    counts: Mapping[str, Mapping[int, np.ndarray]], measure: str, split: str = "dev"
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
    rows_of |= variants(description)
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


def measured(sweep: frames.Sweep) -> pd.DataFrame:
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
