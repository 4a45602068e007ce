"""What a sweep's rows come to: scores, differences from base, and the paper's beside them."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.analysis import significance
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.evaluation import bleu


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A sweep with what stands beside it.

    Attributes:
      sweep: the results.
      table: what they are of.
      counts: of each row's sentences, by seed; empty where a run has left none.
      gaps: each row's difference from the one it is compared with, where there is one.
      order: Kendall's tau-b with the paper, both ends of its interval, and the number of pairs of
        rows; None where there is nothing to compare.
    """

    sweep: results.Sweep
    table: table_lib.Table
    counts: Mapping[str, Mapping[int, significance.Counts]]
    gaps: Mapping[str, significance.Difference]
    order: tuple[float, float, float, int] | None


def compare(sweep: results.Sweep, table: table_lib.Table | None = None) -> Comparison:
    """Compares the rows of a sweep, which are of a table, by default the one of its name.

    Raises:
      UserError: its results were not measured alike, or rows are missing that claims compare.
    """
    table = table or table_lib.find(sweep.table)
    if lost := {*table.needed} - {row.name for row in sweep.rows}:
        raise errors.UserError(
            f"{sweep.workdir / 'sweep.json'} lacks rows that claims compare "
            f"({', '.join(sorted(lost))}): start the sweep again, which writes it anew and runs "
            "nothing twice"
        )
    corpora: dict[str, list[results.Row]] = {}
    for row in sweep.rows:
        corpora.setdefault(table.corpus(row.name), []).append(row)
    for rows in corpora.values():
        require_alike(rows)
    counts = {row.name: results.counts(sweep, row, bleu.MAIN) for row in sweep.rows}
    if len(corpora) > 1:
        return Comparison(sweep, table, counts, {}, None)
    lengths = {len(run): name for name, runs in counts.items() for run in runs.values()}
    if len(lengths) > 1:
        raise errors.UserError(
            f"the bleu_counts.json of {' and '.join(sorted(lengths.values()))} are of different "
            "numbers of sentences: delete the result.json of the wrong one and start the sweep "
            "again, which evaluates it anew"
        )
    gaps = {
        row.name: significance.difference(counts[row.name], counts[against.name], bleu.MAIN)
        for row in sweep.rows
        for against in [results.reference(row, sweep)]
        if row is not against and counts[row.name] and counts[against.name]
    }
    paper_bleu = {name: result.bleu for name, result in table.reported.items()}
    known = {name: found for name, found in counts.items() if name in paper_bleu}
    return Comparison(sweep, table, counts, gaps, significance.tau(known, paper_bleu, bleu.MAIN))


def verdict(row: results.Row, compared: Comparison) -> str:
    """What our difference says of the paper's; "" where one is missing."""
    gap, theirs = compared.gaps.get(row.name), paper_gap(row, compared)
    return "" if gap is None or theirs is None else significance.verdict(gap, theirs)


def paper_gap(row: results.Row, compared: Comparison) -> float | None:
    """The paper's difference from base, to its one decimal."""
    base, reported = compared.sweep.rows[0], compared.table.reported
    if row is base or not {row.name, base.name} <= reported.keys():
        return None
    return round(reported[row.name].bleu - reported[base.name].bleu, 1)


def scores(row: results.Row) -> list[float]:
    """BLEU of a row by seed, in the variant that tables show."""
    return [variants[bleu.MAIN]["score"] for variants in row.of("bleu")]


def require_alike(rows: Sequence[results.Row]) -> None:
    """Raises UserError, saying what differs, unless all results were measured alike."""
    found: dict[str, set[str]] = {}
    for row in [each for own in rows for each in (own, *own.tuned.values())]:
        for result in row.results.values():
            for name, value in _measured_by(result).items():
                if name not in row.overrides:  # what a row is there to vary may differ
                    found.setdefault(name, set()).add(value)
    for name, values in found.items():
        if len(values) > 1:
            raise errors.UserError(
                f"these results cannot stand in one table: they differ in {name} "
                f"({', '.join(sorted(value[:60] for value in values))})"
            )


def _measured_by(result: Mapping[str, Any]) -> dict[str, str]:
    """What has to be the same in all results of a table, by its name."""
    signatures = {variant: score["signature"] for variant, score in result["bleu"].items()}
    return {
        **{f"BLEU signature of {variant}": value for variant, value in signatures.items()},
        "corpus": result["data_sha256"],
        "test set": result["test_sha256"] or "not scored",
        "tokenizer": result["tokenizer_sha256"],
        "direction": " to ".join(result["data"]["languages"]),
        "buckets of length": ", ".join(b["tokens"] for b in result["bleu_by_length"]),
        **{f"decode.{field}": str(value) for field, value in result["decode"].items()},
    }


def best(row: results.Row, base: config_lib.Config, field: str) -> tuple[Any, float, int] | None:
    """The value of the tuned field with the row's best mean BLEU, that mean, and its runs."""
    own = config_lib.get(config_lib.replace(base, row.overrides), field)
    found = [
        (value, statistics.mean(scores(variant)), len(variant.results))
        for value, variant in {own: row, **row.tuned}.items()
        if variant.results
    ]
    return max(found, key=lambda candidate: candidate[1], default=None)
