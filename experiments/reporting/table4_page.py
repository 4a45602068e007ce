"""Table 4 beside the paper's, and what else of parses was counted."""

import functools
import statistics
from collections.abc import Sequence

from experiments.analysis import comparison, significance
from experiments.reporting import comparison_table, latex, sensitivity_table, verdict_words
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import paper
from transformer_jax.drawing import tables
from transformer_jax.evaluation import measures, parseval

READ = {"parses": dict}
_KINDS = ("f1", "recall", "precision", "exact", "crossing", "tagging", "malformed")
_NOTES = (
    "The paper's rows are its Table 4: F1 on section 23 of the Wall Street Journal. Ours are on "
    "the test set of their corpus, and compare with each other only.",
    "F1: labelled brackets as EVALB counts them by COLLINS.prm, over all sentences, malformed "
    "trees as they were repaired. exact: sentences with all brackets right; crossing: brackets a "
    "sentence that cross one of the treebank's; tagging: words with the right part of speech, "
    "where trees have them; malformed: trees in need of repair. All but crossing in percent. "
    "± after a value: standard deviation over seeds; after a difference, and after ours on test "
    "sets: half of its 95% interval, over sentences and, where rows have several, seeds.",
)


def document(compared: comparison.Comparison) -> table_lib.Document:
    """The paper's table with our rows, then ours on the development set, and by length."""
    sweep = compared.sweep
    done = [row for row in sweep.rows if row.results]
    whole, ours = _table(sweep), _ours(compared)
    tuned = sensitivity_table.section(compared)
    shown = [ours, _by_length(done), *tuned.shown, whole] if done else [whole]
    return table_lib.Document(
        shown=shown,
        on_page=shown,
        notes=[
            comparison_table.of_base(sweep),
            *_NOTES[:-1],
            _NOTES[-1] + verdict_words.noise(compared),
            *tuned.notes,
            *results.shortfalls(sweep),
        ],
        csv=comparison_table.csv_of(
            compared, {kind: functools.partial(_values, kind=kind) for kind in _KINDS[1:]}
        ),
        latex=latex.plain(whole),
    )


def _table(sweep: results.Sweep) -> tables.Printed:
    """The paper's whole table, and ours in its form, where the test set was scored."""
    lines = [[row.name, row.training, f"{row.f1:.1f}"] for row in paper.TABLE4]
    for row in sweep.rows:
        tests = [result["test"] for result in row.results.values() if "test" in result]
        if tests:
            score = statistics.mean(each["parses"]["f1"] for each in tests)
            written = f"{score:.2f}{_half(results.counts(sweep, row, measures.F1, 'test'))}"
            alone = f"{sweep.base.data.corpus}{results.files_of(sweep, 'test')} only"
            training = "semi-supervised" if "data.parsed" in row.overrides else alone
            lines.append([f"ours: {row.name}", training, written])
    return tables.Printed(["parser", "training", "F1"], lines, "Test sets")


def _half(counts: significance.Runs) -> str:
    """Half of the interval of a row's F1, which is that of its difference from a parser's of 100.

    Empty for runs that have left no counts or make no mistakes, and for a single sentence.
    """
    if not counts or min(map(len, counts.values())) < 2:
        return ""
    equal = ("matched", "gold", "test")
    perfect = [
        parseval.COUNTED.index("gold" if name in equal else name) for name in parseval.COUNTED
    ]
    perfectly = {seed: run[:, perfect] for seed, run in counts.items()}
    half = significance.difference(counts, perfectly, measures.F1).half
    return f" ± {half:.2f}" if half else ""


def _ours(compared: comparison.Comparison) -> tables.Printed:
    """Our rows on the development set, a line each."""
    lines = []
    for row in compared.sweep.rows:
        if row.results:
            gap = compared.gaps.get(row.name)
            score, *others = (tables.mean_and_deviation(_values(row, kind), 2) for kind in _KINDS)
            written = tables.difference(gap.mean, gap.half) if gap else ""
            sizes = [f"{row.of('params')[0] / 1e6:.3g}", str(len(row.results))]
            ppl = tables.mean_and_deviation(row.of("ppl"), 3)
            values = comparison_table.changed(row, compared.sweep.rows[0])
            lines.append([row.name, values, ppl, score, written, *others, *sizes])
    heads = ["row", "values", "PPL", measures.MEASURES[measures.F1].name]
    heads += [f"− {compared.sweep.rows[0].name}", *_KINDS[1:], "params ×10⁶", "seeds"]
    return tables.Printed(heads, lines, "Development set")


def _values(row: results.Row, kind: str) -> list[float]:
    """A measure of each run's parses; nothing where a run lacks it."""
    values = [parses[kind] for parses in row.of("parses") if parses.get(kind) is not None]
    return values if len(values) == len(row.results) else []


def _by_length(rows: Sequence[results.Row]) -> tables.Printed:
    """Mean F1 by words of the sentence."""
    buckets = rows[0].of("parses")[0]["by_length"]
    lines = []
    for row in rows:
        by_bucket = zip(*(each["by_length"] for each in row.of("parses")), strict=True)
        scores = [[bucket["f1"] for bucket in runs] for runs in by_bucket]
        lines.append([row.name, *(tables.mean_and_deviation(each, 2) for each in scores)])
    heads = [f"F1, {bucket['words']} words ({bucket['sentences']})" for bucket in buckets]
    return tables.Printed(["row", *heads], lines, "By length")
