"""Copies what may be shown of a sweep: its table, every result, and ten sentences as rows say them.

python -m experiments.publish --workdir=runs/mini-cpu --output=experiments/published/mini_wmt_cpu

Writes the report's table (.md and .csv), scores.md with BLEU of every variant, examples.md, and
sweep.json with what reports and --reuse read of each run, without the folders that files lay in:
the copy can be reported again, and another sweep can take its runs over. Nothing of the corpus is
copied but ten sentences, and with --noexamples not even these.
"""

import itertools
import json
import pathlib
import re
import statistics
from collections.abc import Mapping, Sequence

from absl import flags

from experiments.reporting import chrf_table, document, translations
from experiments.sweep import results
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.data import text
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu, measures

EXAMPLES = 10
# What a measure sums, one variant a file.
COUNTED = {key: measures.MEASURES[key] for key in (bleu.MAIN, measures.F1)}
# Where files lay on the machine of the runs: what stands before a name, or after a comma.
_FOLDER = re.compile(r'(?<=[",])/(?:[^",/]+/)+')


def publish(workdir: pathlib.Path, output: pathlib.Path, with_examples: bool = True) -> None:
    """Writes what may be shown of a sweep; raises UserError if none of its runs is done."""
    document.write(workdir)
    sweep = results.read(workdir)
    rows = [row for row in sweep.rows if row.results]
    if not rows:
        raise errors.UserError(f"{workdir}: none of the sweep's runs is done")
    for end in ("md", "csv"):
        name = f"{sweep.table}.{end}"
        files.write(output / name, (workdir / name).read_bytes())
    _copy(workdir / "sweep.json", output)
    said: dict[str, dict[str, str]] = {}
    for row in rows:  # what chrF sums, since the translations that it counts are not published
        for seed, counts in chrf_table.counts(sweep, row).items():
            there = results.cell_folder(output, row.name, seed)
            content = json.dumps({measures.CHRF: counts.tolist()}, separators=(",", ":"))
            files.write(there / measures.MEASURES[measures.CHRF].file, content.encode())
    names = [row.name for row in rows]
    tried = [each for row in sweep.rows for each in (row, *row.tuned.values())]
    for row, seed in [(each.name, seed) for each in tried for seed in each.results]:
        folder, there = (results.cell_folder(place, row, seed) for place in (workdir, output))
        for name in ("result.json", "run.json", "metrics.jsonl"):
            _copy(folder / name, there)
        for prefix, (key, measure) in itertools.product(("", "test_"), COUNTED.items()):
            name = prefix + measure.file
            if (folder / name).exists():
                counts = json.loads((folder / name).read_bytes())
                kept = json.dumps({key: counts[key]}, separators=(",", ":"))
                files.write(there / name, kept.encode())
        if with_examples and (sentences := _examples(folder)):
            files.write_json(there / translations.PUBLISHED, sentences)
            if row in names:
                said.setdefault(row, sentences["row"])
                said = {"(reference)": sentences["(reference)"], **said}
    files.write(output / "scores.md", tables.markdown(_scores(rows), []).encode())
    if with_examples:
        files.write(output / "examples.md", tables.markdown(_shown(said), []).encode())
    else:  # nor what was published here before
        for path in [output / "examples.md", *output.glob(f"*/*/{translations.PUBLISHED}")]:
            path.unlink(missing_ok=True)


def _copy(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Copies a file, if it is there, without the folders that it names."""
    if path.exists():
        content = _FOLDER.sub("", path.read_text(encoding="utf-8"))
        files.write(folder / path.name, content.encode())


def _scores(rows: Sequence[results.Row]) -> list[tables.Printed]:
    """Perplexity, BLEU in every variant, and F1 of parsers, on both sets, as means over seeds."""
    found = []
    for title, part in (("Development set", None), ("Test set", "test")):
        lines, variants = [], []
        for row in rows:
            all_results = row.results.values()
            scored = (
                [each[part] for each in all_results if part in each] if part else [*all_results]
            )
            if not scored:
                continue
            variants = variants or list(scored[0]["bleu"])  # a model may write no sentences
            ppl = statistics.mean(each["ppl"] for each in scored)
            means = [
                statistics.mean(each["bleu"][variant]["score"] for each in scored)
                for variant in scored[0]["bleu"]
            ]
            if parsed := [each["parses"]["f1"] for each in scored if "parses" in each]:
                means.append(statistics.mean(parsed))
            lines.append([row.name, str(len(scored)), *(f"{mean:.2f}" for mean in (ppl, *means))])
        parses = ["F1"] if any(len(line) > 3 + len(variants) for line in lines) else []
        heads = ["row", "seeds", "PPL", *variants, *parses]
        if lines:
            whole = [[*line, *[""] * (len(heads) - len(line))] for line in lines]
            found.append(tables.Printed(heads, whole, title))
    return found


def _examples(folder: pathlib.Path) -> dict[str, dict[str, str]]:
    """Sentences of the development set at equal distances: the "(reference)", and the "row"'s.

    Each by what its table is called; empty if the run has left no translations.
    """
    if (said := translations.published(folder))["row"]:  # taken over from what was published
        return said
    if not (folder / "hypotheses.txt").exists():
        return {}
    names = {"(reference)": "references.txt", "row": "hypotheses.txt"}
    said = {name: text.read_lines(folder / file) for name, file in names.items()}
    total = len(said["row"])
    places = sorted({total * (2 * number + 1) // (2 * EXAMPLES) for number in range(EXAMPLES)})
    return {
        name: {f"Sentence {place + 1:,} of {total:,}": lines[place] for place in places}
        for name, lines in said.items()
    }


def _shown(said: Mapping[str, Mapping[str, str]]) -> list[tables.Printed]:
    """A table for each sentence, as each row of the sweep says it."""
    titles = next(iter(said.values()), {})
    lines = {title: [[name, each[title]] for name, each in said.items()] for title in titles}
    return [tables.Printed(["", "sentence"], lines[title], title) for title in titles]


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder.", required=True)
    _OUTPUT = flags.DEFINE_string("output", None, "Where to write.", required=True)
    _EXAMPLES = flags.DEFINE_bool("examples", True, "Whether to show ten sentences.")
    flags_lib.run(
        lambda: publish(
            files.local_path(_WORKDIR.value), files.local_path(_OUTPUT.value), _EXAMPLES.value
        )
    )
