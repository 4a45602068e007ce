"""The rows on the test set, with verdicts of their own."""

from experiments.analysis import comparison, intervals
from experiments.reporting import verdict_words
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax.drawing import tables


def section(compared: comparison.Comparison) -> table_lib.Section:
    """A line for each row that has left counts of it; nothing where base has not."""
    sweep, on_test = compared.sweep, compared.on_test
    lost = [
        row.name
        for row in sweep.rows
        if any("test" in result for result in row.results.values())
        and not results.counts(sweep, row, compared.table.measure, "test")
    ]
    notes = [
        "Scored on the test set, but not compared there, since runs have left no counts of its "
        f"sentences: {', '.join(lost)}."
    ] * bool(lost and compared.gaps)
    if on_test is None:
        return table_lib.Section([], notes)
    base, found = sweep.rows[0], comparison.verdicts(on_test)
    measure = compared.table.compared_by
    lines = []
    for row in sweep.rows:
        gap = on_test.gaps.get(row.name)
        if not on_test.counts[row.name] or results.reference(row, sweep) is not base:
            continue
        scored, theirs = row.of("test"), comparison.paper_gap(row, compared)
        cells = [
            tables.mean_and_deviation([each["ppl"] for each in scored], 3),
            tables.mean_and_deviation([*map(measure.of_result, scored)], 2),
            intervals.written(gap.mean, gap.half) if gap else "",
        ]
        if compared.table.reported:
            cells.append("" if theirs is None else f"{theirs:+.1f}")
            cells.append(verdict_words.judged(row.name, theirs, on_test.gaps, found))
        lines.append([row.name, *cells])
    sentences = len(next(iter(on_test.counts[base.name].values())))
    written = f"{sentences:,} sentence{'s' * (sentences > 1)}"
    title = f"Test set{results.files_of(sweep, 'test')}, {written}"
    heads = ["row", "test: PPL", f"test: {measure.name}", "test: − base"]
    heads += ["paper: − base", "verdict"] * bool(compared.table.reported)
    note = verdict_words.beneath(lines)
    return table_lib.Section([tables.Printed(heads, lines, title, note)], notes)
