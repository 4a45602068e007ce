"""Rows of mT5 and ByT5 in small, and what their runs come to: tokens a sentence, speed, directions.

Both keep base's number of steps. A model of bytes has rows, and so batches, as much longer as a
sentence is in bytes: it sees about as many sentences, at the cost that the table shows. One of two
directions sees half as many of each.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu

BYTES_A_TOKEN = 5  # at most, of the sentences of English and German corpora, in BPE tokens
LENGTHS = (  # in tokens
    "data.source_length",
    "data.target_length",
    "train.batch_tokens",
    "decode.extra_tokens",
    "log.bucket_tokens",
)
VARIED = ("data.vocabulary", "data.directions")
# Digits, and what is shown.
COLUMNS: Mapping[str, tuple[int, Callable[[Mapping[str, Any]], float | None]]] = {
    "BLEU": (2, lambda run: run["bleu"][bleu.MAIN]["score"]),
    "source tokens": (1, lambda run: run["tokens_per_sentence"]["source"]),
    "target tokens": (1, lambda run: run["tokens_per_sentence"]["target"]),
    "nats a sentence": (2, lambda run: run["tokens_per_sentence"]["target"] * math.log(run["ppl"])),
    "target tokens/s": (0, lambda run: run.get("tokens_per_second")),
    "sentences/s": (0, lambda run: run.get("sentences_per_second")),
}
NOTE = (
    "Tokens a sentence: on the development set, end and tags included. PPL counts tokens, so that "
    "between vocabularies only nats a sentence compare: tokens × ln PPL. Both speeds are of "
    "training: a sentence may be of any direction."
)


def rows_for(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """The rows for a configuration taken as base."""
    longer = {field: BYTES_A_TOKEN * config_lib.get(base, field) for field in LENGTHS}
    one, other = base.data.source_language, base.data.target_language
    return {
        "bytes": {"data.vocabulary": "bytes", **longer},
        "two directions": {"data.directions": f"{one}-{other},{other}-{one}"},
    }


def section(sweep: results.Sweep) -> table_lib.Section:
    """What base and these rows cost and bring, in each of their directions."""
    shown = [
        row
        for row in sweep.rows
        if row.results and (row is sweep.rows[0] or any(field in row.overrides for field in VARIED))
    ]
    if not any(field in row.overrides for row in shown for field in VARIED):
        return table_lib.Section([])
    lines = []
    for row in shown:
        cells = []
        for digits, measure in COLUMNS.values():
            found = map(measure, row.results.values())
            cells.append(tables.mean_and_deviation([x for x in found if x is not None], digits))
        lines.append([row.name, *cells, _directions(row)])
    heads = ["row", *COLUMNS, "BLEU of other directions"]
    return table_lib.Section([tables.Printed(heads, lines)], [NOTE])


def _directions(row: results.Row) -> str:
    """BLEU of each direction but the main one."""
    found: dict[str, list[float]] = {}
    for result in row.results.values():
        for name, scores in result.get("directions", {}).items():
            found.setdefault(name, []).append(scores["bleu"][bleu.MAIN]["score"])
    return ", ".join(f"{tables.mean_and_deviation(v, 2)} ({name})" for name, v in found.items())
