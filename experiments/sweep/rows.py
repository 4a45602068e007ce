"""The rows of a sweep: how files define them, and the flags --rows, --match and --tune."""

import ast
import collections
import contextlib
import fnmatch
import itertools
import pathlib
import runpy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from experiments.sweep import cost
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import vocabulary

Rows = dict[str, dict[str, Any]]
BASE = "base"


def grid(fields: Mapping[str, Sequence[Any]]) -> Rows:
    """Returns a row for each combination of the fields' values.

    For example, {"train.warmup_steps": [100, 200], "model.d_k": [16]} gives the rows
    "warmup_steps=100 d_k=16" and "warmup_steps=200 d_k=16".
    """
    _require_lists(fields)
    return _named(fields, itertools.product(*fields.values()))


def zipped(fields: Mapping[str, Sequence[Any]]) -> Rows:
    """Returns a row with the first value of each field, a row with the second values, and so on."""
    _require_lists(fields)
    if len({len(values) for values in fields.values()}) > 1:
        counted = ", ".join(f"{name} has {len(values)}" for name, values in fields.items())
        raise errors.UserError(f"fields of ZIP need equal numbers of values: {counted}")
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
    """Converts any error inside a `with` block to a UserError that names the sweep's file."""
    try:
        yield
    except errors.UserError as error:
        raise errors.UserError(f"--sweep={path}: {error}") from error
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise errors.UserError(f"--sweep={path} fails: {type(error).__name__}: {error}") from error


def run(path: pathlib.Path) -> dict[str, Any]:
    """Runs a sweep's file, a Python module, and returns its globals.

    Raises:
      UserError: the file fails, or a mapping in it has a key twice.
    """
    with _of_file(path):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Dict):  # Python silently keeps the last of equal keys
                keys = [each.value for each in node.keys if isinstance(each, ast.Constant)]
                for key in (key for key in set(keys) if keys.count(key) > 1):
                    raise errors.UserError(
                        f"a mapping has the key {key!r} twice, and Python would ignore the first: "
                        "rename or delete one"
                    )
        return runpy.run_path(str(path))


def read(path: pathlib.Path, described: Mapping[str, Any], base: config_lib.Config) -> Rows:
    """Returns the row "base", without overrides, followed by the rows that a file defines.

    Args:
      path: the file, for error messages.
      described: the globals of the file; see `run`. At least one of the following globals has to
        define rows. ROWS maps the names of rows to overrides, or is a list of pairs of a name and
        overrides. GRID is the argument of `grid`. ZIP is the argument of `zipped`. rows is a
        function of base that returns what ROWS could be.
      base: the configuration that the rows change.

    Raises:
      UserError: a row is impossible; the message names the file and the row.
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
            raise errors.UserError("the row base is --config without changes: rename your row")
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
    """Returns the names and overrides of rows, from a mapping or an iterable of pairs."""
    # Outside the try statement, so that errors of the user's own generator pass through.
    items = found.items() if isinstance(found, Mapping) else found
    listed = list(items) if isinstance(items, Iterable) else [items]
    try:
        return [(name, dict(overrides)) for name, overrides in listed]
    except (TypeError, ValueError) as error:
        raise errors.UserError(
            "ROWS, and the result of rows(base), map names of rows to overrides, or list such "
            f"pairs, but one is {found!r}"
        ) from error


def _text(name: Any, what: str) -> str:
    if not isinstance(name, str):
        raise errors.UserError(f"{name!r} is not a {what}: give text")
    return name


def _require_comparable(overrides: Mapping[str, Any]) -> None:
    """Raises UserError if a row's scores would not be comparable with base's."""
    for field in overrides:
        if field == "train.seed":
            raise errors.UserError("a row cannot set train.seed; use --seeds")
        section = field.split(".")[0]
        if section in ("data", "evaluation", "log") and field != "data.train_max_tokens":
            raise errors.UserError(
                f"scores with another {field} than base's would not be comparable: set it for all "
                f"rows, --config.{field}=…"
            )


def _require_names_once(names: Sequence[str]) -> None:
    for name, number in collections.Counter(names).items():
        if number > 1:
            raise errors.UserError(f"two rows have the name {name!r}: rename one")


def select(rows: Iterable[str], patterns: str) -> list[str]:
    """Returns the rows that --rows selects, in the order of the table.

    Args:
      rows: the names of all rows.
      patterns: names and shell patterns, separated by commas, such as "base,A*". A name selects
        the row of this name only, even if it could be read as a pattern.

    Raises:
      UserError: a name or pattern selects no row.
    """
    names = list(rows)
    if patterns in names:  # a name may contain a comma
        return [patterns]
    found: set[str] = set()
    for pattern in (part.strip() for part in patterns.split(",")):
        matches = {pattern} if pattern in names else {*fnmatch.filter(names, pattern)}
        if not matches:
            raise errors.UserError(
                f"--rows: no row matches {pattern!r}; the rows are {', '.join(map(repr, names))}"
            )
        found |= matches
    return [row for row in names if row in found]


def require_effects(
    base: config_lib.Config, changed: Collection[str], rows: Mapping[str, Any]
) -> None:
    """Raises UserError if a row or the command line sets a field that has no effect.

    Fields that the file of --config sets are not checked. A recurrent row, for example, has the
    Transformer's model.num_heads, which has no effect.

    Args:
      base: the configuration that the rows change.
      changed: the fields that the command line sets.
      rows: the overrides of each row.
    """
    models.require_used(base.model, changed)
    for name, overrides in rows.items():
        try:
            config = config_lib.replace(base, overrides)
            models.require_used(config.model, overrides)
            models.build(config.model, vocabulary.size(config))
        except errors.UserError as error:
            raise errors.UserError(f"row {name!r}: {error}") from error


def _at_equal_parameters(config: config_lib.Config, base: config_lib.Config) -> int:
    """Returns the d_ff with which a row's number of parameters is closest to that of base."""
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
    if cost.relative_difference(found, wanted):
        raise errors.UserError(
            f"with model.d_ff={d_ff} it has {found:,} parameters, not {wanted:,}"
        )
    return d_ff


def _at_equal_flops(config: config_lib.Config, base: config_lib.Config) -> int:
    """Returns the number of steps with which a row's training FLOPs are closest to base's."""
    wanted = cost.training_flops(base)
    return max(round(config.train.num_steps * wanted / cost.training_flops(config)), 1)


# For each value of --match: the field that is adapted, a function that returns the value of this
# field for a row, and a function that returns the amount that is held equal.
_BUDGETS = {
    "parameters": ("model.d_ff", _at_equal_parameters, cost.parameters),
    "flops": ("train.num_steps", _at_equal_flops, cost.training_flops),
}


def floor_row(
    table: table_lib.Table, rows: Collection[str], chosen: Collection[str], runs: int
) -> str:
    """Returns the base row, which --noise_floor runs with several seeds.

    Args:
      table: the table.
      rows: all rows of the table, base first.
      chosen: the rows that --rows selects.
      runs: the value of --noise_floor.

    Raises:
      UserError: `runs` is 1, base is not chosen, or the table compares no row with base.
    """
    base_row = next(iter(rows))
    if runs == 1:
        raise errors.UserError("--noise_floor=1: one run has no variance; give 2 or more")
    if len({table.corpus(row) for row in rows}) > 1:
        raise errors.UserError(
            f"--noise_floor: {table.name} compares no row with {base_row!r}; give --seeds"
        )
    if base_row not in chosen:
        raise errors.UserError(f"--noise_floor runs {base_row!r}: name it in --rows too")
    return base_row


def parse_tune(text: str, base: config_lib.Config) -> dict[str, list[Any]]:
    """Parses the value of --tune, such as "train.learning_rate_scale:0.5,1,2".

    Returns:
      The field with its values; {} if `text` is "".

    Raises:
      UserError: the field cannot be tuned, a value is impossible, or base has no test set.
    """
    if not text:
        return {}
    field, _, values = text.partition(":")
    if field.split(".")[0] not in ("model", "train", "data", "decode") or field == "train.seed":
        raise errors.UserError(
            f"--tune={text}: give a field of model, train, data or decode other than train.seed"
        )
    try:
        kind = type(config_lib.get(base, field))
        if kind is bool:
            raise errors.UserError("the field is neither a number nor a name")
        found = [kind(value) for value in values.split(",")]
        for value in found:
            config_lib.replace(base, {field: value})
        if len(set(found)) < len(found):
            raise errors.UserError("a value is given twice")
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
    """Raises UserError if --tune changes an amount that --match holds equal.

    Args:
      base: the configuration that the rows change.
      row: the row.
      variants: the overrides of the row and of its variants for --tune.
      budget: the value of --match: "parameters", or "flops" for training FLOPs.
    """
    *_, taken = _BUDGETS[budget]
    allowed = taken(config_lib.replace(base, variants[row]))
    for name, overrides in variants.items():
        if taken(config_lib.replace(base, overrides)) != allowed:
            raise errors.UserError(
                f"--tune: {name!r} would not have the {budget} of --match: tune a field without "
                "effect on them, such as train.learning_rate_scale, or leave --match out"
            )


def matched(
    rows: Mapping[str, Mapping[str, Any]],
    chosen: Collection[str],
    base: config_lib.Config,
    budget: str,
) -> Rows:
    """Returns the rows with the number of parameters, or with the training FLOPs, of base.

    This implements --match. For equal parameters, model.d_ff is adapted. For equal training FLOPs,
    train.num_steps is adapted. A row that is not chosen and cannot be adapted stays unchanged.

    Args:
      rows: the overrides of all rows, base first.
      chosen: the rows that --rows selects.
      base: the configuration that the rows change.
      budget: the value of --match, "parameters" or "flops".

    Raises:
      UserError: a chosen row cannot be adapted, or sets the adapted field itself.
    """
    field, fit, _ = _BUDGETS[budget]
    base = config_lib.replace(base, next(iter(rows.values())))  # base's row may have overrides
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
                raise errors.UserError("it starts from weights whose sizes it has to keep")
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
