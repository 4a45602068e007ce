"""What models of whole texts are worth: hidden words, and which of two is the translation."""

from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax.data import objectives
from transformer_jax.drawing import tables
from transformer_jax.evaluation import whole_texts

NOTE = (
    "Rows that write no sentences: their PPL is of words hidden from them in held-out pairs, the "
    "same for all rows. Of all words, each is said from those on one side, and it is the mean of "
    "both sides; it does not compare. Answers to “is this the translation of that?” are about "
    "held-out pairs and as many that share their target, of about equal length and as many common "
    "words; 50% is chance. The interval is Wilson's, over the answers of all seeds."
)


def asked_for(config: config_lib.Config) -> str:
    """What the perplexity is of, in a run that writes no sentences."""
    kind = objectives.KINDS.get(config.train.objective)
    if kind is None or not kind.in_place:
        return "words"
    if not kind.words:
        return "answers"
    return "hidden words" if objectives.KINDS[kind.words].asks_few else "all words"


def section(sweep: results.Sweep) -> table_lib.Section:
    """Perplexity of hidden words and right answers, of the rows that write no sentences."""
    rows = [row for row in sweep.rows if row.results and not any(row.of("bleu"))]
    if not rows:
        return table_lib.Section([])
    lines = []
    for row in rows:
        ppl = f"{tables.mean_and_deviation(row.of('ppl'), 2)} ({asked_for(sweep.config(row))})"
        lines.append([row.name, ppl, *_answers(row)])
    heads = ["row", "PPL", "right answers", "95% interval", "answers"]
    return table_lib.Section([tables.Printed(heads, lines, "Models of whole texts")], [NOTE])


def _answers(row: results.Row) -> list[str]:
    """Of all seeds together; nothing where it was not asked."""
    found = [result["accuracy"] for result in row.results.values() if "accuracy" in result]
    if not found:
        return [""] * 3
    answers = sum(each["answers"] for each in found)
    right = round(sum(each["answers"] * each["share"] for each in found))
    share, low, high, _ = whole_texts.accuracy(right, answers).values()
    return [f"{100 * share:.1f}%", f"{100 * low:.1f}% to {100 * high:.1f}%", f"{answers:,}"]
