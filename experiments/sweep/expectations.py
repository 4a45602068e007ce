"""Why each row of a sweep is there and what it is expected to show, as written before it ran."""

import contextlib
import dataclasses
import datetime
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from experiments.sweep import results
from transformer_jax import errors

BEFORE, AFTER = "before its runs", "after a run of it"
_LEFT = ("result.json", "failure.json", "metrics.jsonl")  # by a run


@dataclasses.dataclass(frozen=True)
class Texts:
    """Of rows by name: why they are there, and what is expected of them."""

    why: Mapping[str, str] = dataclasses.field(default_factory=dict)
    expect: Mapping[str, str] = dataclasses.field(default_factory=dict)


def read(path: pathlib.Path, described: Mapping[str, Any]) -> Texts:
    """What a sweep's file says in WHY and EXPECT; raises UserError unless they are texts by row."""
    found = {name: described.get(name, {}) for name in ("WHY", "EXPECT")}
    for name, texts in found.items():
        if not isinstance(texts, Mapping) or not all(
            isinstance(part, str) for pair in texts.items() for part in pair
        ):
            raise errors.UserError(
                f'--sweep={path}: {name} should have names of rows and texts: {{"slow": "…"}}'
            )
    return Texts(found["WHY"], found["EXPECT"])


def recorded(
    texts: Texts, rows: Collection[str], folders: Sequence[pathlib.Path], today: datetime.date
) -> dict[str, dict[str, str]]:
    """What sweep.json says of each row that something is said of, with the day and the order.

    A text that stands there already keeps its day; one that is new or has changed, or whose
    sweep.json is damaged, says whether the row had been run by then, in one of the folders: the
    sweep's own, and those of which it takes runs over. Raises UserError if one is of no row.
    """
    for name in {**texts.why, **texts.expect}:
        if name not in rows:
            raise errors.UserError(
                f"WHY or EXPECT names the row {name!r}; there are {', '.join(map(repr, rows))}"
            )
    known = {folder: _said(folder) for folder in folders}
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        own = {"why": texts.why.get(row, ""), "expect": texts.expect.get(row, "")}
        if not any(own.values()):
            continue
        found[row] = {**own, "date": today.isoformat(), "when": BEFORE}
        for folder, said in known.items():
            if own.items() <= said.get(row, {}).items():
                found[row] = dict(said[row])
                break
            # A run, also one that failed, is not done, or was set aside.
            runs = (folder / results.slug(row)).glob("seed*/*.json*")
            if any(path.name in _LEFT for path in runs):
                found[row]["when"] = AFTER
                break
    return found


def _said(folder: pathlib.Path) -> Mapping[str, Mapping[str, str]]:
    with contextlib.suppress(errors.UserError):  # none, or a damaged one, which is written anew
        return results.read_record(folder).get("said", {})
    return {}
