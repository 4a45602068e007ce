"""Copies what may be shown of a sweep: its table, every result, and ten sentences as rows say them.

python -m experiments.publish runs/mini-cpu --output=experiments/published/mini_wmt_cpu

Writes the report's table (.md and .csv), scores.md with BLEU of every variant, examples.md, and
sweep.json with what reports and --reuse read of each run, but for the whole paths of folders. The
copy can be reported again, and another sweep can take its runs over. Nothing of the corpus is in it
but ten sentences, and with --noexamples not even these.
"""

import itertools
import json
import pathlib
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from experiments.reporting import document, translations
from experiments.sweep import results
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu, evaluators, measures
from transformer_jax.training import metrics

EXAMPLES = 10
# What a measure sums, one variant a file.
COUNTED = {key: measures.MEASURES[key] for key in (bleu.MAIN, measures.F1)}
# Where files lay on the machine of the runs: what stands before a name, or after a comma.
_FOLDER = re.compile(r'(?<=[",])(\s*)/(?:[^",/]+/)+')


def publish(workdir: pathlib.Path, output: pathlib.Path, with_examples: bool = True) -> None:
    """Writes what may be shown of a sweep; raises UserError if no run is done, or one cannot be."""
    document.write(workdir)
    sweep = results.read(workdir)
    rows = [row for row in sweep.rows if row.results]
    if not rows:
        raise errors.UserError(f"{workdir}: none of the sweep's runs is done")
    for end in ("md", "csv"):
        name = f"{sweep.table}.{end}"
        files.write(output / name, (workdir / name).read_bytes())
    _copy(workdir / "sweep.json", output)
    said: dict[str, dict[str, dict[str, str]]] = {}
    tried = [each for row in sweep.rows for each in (row, *row.tuned.values())]
    for row, seed in [(each, seed) for each in tried for seed in each.results]:
        folder, there = (results.cell_folder(place, row.name, seed) for place in (workdir, output))
        metrics.read(folder)
        for name in ("result.json", "run.json", "metrics.jsonl"):
            _copy(folder / name, there)
        for prefix, (key, measure) in itertools.product(("", "test_"), COUNTED.items()):
            name = prefix + measure.file
            if (folder / name).exists():
                counts = files.read_json(folder / name, {key: list}, results.ANEW)
                kept = json.dumps({key: counts[key]}, separators=(",", ":"))
                files.write(there / name, kept.encode())
        for prefix in ("", "test_"):
            name = prefix + evaluators.NLL_FILE
            if (folder / name).exists():
                required = {"nats": list, "tokens": list}
                found = files.read_json(folder / name, required, results.ANEW)
                files.write(there / name, json.dumps(found, separators=(",", ":")).encode())
        if with_examples and (sentences := _examples(sweep, row, seed)):
            files.write_json(there / translations.PUBLISHED, sentences)
            if row in rows:
                said.setdefault(row.name, sentences)
    files.write(output / "scores.md", tables.markdown(_scores(rows), []).encode())
    if with_examples:
        files.write(output / "examples.md", tables.markdown(_shown(said), []).encode())
    else:  # nor what was published here before
        for path in [output / "examples.md", *output.glob(f"*/*/{translations.PUBLISHED}")]:
            path.unlink(missing_ok=True)


def _copy(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Copies a file, if it is there, without the folders whose whole path it names."""
    if path.exists():
        content = _FOLDER.sub(r"\1", path.read_text(encoding="utf-8"))
        files.write(folder / path.name, content.encode())


def _scores(rows: Sequence[results.Row]) -> list[tables.Printed]:
    """Perplexity, BLEU in every variant, and F1 of parsers, on both sets, as means over seeds."""
    found = []
    for title, part in (("Development set", None), ("Test set", "test")):
        scored: dict[str, list[dict[str, float]]] = {}
        for row in rows:
            sets = [result.get(part) if part else result for result in row.results.values()]
            scored[row.name] = [_numbers(each) for each in sets if each]
        every = [each for own in scored.values() for each in own]
        heads = list(dict.fromkeys(head for each in every for head in each))
        lines = [
            [name, str(len(own)), *(_mean([each.get(head) for each in own]) for head in heads)]
            for name, own in scored.items()
            if own
        ]
        if lines:
            found.append(tables.Printed(["row", "seeds", *heads], lines, title))
    return found


def _numbers(scored: Mapping[str, Any]) -> dict[str, float]:
    """A run's scores on a set, by what its column is called; a model may write no sentences."""
    return {
        "PPL": scored["ppl"],
        **{variant: found["score"] for variant, found in scored.get("bleu", {}).items()},
        **({"F1": scored["parses"]["f1"]} if "parses" in scored else {}),
    }


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.mean(known):.2f}" if len(known) == len(values) else ""


def _examples(sweep: results.Sweep, row: results.Row, seed: int) -> dict[str, dict[str, str]]:
    """Sentences of the development set at equal distances: the "(reference)", and the "row"'s.

    Each by what its table is called; empty if the run has left no translations.
    """
    folder = results.cell_folder(sweep.workdir, row.name, seed)
    if (kept := translations.published(folder))["row"]:  # taken over from what was published
        return kept
    left = translations.read(sweep, row, seed)
    said = {"(reference)": left["references"], "row": left["hypotheses"]}
    if not all(said.values()):
        return {}
    total = len(said["row"])
    places = sorted({total * (2 * number + 1) // (2 * EXAMPLES) for number in range(EXAMPLES)})
    return {
        name: {f"Sentence {place + 1:,} of {total:,}": lines[place] for place in places}
        for name, lines in said.items()
    }


def _shown(said: Mapping[str, Mapping[str, Mapping[str, str]]]) -> list[tables.Printed]:
    """A table for each sentence, as each row of the sweep that has been asked for it says it."""
    lines: dict[tuple[str, str], list[list[str]]] = {}
    for row, sentences in said.items():
        for title, reference in sentences["(reference)"].items():
            own = lines.setdefault((title, reference), [["(reference)", reference]])
            own.append([row, sentences["row"][title]])
    return [tables.Printed(["", "sentence"], found, title) for (title, _), found in lines.items()]


def main(folder: str = "") -> None:
    """Publishes the sweep that the command line names."""
    workdir = folder or _WORKDIR.value
    if not workdir:
        raise errors.UserError("name the sweep's folder: python -m experiments.publish DIR")
    publish(files.local_path(workdir), files.local_path(_OUTPUT.value), _EXAMPLES.value)


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder, if no argument names it.")
    _OUTPUT = flags_lib.define_required("output", "Where to write.")
    _EXAMPLES = flags.DEFINE_bool("examples", True, "Whether to show ten sentences.")
    flags_lib.run(main, "[DIR]")
