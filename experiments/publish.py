"""Copies what may be shown of a sweep: its table, every result, and ten sentences as rows say them.

python -m experiments.publish --workdir=runs/mini-cpu --output=experiments/published/mini_wmt_cpu

Writes the report's table (.md and .csv), scores.md with BLEU of every variant, examples.md, and
ROW/seedK/result.json, without the folders that files lay in. Nothing else of the corpus is copied.
"""

import pathlib
import re
import statistics
from collections.abc import Sequence

from absl import flags

from experiments.reporting import document
from experiments.sweep import results
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.data import text
from transformer_jax.drawing import tables

EXAMPLES = 10
# Where files lay on the machine of the runs: what stands before a name, or after a comma.
_FOLDER = re.compile(r'(?<=[",])/(?:[^",/]+/)+')


def publish(workdir: pathlib.Path, output: pathlib.Path) -> None:
    """Writes what may be shown of a sweep; raises UserError if none of its runs is done."""
    document.write(workdir)
    sweep = results.read(workdir)
    rows = [row for row in sweep.rows if row.results]
    if not rows:
        raise errors.UserError(f"{workdir}: none of the sweep's runs is done")
    for end in ("md", "csv"):
        name = f"{sweep.table}.{end}"
        files.write(output / name, (workdir / name).read_bytes())
    for row, seed in [(each.name, seed) for each in rows for seed in each.results]:
        folder, there = (results.cell_folder(place, row, seed) for place in (workdir, output))
        content = _FOLDER.sub("", (folder / "result.json").read_text(encoding="utf-8"))
        files.write(there / "result.json", content.encode())
    files.write(output / "scores.md", tables.markdown(_scores(rows), []).encode())
    files.write(output / "examples.md", tables.markdown(_examples(workdir, rows), []).encode())


def _scores(rows: Sequence[results.Row]) -> list[tables.Printed]:
    """Perplexity and BLEU in every variant, on both sets, as means over seeds."""
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
            variants = list(scored[0]["bleu"])
            ppl = statistics.mean(each["ppl"] for each in scored)
            means = [
                statistics.mean(each["bleu"][variant]["score"] for each in scored)
                for variant in variants
            ]
            lines.append([row.name, str(len(scored)), *(f"{mean:.2f}" for mean in (ppl, *means))])
        if lines:
            found.append(tables.Printed(["row", "seeds", "PPL", *variants], lines, title))
    return found


def _examples(workdir: pathlib.Path, rows: Sequence[results.Row]) -> list[tables.Printed]:
    """Sentences of the development set at equal distances: the reference, and each row's."""
    said: dict[str, list[str]] = {}
    for row in rows:
        folder = results.cell_folder(workdir, row.name, next(iter(row.results)))
        said.setdefault("(reference)", text.read_lines(folder / "references.txt"))
        said[row.name] = text.read_lines(folder / "hypotheses.txt")
    total = len(said["(reference)"])
    places = sorted({total * (2 * number + 1) // (2 * EXAMPLES) for number in range(EXAMPLES)})
    return [
        tables.Printed(
            ["", "sentence"],
            [[name, sentences[place]] for name, sentences in said.items()],
            f"Sentence {place + 1:,} of {total:,}",
        )
        for place in places
    ]


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder.", required=True)
    _OUTPUT = flags.DEFINE_string("output", None, "Where to write.", required=True)
    flags_lib.run(
        lambda: publish(files.local_path(_WORKDIR.value), files.local_path(_OUTPUT.value))
    )
