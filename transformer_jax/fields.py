"""Validation of dataclasses whose fields declare types and ranges.

`Annotated[int, Range(1)]` is a whole number of at least 1. Error messages name the field.
"""

import dataclasses
import difflib
import math
import re
import typing
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, final

import numpy as np

from transformer_jax import errors

T = TypeVar("T")
MOST = 2**31 - 1  # JAX counts in 32 bits
ARTICLES = {int: "a whole number", float: "a number", str: "text", bool: "True or False"}


@final
@dataclasses.dataclass(frozen=True)
class Range:
    """The range of numbers that a field may have."""

    least: int
    most: int | None = None
    below: int | None = None  # exclusive upper bound
    besides: tuple[int, str] | None = None  # one further value, and its meaning

    def require(self, name: str, value: Any) -> None:
        """Raises UserError unless a field's value lies in the range."""
        if self.besides and value == self.besides[0]:
            return
        if value < self.least:
            other = ", or {} {}".format(*self.besides) if self.besides else ""
            raise errors.UserError(f"{name}={value} should be at least {self.least}{other}")
        if self.most is not None and value > self.most:
            raise errors.UserError(f"{name}={value} should be at most {self.most:,}")
        kind = np.float32 if isinstance(value, float) else int  # the type in which it is used
        if self.below is not None and kind(value) >= self.below:
            limit = f"2^{math.log2(self.below):.0f}" if self.below > 1 else self.below
            limit = f"{limit} as float32" if isinstance(value, float) else limit
            raise errors.UserError(f"{name}={value} should be below {limit}")


def build(kind: type[T], values: Any, path: str = "") -> T:
    """Returns an instance of a dataclass, built from a mapping and validated.

    Fields that are dataclasses themselves are built from nested mappings. Missing fields take their
    defaults.

    Args:
      kind: the dataclass.
      values: the values of the dataclass's fields, by name.
      path: the prefix of field names in error messages; it is empty or ends with a dot.

    Raises:
      UserError: a field is unknown, of the wrong type or out of range.
    """
    if not isinstance(values, Mapping):
        whole = f"config.{path}".rstrip(".")
        raise errors.UserError(f"{whole} should hold fields, but is {_short(values)}")
    hints = declared(kind)
    converted = {}
    for name, value in values.items():
        if name not in hints:
            raise unknown(path + name, name, hints)
        expected = hints[name]
        if isinstance(expected, type) and dataclasses.is_dataclass(expected):
            converted[name] = build(expected, value, f"{path}{name}.")
        else:
            converted[name] = _convert(expected, value, path + name)
    return kind(**converted)


def declared(kind: type) -> dict[str, Any]:
    """Returns the annotated types of a dataclass's fields by name."""
    return typing.get_type_hints(kind, include_extras=True)


def lookup(field: str, name: str, table: Mapping[str, T]) -> T:
    """Returns `table[name]`.

    Args:
      field: the config field whose value is `name`, for the error message.
      name: the name to look up.
      table: entries by name.

    Raises:
      UserError: the table has no such entry; the message lists its names.
    """
    require_known(field, name, table)
    return table[name]


def require_known(field: str, name: str, known: Collection[str]) -> None:
    """Raises UserError if `name` is not one of the known names.

    Args:
      field: the config field or flag whose value is `name`, for the error message.
      name: the name.
      known: the known names, which the error message lists.
    """
    if name not in known:
        raise errors.UserError(f"{field}={name!r} is unknown{_closest(name, known)}")


def unknown(whole: str, name: str, known: Collection[str]) -> errors.UserError:
    """Returns the error for a config field that does not exist.

    Args:
      whole: the field's dotted name, as the user wrote it, such as "modle.d_k".
      name: the part of `whole` that is unknown, such as "modle".
      known: the known names at the position of `name`, which the error message lists.
    """
    printable = whole if whole.isprintable() and len(whole) < 80 else repr(whole[:80])
    return errors.UserError(f"there is no config field {printable}{_closest(name, known)}")


def _convert(hint: Any, value: Any, path: str) -> Any:
    expected, *rules = typing.get_args(hint) or (hint,)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise errors.UserError(
            f"{path} is a number of {value.bit_length()} bits: at most 63 are possible"
        )
    accepted = (int, float) if expected is float else expected
    if not isinstance(value, accepted) or isinstance(value, bool) != (expected is bool):
        raise errors.UserError(f"{path} should be {ARTICLES[expected]}, but is {_short(value)}")
    if expected is float and not math.isfinite(value):
        raise errors.UserError(f"{path} should be a finite number, but is {value!r}")
    if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        # Undecodable bytes of a command line become surrogates, which no file can hold.
        raise errors.UserError(f"{path} should be UTF-8, but is {value!r}")
    for rule in rules:
        rule.require(path, expected(value))
    return expected(value)


def _short(value: Any) -> str:
    """Returns the first 200 characters of a simple value's `repr`, or another value's type."""
    if not isinstance(value, (str, int, float, type(None))):
        return f"a {type(value).__name__}"
    written = repr(value)
    return written if len(written) <= 200 else f"{written[:200]}…"


def _closest(name: str, known: Collection[str]) -> str:
    matches = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {matches[0]}?" if matches else ""
    return f"{hint} (known: {', '.join(sorted(known))})"
