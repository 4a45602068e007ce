"""Rows of a sweep of your own: from a file, from grids and zips, and at equal budgets."""

import ast
import collections
import contextlib
import fnmatch
import itertools
import pathlib
import runpy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from experiments.benchmarks import cost
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import vocabulary

Rows = dict[str, dict[str, Any]]
BASE = "base"


def grid(fields: Mapping[str, Sequence[Any]]) -> Rows:
    """A row for each combination of values: "warmup_steps=100 label_smoothing=0.1", …, by field."""
    _require_lists(fields)
    return _named(fields, itertools.product(*fields.values()))


def zipped(fields: Mapping[str, Sequence[Any]]) -> Rows:
    """A row for the first values of all fields, one for the second, and so on to the last."""
    _require_lists(fields)
    if len({len(values) for values in fields.values()}) > 1:
        counted = ", ".join(f"{name} has {len(values)}" for name, values in fields.items())
        raise errors.UserError(f"fields that are zipped need equally many values: {counted}")
    return _named(fields, zip(*fields.values(), strict=True))


def _require_lists(fields: Mapping[str, Sequence[Any]]) -> None:
    if not isinstance(fields, Mapping) or not fields:
        raise errors.UserError(f"GRID and ZIP map fields to lists of values, not {fields!r}")
    for field, values in fields.items():
        if not isinstance(values, list | tuple) or not values:
            raise errors.UserError(f"{field} needs a list of values, not {values!r}")


def _named(fields: Mapping[str, Sequence[Any]], combinations: Iterable[Sequence[Any]]) -> Rows:
    last = [field.split(".")[-1] for field in fields]
    short = last if len(set(last)) == len(last) else list(fields)
    rows = [dict(zip(fields, values, strict=True)) for values in combinations]
    names = [" ".join(map("{}={}".format, short, row.values())) for row in rows]
    _require_names_once(names)
    return dict(zip(names, rows, strict=True))


@contextlib.contextmanager
def _of_file(path: pathlib.Path) -> Iterator[None]:
    """Names a sweep's file in what is raised, as UserError, because of it."""
    try:
        yield
    except errors.UserError as error:
        raise errors.UserError(f"--sweep={path}: {error}") from error
    except (Exception, SystemExit) as error:  # whatever a file of the user's own raises
        raise errors.UserError(f"--sweep={path} fails: {type(error).__name__}: {error}") from error


def run(path: pathlib.Path) -> dict[str, Any]:
    """What a sweep's file, a Python module, defines; raises UserError if it fails."""
    with _of_file(path):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):  # of two equal keys Python would silently take the last
                keys = [each.value for each in node.keys if isinstance(each, ast.Constant)]
                for key in (key for key in set(keys) if keys.count(key) > 1):
                    raise errors.UserError(
                        f"{key!r} stands twice in one mapping, of which Python would take the "
                        "last: rename or delete one"
                    )
        return runpy.run_path(str(path))


def read(path: pathlib.Path, described: Mapping[str, Any], base: config_lib.Config) -> Rows:
    """The rows that a file describes, with base, which changes nothing, as the first.

    The file has one or several of ROWS, names and overrides as a mapping or a list of pairs; GRID
    and ZIP, the arguments of `grid` and `zipped`; and a function rows(base) that returns what ROWS
    may be. What is wrong is raised as UserError, which names the file and the row.
    """
    made = {"ROWS": lambda rows: rows, "GRID": grid, "ZIP": zipped, "rows": lambda of: of(base)}
    with _of_file(path):
        pairs = []
        for kind in [kind for kind in made if kind in described]:
            pairs += _pairs(made[kind](described[kind]))
        if not pairs:
            raise errors.UserError("it has no rows: give it ROWS, GRID, ZIP or rows(base)")
        _require_names_once([_text(name, "row's name") for name, _ in pairs])
        rows = {BASE: {}, **dict(pairs)}
        if rows[BASE]:
            raise errors.UserError("the row base is --config as it is: rename it")
        for name, overrides in rows.items():
            try:
                for field in overrides:
                    _text(field, "field")
                config_lib.replace(base, overrides)
                _require_comparable(overrides)
            except errors.UserError as error:
                raise errors.UserError(f"row {name!r}: {error}") from error
    return rows


def _pairs(found: Any) -> list[tuple[Any, dict[Any, Any]]]:
    """Rows' names and overrides, of what a file gives; what its own code raises passes through."""
    items = found.items() if isinstance(found, Mapping) else found
    listed = list(items) if isinstance(items, Iterable) else [items]
    try:
        return [(name, dict(overrides)) for name, overrides in listed]
    except (TypeError, ValueError) as error:
        raise errors.UserError(
            "ROWS, and what rows(base) returns, map rows' names to their overrides, or are a list "
            f"of such pairs, not {found!r}"
        ) from error


def _text(name: Any, what: str) -> str:
    if not isinstance(name, str):
        raise errors.UserError(f"{name!r} is no {what}: give text")
    return name


def _require_comparable(overrides: Mapping[str, Any]) -> None:
    """Raises UserError if a row would be measured otherwise than base, and so share no table."""
    for field in overrides:
        if field == "train.seed":
            raise errors.UserError("train.seed is not a row's to set; use --seeds")
        section = field.split(".")[0]
        if section in ("data", "evaluation", "log") and field != "data.train_max_tokens":
            raise errors.UserError(
                f"with another {field} than base's it could not stand in one table with it: set it "
                f"for all rows, --config.{field}=…"
            )


def _require_names_once(names: Sequence[str]) -> None:
    for name, number in collections.Counter(names).items():
        if number > 1:
            raise errors.UserError(f"there are two rows of one name, {name!r}: rename one")


def select(rows: Iterable[str], patterns: str) -> list[str]:
    """Returns the rows that comma-separated names and shell patterns mean, in the rows' order.

    What is a row's name means this row alone; what means no row raises UserError.
    """
    names = list(rows)
    if patterns in names:  # one that has a comma
        return [patterns]
    found: set[str] = set()
    for pattern in (part.strip() for part in patterns.split(",")):
        meant = {pattern} if pattern in names else {*fnmatch.filter(names, pattern)}
        if not meant:
            raise errors.UserError(
                f"--rows: none matches {pattern!r}; there are {', '.join(map(repr, names))}"
            )
        found |= meant
    return [row for row in names if row in found]


def require_effects(
    base: config_lib.Config, given: Collection[str], rows: Mapping[str, Any]
) -> None:
    """Raises UserError if a field is set to no effect: `given` for base, or by a row.

    Rows may have no use for what base sets: the Transformer's heads stand in the configuration of a
    recurrent row too.
    """
    models.require_used(base.model, given)
    for name, overrides in rows.items():
        try:
            config = config_lib.replace(base, overrides)
            models.require_used(config.model, overrides)
            models.build(config.model, vocabulary.size(config))
        except errors.UserError as error:
            raise errors.UserError(f"row {name!r}: {error}") from error


def _at_equal_parameters(config: config_lib.Config, base: config_lib.Config) -> int:
    """The d_ff with which a row has as many parameters as base, as nearly as can be."""
    d_ff = config.model.d_ff

    def parameters(d_ff: int) -> int:
        return cost.parameters(config_lib.replace(config, {"model.d_ff": d_ff}))

    found, wanted = parameters(d_ff), cost.parameters(base)
    if found == wanted:
        return d_ff
    one_more = parameters(d_ff + 1)
    if one_more == found:
        raise errors.UserError("its parameters do not depend on d_ff")
    d_ff = max(d_ff + round((wanted - found) / (one_more - found)), 1)
    found = parameters(d_ff)
    if results.unequal(found, wanted):
        raise errors.UserError(
            f"with model.d_ff={d_ff} it has {found:,} parameters, not {wanted:,}"
        )
    return d_ff


def _at_equal_flops(config: config_lib.Config, base: config_lib.Config) -> int:
    """As many steps as base's training operations are enough for."""
    wanted = cost.training_flops(base)
    return max(round(config.train.num_steps * wanted / cost.training_flops(config)), 1)


# By budget: the field that is set, to what value, and what of the budget a configuration takes.
_BUDGETS = {
    "parameters": ("model.d_ff", _at_equal_parameters, cost.parameters),
    "flops": ("train.num_steps", _at_equal_flops, cost.training_flops),
}


def floor_row(
    table: table_lib.Table, rows: Collection[str], chosen: Collection[str], runs: int
) -> str:
    """The row of which --noise_floor has so many runs; raises UserError if it serves no other."""
    base_row = next(iter(rows))
    if runs == 1:
        raise errors.UserError("--noise_floor=1: one run has no deviation; give 2 or more, or 10")
    if len({table.corpus(row) for row in rows}) > 1:
        raise errors.UserError(
            f"--noise_floor: {table.name} compares no row with {base_row!r}; give --seeds"
        )
    if base_row not in chosen:
        raise errors.UserError(f"--noise_floor runs {base_row!r}: name it in --rows too")
    return base_row


def parse_tune(text: str, base: config_lib.Config) -> dict[str, list[Any]]:
    """The field and values that --tune names, if any; raises UserError if it cannot have them."""
    if not text:
        return {}
    field, _, values = text.partition(":")
    if field.split(".")[0] not in ("model", "train", "data", "decode") or field == "train.seed":
        raise errors.UserError(
            f"--tune={text}: only fields of model, train, data and decode that are no seed change "
            "a result"
        )
    try:
        kind = type(config_lib.get(base, field))
        if kind is bool:
            raise errors.UserError("it is no number and no name")
        found = [kind(value) for value in values.split(",")]
        for value in found:
            config_lib.replace(base, {field: value})
        if len(set(found)) < len(found):
            raise errors.UserError("it has a value twice")
    except (AttributeError, ValueError, errors.UserError) as error:
        raise errors.UserError(
            f"--tune={text}: {error}; give a field and its values, as in "
            "--tune=train.learning_rate_scale:0.5,1,2"
        ) from error
    if not base.evaluation.score_test:
        raise errors.UserError(
            "--tune chooses on the development set and reports on the test set: set "
            "--config.evaluation.score_test=True, with a data.test"
        )
    return {field: found}


def require_within(
    base: config_lib.Config, row: str, variants: Mapping[str, Mapping[str, Any]], budget: str
) -> None:
    """Raises UserError unless all variants of a matched row, itself among them, take as much."""
    *_, taken = _BUDGETS[budget]
    its = taken(config_lib.replace(base, variants[row]))
    for name, overrides in variants.items():
        if taken(config_lib.replace(base, overrides)) != its:
            raise errors.UserError(
                f"--tune: {name!r} would leave the {budget} of --match: tune what costs nothing, "
                "such as train.learning_rate_scale, or leave --match out"
            )


def matched(
    rows: Mapping[str, Mapping[str, Any]],
    chosen: Collection[str],
    base: config_lib.Config,
    budget: str,
) -> Rows:
    """The rows at base's budget; one that cannot have it stays as it is, unless it is chosen.

    UserError names a chosen one that cannot, or sets the field itself.
    """
    field, fit, _ = _BUDGETS[budget]
    base = config_lib.replace(base, next(iter(rows.values())))  # a table may have its own recipe
    own = config_lib.get(base, field)
    for name in chosen:
        if rows[name].get(field, own) != own:
            raise _unmatched(name, f"it sets {field} itself")
    found = {name: dict(overrides) for name, overrides in rows.items()}
    for name, overrides in found.items():
        if overrides.get(field, own) != own:
            continue
        try:
            config = config_lib.replace(base, overrides)
            if config.train.start_from and field.startswith("model."):
                raise errors.UserError("it starts from weights, whose sizes it has to keep")
            value = fit(config, base)
            config_lib.replace(config, {field: value})
        except errors.UserError as error:
            if name in chosen:
                raise _unmatched(name, str(error)) from error
            continue
        if value != config_lib.get(config, field):
            overrides[field] = value
    return found


def _unmatched(row: str, why: str) -> errors.UserError:
    return errors.UserError(
        f"row {row!r} cannot be given base's budget: {why}; choose others with --rows"
    )
