"""The development set as each run translates it, with a score for each sentence."""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

from experiments.analysis import significance
from experiments.sweep import results
from transformer_jax import errors, files
from transformer_jax.data import text
from transformer_jax.evaluation import measures

PUBLISHED = "examples.json"  # of a published run, which has no other texts: ten sentences


def gather(
    sweep: results.Sweep,
    counts: Mapping[str, significance.Runs],
    measure: measures.Measure,
) -> dict[str, Any]:
    """Sentences, and for each row its translations of them, as the page reads them.

    Rows of one development set share its sentences; Table 2 has two sets. Where a run was
    published, its texts are no list, but a few by their numbers, from 0.

    Args:
      sweep: the results.
      counts: of each run's sentences, by row; empty where a run has left none.
      measure: what they count for.

    Returns:
      `sets`, of `sources` (empty: no run has left them), `references` and `total`, the number of
      sentences; and `rows`, of `name`, `set`, `against` (the row that it is compared with; None if
      that has left none) and `runs`, of `seed`, `hypotheses` and `scores`, ten times each
      sentence's (empty: not known); and `measure`, what scores are.

    Raises:
      UserError: files of a run have different numbers of lines.
    """
    sets: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for row in sweep.rows:
        runs = _left(sweep, row)
        if not runs:
            continue
        most = max(runs.values(), key=_held)
        texts = {name: most[name] for name in ("sources", "references", "total")}
        place = next((i for i, each in enumerate(sets) if _agree(each, texts)), len(sets))
        sets[place : place + 1] = [max([*sets[place : place + 1], texts], key=_held)]
        own, shown = counts.get(row.name, {}), []
        for seed, run in runs.items():
            scores = [round(10 * measure.of_sentence(c)) for c in own.get(seed, ())]
            shown.append({"seed": seed, "hypotheses": run["hypotheses"], "scores": scores})
        against = results.reference(row, sweep).name
        rows.append({"name": row.name, "set": place, "against": against, "runs": shown})
    known = {row["name"]: row["set"] for row in rows}
    for row in rows:
        if row["against"] not in known:
            row["against"] = None
        elif known[row["against"]] != row["set"]:  # of Table 2 each set has a base
            row["against"] = next(name for name, own in known.items() if own == row["set"])
    return {"sets": sets, "rows": rows, "measure": measure.sentence_name}


def _left(sweep: results.Sweep, row: results.Row) -> dict[int, dict[str, Any]]:
    """The texts of those runs of a row that have left some, by seed."""
    runs = {seed: _read_or_published(sweep, row, seed) for seed in row.results}
    return {seed: run for seed, run in runs.items() if run["references"] and run["hypotheses"]}


def _held(texts: Mapping[str, Any]) -> tuple[int, int]:
    return len(texts["references"]), len(texts["sources"])


def _agree(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether both are of one development set, as far as their references are known."""
    few, more = (each["references"] for each in sorted((some, others), key=_held))
    if type(few) is type(more):
        return few == more
    return some["total"] == others["total"] and all(more[i] == few[i] for i in few)


def _read_or_published(sweep: results.Sweep, row: results.Row, seed: int) -> dict[str, Any]:
    """What a run has left or, of a published one, a few sentences; and the `total` of sentences."""
    run = read(sweep, row, seed)
    if run["references"] and run["hypotheses"]:
        return {**run, "total": len(run["references"])}
    folder = results.cell_folder(sweep.workdir, row.name, seed)
    said = published(folder)
    found: dict[str, Any] = {"sources": [], "references": {}, "hypotheses": {}, "total": 0}
    for title, translation in said["row"].items():
        number, found["total"] = _place(title)
        found["references"][number - 1] = said["(reference)"][title]
        found["hypotheses"][number - 1] = translation
    return found


def _place(title: str) -> tuple[int, int]:
    """The number of a published sentence, from 1, and how many there are; zeros if none is said."""
    match = re.fullmatch(r"Sentence (\d[\d,]*) of (\d[\d,]*)", title, re.ASCII)
    number, total = match.groups() if match else ("0", "0")
    return int(number.replace(",", "")), int(total.replace(",", ""))


def published(folder: pathlib.Path) -> dict[str, dict[str, str]]:
    """Sentences of a published run by title: the "(reference)" and the "row"'s; else both empty.

    Raises:
      UserError: the file is damaged.
    """
    path, texts = folder / PUBLISHED, ("(reference)", "row")
    if not path.exists():
        return {name: {} for name in texts}
    said = files.read_json(path, dict.fromkeys(texts, dict), "delete it")
    titles = [title for sentences in said.values() for title in sentences]
    for title in titles:
        number, total = _place(title)
        is_place = 1 <= number <= total == _place(titles[0])[1]
        if not is_place or titles.count(title) < len(texts):
            raise errors.UserError(
                f"{path} is damaged ({title[:40]!r} is no sentence of it): delete it"
            )
    return said


def read(sweep: results.Sweep, row: results.Row, seed: int) -> dict[str, list[str]]:
    """A run's `sources`, `references` and `hypotheses`, empty what it has not left.

    Raises:
      UserError: they have different numbers of lines.
    """
    folder = results.cell_folder(sweep.workdir, row.name, seed)
    names = ("sources", "references", "hypotheses")
    paths = {name: folder / f"{name}.txt" for name in names}
    found = {name: text.read_lines(path) if path.exists() else [] for name, path in paths.items()}
    lengths = {paths[name].name: len(lines) for name, lines in found.items() if lines}
    if len(set(lengths.values())) > 1:
        raise errors.UserError(
            f"{folder}: the files of translations have different numbers of lines "
            f"({', '.join(f'{name} {length}' for name, length in lengths.items())}): {results.ANEW}"
        )
    return found
