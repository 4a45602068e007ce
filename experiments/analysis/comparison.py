"""What a sweep's rows come to: scores, differences from base, and the paper's beside them."""

import dataclasses
import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.analysis import noise_floor, ranks, significance, tuning
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import errors
from transformer_jax.evaluation import bleu, measures
from transformer_jax.training import metrics

# What differs, besides the field itself, where a row changes it.
DIFFER_TOO = {
    "data.vocabulary": ("tokenizer", "buckets of length"),
    "data.directions": ("tokenizer", "buckets of length"),
    "data.parsed": ("corpus", "tokenizer", "buckets of length"),
}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A sweep with what stands beside it.

    Attributes:
      counts: of each row's sentences, by seed; empty where it writes none.
      gaps: each row's difference from the one it is compared with, where there is one.
      order: Kendall's tau-b with the paper, both ends of its interval, and the number of pairs of
        rows; None where there is nothing to compare.
      floor: what seeds do to scores; None if the sweep was started without --noise_floor, or base
        has not run with several seeds yet.
      tuned: each row over the field of --tune, where it has been run.
    """

    sweep: results.Sweep
    table: table_lib.Table
    counts: Mapping[str, significance.Runs]
    gaps: Mapping[str, significance.Difference]
    order: tuple[float, float, float, int] | None
    floor: noise_floor.Floor | None = None
    tuned: Mapping[str, tuning.Tuned] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def on_test(self) -> "Comparison | None":
        """The rows that are compared with base, on the test set; None if that says nothing of base.

        Raises:
          UserError: they were scored on different sentences.
        """
        sweep, base, measure = self.sweep, self.sweep.rows[0], self.table.measure
        counts = {row.name: results.counts(sweep, row, measure, "test") for row in sweep.rows}
        sentences = require_same_sentences(counts, measure, "test_")
        if not (self.gaps and counts[base.name]):
            return None
        floor = floor_of(sweep, counts, measure)
        gaps = {
            row.name: gap(counts, row.name, base.name, measure, floor)
            for row in sweep.rows
            if row is not base and counts[row.name] and results.reference(row, sweep) is base
            if sentences > 1  # one says nothing of others
        }
        return dataclasses.replace(self, counts=counts, gaps=gaps, order=None, floor=floor)


def compare(sweep: results.Sweep, table: table_lib.Table | None = None) -> Comparison:
    """Compares the rows of a sweep, which are of a table, by default the one of its name.

    Raises:
      UserError: its results were not measured alike, or rows are missing that claims compare.
    """
    table = table_lib.of_corpus(sweep.table, sweep.base, table)
    if lost := {*table.needed} - {row.name for row in sweep.rows}:
        raise errors.UserError(
            f"{sweep.workdir / 'sweep.json'} lacks rows that claims compare "
            f"({', '.join(sorted(lost))}): {results.REMEDY}"
        )
    corpora: dict[str, list[results.Row]] = {}
    for row in sweep.rows:
        corpora.setdefault(table.corpus(row.name), []).append(row)
    for rows in corpora.values():
        require_alike(rows)
    measure = table.measure
    results.require_fields(sweep, table.reads)
    counts = {row.name: results.counts(sweep, row, measure) for row in sweep.rows}
    variants = [each for row in sweep.rows for each in row.tuned.values()]
    tried = {each.name: results.counts(sweep, each, measure) for each in variants}
    # One sentence says nothing of others.
    if len(corpora) > 1 or require_same_sentences({**tried, **counts}, measure) == 1:
        return Comparison(sweep, table, counts, {}, None)
    floor = floor_of(sweep, counts, measure)
    gaps = {
        row.name: gap(counts, row.name, against.name, measure, floor)
        for row in sweep.rows
        for against in [results.reference(row, sweep)]
        if row is not against and counts[row.name] and counts[against.name]
    }
    paper_bleu = {name: result.bleu for name, result in table.reported.items()}
    known = {name: found for name, found in counts.items() if name in paper_bleu}
    order = ranks.tau(known, paper_bleu, measure, floor)
    return Comparison(sweep, table, counts, gaps, order, floor, tuning.tune(sweep, measure))


def floor_of(
    sweep: results.Sweep, counts: Mapping[str, significance.Runs], measure: str
) -> noise_floor.Floor | None:
    """What seeds do to the scores of counts by row; None unless a noise floor was asked for."""
    if not sweep.noise_floor:
        return None
    score = measures.MEASURES[measure].from_counts
    found = {row: [score(run.sum(0)) for run in runs.values()] for row, runs in counts.items()}
    return noise_floor.measure(found, sweep.rows[0].name, failed_rows(sweep))


def failed_rows(sweep: results.Sweep) -> set[str]:
    """Returns the rows, tuned ones too, with a run that failed to train; see `noise_floor`."""
    base_ppl = sweep.rows[0].of("ppl")
    if not base_ppl:
        return set()
    limit = statistics.mean(base_ppl)
    rows = [each for row in sweep.rows for each in (row, *row.tuned.values())]
    return {
        row.name
        for row in rows
        if any(noise_floor.has_failed(_lowest_ppl(sweep, row, seed), limit) for seed in row.results)
    }


def _lowest_ppl(sweep: results.Sweep, row: results.Row, seed: int) -> float:
    """Returns the lowest development perplexity of a run, as logged or in the end."""
    records = metrics.read(results.cell_folder(sweep.workdir, row.name, seed))
    logged = [record["dev_ppl"] for record in records if "dev_ppl" in record]
    return min([row.results[seed]["ppl"], *logged])


def gap(
    counts: Mapping[str, significance.Runs],
    row: str,
    against: str,
    measure: str,
    floor: noise_floor.Floor | None,
) -> significance.Difference:
    """A row less another, by their counts."""
    spreads = (floor.spread(row), floor.spread(against)) if floor else None
    return significance.difference(counts[row], counts[against], measure, spreads)


def verdicts(
    compared: Comparison, gaps: Mapping[str, significance.Difference] | None = None
) -> dict[str, significance.Judgement]:
    """What differences, by default those of the table, say of the paper's, where it has one."""
    return significance.verdicts(compared.gaps if gaps is None else gaps, paper_gaps(compared))


def verdict(name: str, compared: Comparison) -> str:
    """What our difference says of the paper's; "" where one is missing."""
    found = verdicts(compared).get(name)
    return found.word if found else ""


def paper_gaps(compared: Comparison) -> dict[str, float]:
    """The paper's differences from base, to their one decimal, of the rows that it has."""
    base, *others = (row.name for row in compared.sweep.rows)
    bleu_of = {name: result.bleu for name, result in compared.table.reported.items()}
    if base not in bleu_of:
        return {}
    return {row: round(bleu_of[row] - bleu_of[base], 1) for row in others if row in bleu_of}


def scores(row: results.Row, measure: str = bleu.MAIN) -> list[float]:
    """A row's scores by seed: BLEU in the variant that tables show, or by another measure.

    Empty if the row writes no sentences.
    """
    scored = [result for result in row.results.values() if result["bleu"]]
    return [*map(measures.MEASURES[measure].of_result, scored)]


def is_sure(name: str, compared: Comparison) -> bool:
    """Whether a row surely differs: all that have verdicts together, another by itself."""
    if name in (found := verdicts(compared)):
        return found[name].is_sure
    return name in compared.gaps and compared.gaps[name].excludes_0


def is_sure_over_seeds(name: str, compared: Comparison) -> bool:
    """Likewise, for other seeds too: of one seed nothing is."""
    return is_sure(name, compared) and compared.gaps[name].over_seeds


def require_same_sentences(
    counts: Mapping[str, significance.Runs], variant: str, prefix: str = ""
) -> int:
    """How many sentences each run of each row has counts of; 0 where none has any.

    Args:
      counts: what a measure sums, by row and seed.
      variant: the measure, a key of `measures.MEASURES`.
      prefix: of its files, where they are of another set than the development set.

    Raises:
      UserError: in some it is another number, or what their references alone decide differs.
    """
    measure = measures.MEASURES[variant]
    found: dict[bytes, tuple[str, int]] = {}
    for name, runs in counts.items():
        for seed, run in runs.items():
            path = f"{results.slug(name)}/seed{seed}/{prefix}{measure.file} ({len(run):,})"
            found.setdefault(run[:, measure.of_reference].tobytes(), (path, len(run)))
    if len(found) > 1:
        raise errors.UserError(
            f"{' and '.join(sorted(path for path, _ in found.values()))} are of different "
            "sentences, or in another order: delete the result.json beside the wrong one and start "
            "the sweep again, which evaluates it anew"
        )
    return next((sentences for _, sentences in found.values()), 0)


def require_alike(rows: Sequence[results.Row]) -> None:
    """Raises UserError, saying what differs, unless all results were measured alike."""
    found: dict[str, dict[str, str]] = {}  # a row of each value
    for row in [each for own in rows for each in (own, *own.tuned.values())]:
        too = (name for field in row.overrides for name in DIFFER_TOO.get(field, ()))
        varied = {*row.overrides, *too}
        for result in row.results.values():
            for name, value in _measured_by(result).items():
                if name not in varied:  # what a row is there to vary may differ
                    found.setdefault(name, {}).setdefault(value, row.name)
    for name, values in found.items():
        if len(values) > 1:
            raise errors.UserError(
                f"these results cannot stand in one table: they differ in {name} "
                f"({', '.join(sorted(value[:60] for value in values))}): see "
                f"{' and '.join(dict.fromkeys(values.values()))}; give each a sweep and a "
                "--workdir of its own"
            )


def _measured_by(result: Mapping[str, Any]) -> dict[str, str]:
    """What has to be the same in all results of a table, by its name."""
    buckets = [bucket["tokens"] for bucket in result["bleu_by_length"]]
    words = [bucket["words"] for bucket in result.get("parses", {}).get("by_length", [])]
    return {
        **{f"BLEU signature of {name}": each["signature"] for name, each in result["bleu"].items()},
        "corpus": result["data_sha256"],
        "test set": result["test_sha256"] or "not scored",
        "tokenizer": result["tokenizer_sha256"],
        "direction": " to ".join(result["data"]["languages"]),
        **({"buckets of length": ", ".join(buckets)} if buckets else {}),
        **({"buckets of words": ", ".join(words)} if words else {}),
        **{f"decode.{field}": str(value) for field, value in result["decode"].items()},
    }
