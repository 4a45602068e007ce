"""Texts for a row's settings in tables and figures."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from experiments.sweep import store
from transformer_jax import config as config_lib
from transformer_jax import paper
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


_WORDS = {  # for readers who do not know the paper's symbols
    "model.num_layers": "depth",
    "model.d_model": "width",
    "model.num_heads": "heads",
    "model.dropout_rate": "dropout",
    "train.label_smoothing": "label smoothing",
    "model.position": "positions",
}
_FOLLOWS = ("model.d_k", "model.d_v")  # in proportion to d_model / h


def meaning(description: store.Description, row: str, with_paper: bool = True) -> str:
    """Returns what a row changes here and in the paper, such as "depth 3→1 (paper 6→2)".

    The paper's values are added to rows of its Table 3, where they differ from ours. d_k and d_v
    are left out where they keep base's proportion to d_model / h.

    Args:
      description: the sweep.
      row: the name of the row.
      with_paper: whether the paper's values are added.
    """
    if row == description.base_row:
        return ""
    steps = _steps(description, row)
    ours = [f"{word} {_arrow(values)}" for word, (values, _) in steps.items()]
    ours += [
        assignments({field: value})
        for field, value in changes(description, row).items()
        if field not in SYMBOLS
    ]
    others = {
        word: theirs for word, (values, theirs) in steps.items() if theirs and theirs != values
    }
    text = ", ".join(ours)
    if not with_paper or not others:
        return text
    named = len(steps) > 1
    listed = [f"{word} {_arrow(each)}" if named else _arrow(each) for word, each in others.items()]
    return f"{text} (paper {', '.join(listed)})"


def full_name(description: store.Description, row: str, with_paper: bool = True) -> str:
    """Returns a row's name with its meaning, such as "C N=2 · depth 3→1 (paper 6→2)"."""
    return " · ".join(part for part in (row, meaning(description, row, with_paper)) if part)


def plain_name(description: store.Description, row: str) -> str:
    """Returns a name of a row for a sentence, such as "no dropout" or "depth 3→1".

    A row that changes several things, or one that has no plain word, keeps its name.
    """
    steps = _steps(description, row)
    if row == description.base_row or len(steps) != 1 or changes(description, row).keys() - SYMBOLS:
        return row
    ((word, (values, _)),) = steps.items()
    if word == "positions":
        return f"{'no' if values[1] == 'none' else values[1]} positions"
    if word in {"dropout", "label smoothing"} and not values[1]:
        return f"no {word}"
    if word == "heads":
        return f"{_arrow(values)} heads"
    return f"{word} {_arrow(values)}"


def _steps(
    description: store.Description, row: str
) -> dict[str, tuple[tuple[Any, Any], tuple[Any, Any] | None]]:
    """Returns base's and the row's values, ours and the paper's, of each changed symbol."""
    base, config = description.config(description.base_row), description.config(row)
    found = {}
    for field in changes(description, row):
        if field not in SYMBOLS:
            continue
        ours = (config_lib.get(base, field), config_lib.get(config, field))
        model = config.model
        if field in _FOLLOWS and _share(model, ours[1]) == _share(base.model, ours[0]):
            continue
        if field == "model.d_v" and model.d_v == model.d_k and base.model.d_v == base.model.d_k:
            continue  # as d_k
        if ours[0] != ours[1]:
            found[_WORDS.get(field, SYMBOLS[field])] = (ours, _papers(field, ours, row))
    return found


def _share(model: config_lib.ModelConfig, d_k: int) -> Fraction:
    """Returns the size of all heads together relative to the size of the model."""
    return Fraction(model.num_heads * d_k, model.d_model)


def _papers(field: str, ours: tuple[Any, Any], row: str) -> tuple[Any, Any] | None:
    """Returns the paper's values for base and a row of its Table 3; None for another row."""
    if row not in paper.TABLE3:
        return None
    theirs = config_lib.get(config_lib.DEFAULTS, field)
    if field not in paper.BASE_SIZES:
        return theirs, ours[1]
    scaled, rest = divmod(ours[1] * theirs, ours[0])
    return None if rest else (theirs, scaled)


def _arrow(values: tuple[Any, Any]) -> str:
    return "→".join(map(_value, values))


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    is_long = isinstance(value, int) and value >= 10_000
    return f"{value:,}" if is_long else str(value)
