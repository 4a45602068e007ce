"""chrF beside BLEU: whether another measure says the same of a row."""

import dataclasses

from experiments.analysis import comparison, significance
from experiments.reporting import translations
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax.drawing import tables
from transformer_jax.evaluation import chrf, measures

NOTE = (
    f"chrF (sacreBLEU's, {chrf.SIGNATURE}) counts n-grams of characters, and so takes a wrong "
    "ending as half right. p: of approximate randomisation over sentences, each row by itself."
)


def counts(sweep: results.Sweep, row: results.Row) -> dict[int, significance.Counts]:
    """What chrF sums over each run's sentences, by seed, of the runs that have left translations.

    It is counted from them, or, where a sweep was published without them, read.
    """
    found: dict[int, significance.Counts] = {}
    for seed, result in row.results.items():
        alone = dataclasses.replace(row, results={seed: result})
        if kept := results.counts(sweep, alone, measures.CHRF):
            found |= kept
            continue
        run = translations.read(sweep, row, seed)
        if run["hypotheses"] and run["references"]:
            found[seed] = chrf.counts(run["hypotheses"], run["references"])
    return found


def section(compared: comparison.Comparison) -> table_lib.Section:
    """Each row's chrF and its difference from base, beside BLEU's; nothing for other measures.

    Where base has none, a note says which runs have left nothing to count it of.
    """
    sweep, gaps = compared.sweep, compared.gaps
    is_bleu = compared.table.compared_by.name == "BLEU"
    found = {row.name: counts(sweep, row) for row in sweep.rows} if gaps and is_bleu else {}
    comparison.require_same_sentences(found, measures.CHRF)
    floor = comparison.floor_of(sweep, found, measures.CHRF)
    lines, opposite, knows_less = [], [], False
    for row in sweep.rows:
        against = results.reference(row, sweep)
        ours, theirs = (found.get(each.name) for each in (row, against))
        if not ours:
            continue
        scores = [chrf.from_counts(run.sum(0)) for run in ours.values()]
        mean = tables.mean_and_deviation(scores, 2)
        bleu = gaps.get(row.name)
        if not (bleu and theirs):
            lines.append([row.name, mean, *[""] * 4])
            continue
        gap = comparison.gap(found, row.name, against.name, measures.CHRF, floor)
        cells = [
            cell
            for each in (gap, bleu)
            for cell in (tables.difference(each.mean, each.half), f"{each.p:.3f}")
        ]
        lines.append([row.name, mean, *cells])
        if gap.excludes_0 and bleu.excludes_0 and gap.mean * bleu.mean < 0:
            opposite.append(row.name)
        knows_less |= bleu.over_seeds and not gap.over_seeds
    if not any(line[2] for line in lines):
        without = [row.name for row in sweep.rows if row.results and not found.get(row.name)]
        missing = f"runs of {', '.join(without)} have left nothing to count it of"
        return table_lib.Section([], [f"chrF is not compared: {missing}."] if lines else [])
    heads = ["row", "chrF", "chrF: − base", "chrF: p", "BLEU: − base", "BLEU: p"]
    beneath = []  # the table, since it bears on every number in it
    partly = [
        f"{row.name} ({len(found[row.name])} of {len(row.results)})"
        for row in sweep.rows
        if len(found[row.name]) < len(comparison.scores(row))
    ]
    if partly:
        beneath.append(
            f"chrF is of fewer runs than BLEU, since the others have left nothing to count it of: "
            f"{', '.join(partly)}."
        )
    if knows_less:
        beneath.append(
            "Some of chrF's intervals, unlike BLEU's, do not know of other seeds, since fewer runs "
            "have it: they are narrower for that."
        )
    if opposite:
        beneath.append(f"chrF and BLEU contradict each other on {', '.join(opposite)}.")
    shown = tables.Printed(heads, lines, "chrF beside BLEU", " ".join(beneath))
    return table_lib.Section([shown], [NOTE])
