"""The development set as each run translates it, with a score for each sentence."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.analysis import significance
from experiments.sweep import results
from transformer_jax import errors
from transformer_jax.data import text
from transformer_jax.evaluation import bleu

Counts = Mapping[str, Mapping[int, significance.Counts]]  # by row and seed


@dataclasses.dataclass(frozen=True)
class _Run:
    """What one run leaves of its translating; `sources` is empty in runs of earlier versions."""

    seed: int
    sources: list[str]
    references: list[str]
    hypotheses: list[str]


def gather(sweep: results.Sweep, counts: Counts) -> dict[str, Any]:
    """Sentences, and for each row its translations of them, as the page reads them.

    Rows of one development set share its sentences; Table 2 has two sets.

    Args:
      sweep: the results.
      counts: of each run's sentences, in BLEU's main variant; empty where a run has left none.

    Returns:
      `sets`, of `sources` (empty: no run has left them) and `references`; and `rows`, of `name`,
      `set`, `against` (the row that it is compared with) and `runs`, of `seed`, `hypotheses` and
      `scores`, ten times BLEU of each sentence (empty: not known).

    Raises:
      UserError: files of a run have different numbers of lines.
    """
    places: dict[tuple[str, ...], int] = {}
    sets: list[dict[str, list[str]]] = []
    rows: list[dict[str, Any]] = []
    for row in sweep.rows:
        if not (runs := [run for seed in row.results if (run := _read(sweep, row, seed))]):
            continue
        own = tuple(runs[0].references)
        place = places.setdefault(own, len(sets))
        if place == len(sets):
            sets.append({"sources": [], "references": list(own)})
        sets[place]["sources"] = sets[place]["sources"] or runs[0].sources
        known = [other["name"] for other in rows if other["set"] == place]
        against = results.reference(row, sweep).name
        rows.append(
            {
                "name": row.name,
                "set": place,
                "against": against if against in known else [*known, row.name][0],
                "runs": [
                    {
                        "seed": run.seed,
                        "hypotheses": run.hypotheses,
                        "scores": _scores(counts.get(row.name, {}).get(run.seed)),
                    }
                    for run in runs
                ],
            }
        )
    return {"sets": sets, "rows": rows}


def _read(sweep: results.Sweep, row: results.Row, seed: int) -> _Run | None:
    """A run's sentences; None if it has left no translations."""
    folder = results.cell_folder(sweep.workdir, row.name, seed)
    found = {
        name: text.read_lines(folder / f"{name}.txt") if (folder / f"{name}.txt").exists() else []
        for name in ("sources", "references", "hypotheses")
    }
    if not (found["references"] and found["hypotheses"]):
        return None
    lengths = {name: len(lines) for name, lines in found.items() if lines}
    if len(set(lengths.values())) > 1:
        raise errors.UserError(
            f"{folder}: the files of translations have different numbers of lines "
            f"({', '.join(f'{name}.txt {length}' for name, length in lengths.items())}): delete "
            "the run's result.json and start the sweep again, which evaluates it anew"
        )
    return _Run(seed, **found)


def _scores(counts: significance.Counts | None) -> Sequence[int]:
    """Ten times the smoothed BLEU of each sentence."""
    return [] if counts is None else [round(10 * bleu.of_sentence(each)) for each in counts]


def sentence(
    sweep: results.Sweep, row: results.Row, seed: int, number: int
) -> tuple[str, str] | None:
    """A development sentence and the run's translation of it; None if the run has not left them.

    Args:
      sweep: the results.
      row: of the sweep.
      seed: of one of its runs.
      number: of the sentence; the first is 1.

    Raises:
      UserError: there are not so many sentences.
    """
    run = _read(sweep, row, seed)
    if run is None or not run.sources:
        return None
    if number > len(run.sources):
        raise errors.UserError(
            f"--attention={number}: the development set has {len(run.sources):,} sentences"
        )
    return run.sources[number - 1], run.hypotheses[number - 1]
