"""Texts for a row's settings in tables and figures."""

from collections.abc import Mapping
from typing import Any

from experiments.sweep import store
from transformer_jax import config as config_lib
from transformer_jax.data import objectives

SYMBOLS = {  # the paper's column heads, in its order
    "model.num_layers": "N",
    "model.d_model": "d_model",
    "model.d_ff": "d_ff",
    "model.num_heads": "h",
    "model.d_k": "d_k",
    "model.d_v": "d_v",
    "model.dropout_rate": "P_drop",
    "train.label_smoothing": "eps_ls",
    "train.num_steps": "steps",
    "model.position": "position",
}


def changes(description: store.Description, row: str) -> dict[str, Any]:
    """Returns the fields in which a row differs from the base row, with the row's values.

    Fields of the paper's Table 3 come first, in the order of that table. For the base row, the
    result has the overrides of the base row.
    """
    base, overrides = description.base_row, description.overrides(row)
    recipe = {} if row == base else description.rows[base]
    own = {field: value for field, value in overrides.items() if recipe.get(field) != value}
    return {**{field: own[field] for field in SYMBOLS if field in own}, **own}


def change(description: store.Description, row: str) -> str:
    """Returns a text with the changes of a row in the paper's symbols, such as "h=1 d_k=128"."""
    return assignments(changes(description, row))


def assignments(values: Mapping[str, Any]) -> str:
    """Returns a text with fields in the paper's symbols and their values, such as "h=1 d_k=128"."""
    return " ".join(f"{SYMBOLS.get(field, field)}={value}" for field, value in values.items())


def group(row: str) -> str:
    """Returns the paper's group of a row, such as "A" for "A h=1"; "" for a row without one."""
    first = row.split(" ")[0]
    return first if len(first) == 1 and first.isupper() else ""


def base_settings(description: store.Description) -> str:
    """Returns a text with the name and the settings of the base row, such as "base: N=6 …"."""
    row = description.base_row
    config = description.config(row)
    sizes = {field: config_lib.get(config, field) for field in SYMBOLS if field != "model.position"}
    return f"{row}: {assignments({**sizes, **description.rows[row]})}"


def ppl_of(description: store.Description, row: str) -> str:
    """Returns a text for the tokens over which a row's perplexity is computed.

    The text is "" for the target tokens. Encoder-only rows have others, such as "masked tokens".
    """
    objective = objectives.of(description.config(row))
    if objective is None or not objective.encoder_only:
        return ""
    scored_by = objective.scored_by[0]
    if scored_by == objectives.PAIR_CLASSIFICATION:
        return "answers"
    return "masked tokens" if objectives.KINDS[scored_by].masked else "all tokens"
