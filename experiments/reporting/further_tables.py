"""Tables below that of the rows: the test set, and encoder-only models."""

import statistics

from experiments.analysis import comparison
from experiments.reporting import verdict_words
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax.data import objectives
from transformer_jax.drawing import tables
from transformer_jax.evaluation import encoder_only

_NOTE = (
    "Rows that write no sentences: their PPL is of words hidden from them in held-out pairs, the "
    "same for all rows. Where it is of all words (ELMo), each is said from those on one of its "
    "sides, and PPL is the mean of both directions; it does not compare with that of hidden words. "
    "Answers to “is this the translation of that?” are about each held-out source with its "
    "translation and with another target of equal length; 50% is chance. Of several seeds it is "
    "their mean; the interval is Wilson's, over the questions alone."
)


def held_out(compared: comparison.Comparison) -> table_lib.Section:
    """The rows that were scored on the test set, with verdicts of their own; none without base."""
    sweep, on_test = compared.sweep, compared.on_test
    if on_test is None:
        return table_lib.Section([])
    base, found = sweep.rows[0], comparison.verdicts(on_test)
    measure = compared.table.compared_by
    lines = []
    for row in sweep.rows:
        gap = on_test.gaps.get(row.name)
        if not on_test.counts[row.name] or results.reference(row, sweep) is not base:
            continue
        scored, theirs = row.of("test"), comparison.paper_gaps(compared).get(row.name)
        cells = [
            tables.mean_and_deviation([each["ppl"] for each in scored], 3),
            tables.mean_and_deviation([*map(measure.of_result, scored)], 2),
            tables.difference(gap.mean, gap.half) if gap else "",
        ]
        if compared.table.reported:
            cells.append("" if theirs is None else tables.signed(theirs, "+.1f"))
            cells.append(verdict_words.judged(row.name, on_test.gaps, found))
        lines.append([row.name, *cells])
    sentences = len(next(iter(on_test.counts[base.name].values())))
    written = f"{sentences:,} sentence{'s' * (sentences > 1)}"
    title = f"Test set{results.files_of(sweep, 'test')}, {written}"
    heads = ["row", "test: PPL", f"test: {measure.name}", "test: − base"]
    heads += ["paper: − base", "verdict"] * bool(compared.table.reported)
    note = f"{verdict_words.beneath(lines)}{verdict_words.noise(on_test)}".strip()
    return table_lib.Section([tables.Printed(heads, lines, title, note)])


def asked_for(config: config_lib.Config) -> str:
    """Returns what the perplexity of a run is of."""
    objective = objectives.of(config)
    if objective is None or not objective.encoder_only:
        return "words"
    scored_by = objective.scored_by[0]
    if scored_by == objectives.PAIR_CLASSIFICATION:
        return "answers"
    return "hidden words" if objectives.KINDS[scored_by].masked else "all words"


def answers(sweep: results.Sweep) -> table_lib.Section:
    """Perplexity of hidden words and right answers, of the rows that write no sentences."""
    rows = [row for row in sweep.rows if row.results and not any(row.of("bleu"))]
    if not rows:
        return table_lib.Section([])
    lines = []
    for row in rows:
        ppl = f"{tables.mean_and_deviation(row.of('ppl'), 2)} ({asked_for(sweep.config(row))})"
        lines.append([row.name, ppl, *_answers(row)])
    heads = ["row", "PPL", "right answers", "95% interval", "answers"]
    return table_lib.Section([tables.Printed(heads, lines, "Models of whole texts")], [_NOTE])


def _answers(row: results.Row) -> list[str]:
    """The mean over seeds, all of which answer the same; nothing where it was not asked."""
    found = [result["accuracy"] for result in row.results.values() if "accuracy" in result]
    if not found:
        return [""] * 3
    answers = found[0]["answers"]
    right = round(answers * statistics.fmean(each["share"] for each in found))
    share, low, high, _ = encoder_only.accuracy(right, answers).values()
    return [f"{100 * share:.1f}%", f"{100 * low:.1f}% to {100 * high:.1f}%", f"{answers:,}"]
