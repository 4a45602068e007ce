"""Rows of a sweep of your own: from a file, from grids and zips, and at equal budgets."""

import ast
import collections
import itertools
import pathlib
import runpy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from experiments import cost, results
from transformer_jax import config as config_lib

Rows = dict[str, dict[str, Any]]
BASE = "base"


def grid(fields: Mapping[str, Sequence[Any]]) -> Rows:
    """A row for each combination of values: {"warmup_steps=100 label_smoothing=0.1": {...}, ...}.

    Args:
      fields: the values of each field, by dotted name.
    """
    return _named(fields, itertools.product(*fields.values()))


def zipped(fields: Mapping[str, Sequence[Any]]) -> Rows:
    """A row for the first values of all fields, one for the second, and so on.

    Args:
      fields: equally many values of each field, by dotted name.

    Raises:
      UserError: there are not equally many.
    """
    if len({len(values) for values in fields.values()}) > 1:
        counted = ", ".join(f"{name} has {len(values)}" for name, values in fields.items())
        raise config_lib.UserError(f"fields that are zipped need equally many values: {counted}")
    return _named(fields, zip(*fields.values(), strict=True))


def _named(fields: Collection[str], combinations: Iterable[Sequence[Any]]) -> Rows:
    last = [field.split(".")[-1] for field in fields]
    short = last if len(set(last)) == len(last) else list(fields)
    return {
        " ".join(f"{name}={value}" for name, value in zip(short, values, strict=True)): dict(
            zip(fields, values, strict=True)
        )
        for values in combinations
    }


def read(path: pathlib.Path, base: config_lib.Config) -> Rows:
    """The rows that a file describes, with base, which changes nothing, as the first.

    The file is a Python module. It has one or several of ROWS, names and overrides as a mapping or
    a list of pairs; GRID and ZIP, the arguments of `grid` and `zipped`; and a function rows(base)
    that returns what ROWS may be.

    Raises:
      UserError: it cannot be read, names a row twice, or has an override that is not allowed; the
        message names the row.
    """
    try:
        _require_keys_once(path.read_text(encoding="utf-8"))
        described = runpy.run_path(str(path))
        kinds = {
            "ROWS": lambda found: found,
            "GRID": grid,
            "ZIP": zipped,
            "rows": lambda function: function(base),
        }
        pairs = []
        for kind, made in kinds.items():
            found = made(described[kind]) if kind in described else {}
            pairs += found.items() if isinstance(found, Mapping) else found
        if not pairs:
            raise config_lib.UserError("it has no rows: give it ROWS, GRID, ZIP or rows(base)")
        rows = {BASE: {}, **{name: dict(overrides) for name, overrides in pairs}}
        _require_names_once([name for name, _ in pairs])
    except config_lib.UserError as error:
        raise config_lib.UserError(f"--sweep={path}: {error}") from error
    except Exception as error:  # whatever a file of the user's own raises
        kind = type(error).__name__
        raise config_lib.UserError(f"--sweep={path} fails: {kind}: {error}") from error
    if rows[BASE]:
        raise config_lib.UserError(f"--sweep={path}: the row base is --config as it is: rename it")
    for name, overrides in rows.items():
        try:
            config_lib.replace(base, overrides)
            if "train.seed" in overrides:
                raise config_lib.UserError("train.seed is not a row's to set; use --seeds")
        except config_lib.UserError as error:
            raise config_lib.UserError(f"--sweep={path}: row {name!r}: {error}") from error
    return rows


def _require_names_once(names: Sequence[str]) -> None:
    for name, number in collections.Counter(names).items():
        if number > 1:
            raise config_lib.UserError(f"there are two rows of one name, {name!r}")


def _require_keys_once(code: str) -> None:
    """Of two equal keys that are written in one dict, Python would silently take the last."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Dict):
            _require_names_once([str(k.value) for k in node.keys if isinstance(k, ast.Constant)])


def at_equal_parameters(rows: Mapping[str, Mapping[str, Any]], base: config_lib.Config) -> Rows:
    """The rows with d_ff such that each has as many parameters as base, as nearly as can be.

    Raises:
      UserError: a row sets d_ff itself, or no d_ff comes near enough; the message names it.
    """
    field, wanted = "model.d_ff", cost.parameters(base)

    def matched(overrides: Mapping[str, Any]) -> dict[str, Any]:
        config = config_lib.replace(base, overrides)
        found, d_ff = cost.parameters(config), config.model.d_ff
        if found == wanted:
            return dict(overrides)
        one_more = config_lib.replace(config, {field: d_ff + 1})
        d_ff += round((wanted - found) / (cost.parameters(one_more) - found))
        changed = {**overrides, field: max(d_ff, 1)}
        found = cost.parameters(config_lib.replace(base, changed))
        if results.unequal(found, wanted):
            raise config_lib.UserError(
                f"with {field}={changed[field]} it has {found:,} parameters, not {wanted:,}"
            )
        return changed

    return _each(rows, field, matched)


def at_equal_flops(rows: Mapping[str, Mapping[str, Any]], base: config_lib.Config) -> Rows:
    """The rows with as many steps as base's training operations are enough for.

    Raises:
      UserError: a row sets the number of steps itself; the message names it.
    """
    field, wanted = "train.num_steps", cost.training_flops(base)

    def matched(overrides: Mapping[str, Any]) -> dict[str, Any]:
        config = config_lib.replace(base, overrides)
        steps = round(config.train.num_steps * wanted / cost.training_flops(config))
        if steps == config.train.num_steps:
            return dict(overrides)
        return {**overrides, field: max(steps, 1)}

    return _each(rows, field, matched)


BUDGETS = {"parameters": at_equal_parameters, "flops": at_equal_flops}


def _each(
    rows: Mapping[str, Mapping[str, Any]],
    field: str,
    matched: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Rows:
    found: Rows = {}
    for name, overrides in rows.items():
        try:
            if field in overrides:
                raise config_lib.UserError(f"it sets {field} itself")
            found[name] = matched(overrides)
        except config_lib.UserError as error:
            raise config_lib.UserError(
                f"row {name!r} cannot be given base's budget: {error}; leave it out with --rows"
            ) from error
    return found
