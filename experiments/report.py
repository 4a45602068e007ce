"""The table of a sweep, from the results on disk: terminal, table3.md and table3.csv.

python -m experiments.report --workdir=runs/toy
"""

import csv
import io
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import rich.box
import rich.console
import rich.markup
import rich.table
import scipy.stats
from absl import flags

from experiments import paper, results
from transformer_jax import config as config_lib
from transformer_jax import files
from transformer_jax import flags as flags_lib
from transformer_jax.evaluation import bleu

PAPER_TABLES = {"table3": paper.TABLE3}
_SYMBOLS = {  # the paper's column heads, in its order
    "model.num_layers": "N",
    "model.d_model": "d_model",
    "model.d_ff": "d_ff",
    "model.num_heads": "h",
    "model.d_k": "d_k",
    "model.d_v": "d_v",
    "model.dropout_rate": "P_drop",
    "train.label_smoothing": "eps_ls",
    "train.num_steps": "steps",
    "model.position": "position",
}
_HEADS = (
    "row",
    "values",
    "PPL",
    "BLEU",
    "− base",
    "params ×10⁶",
    "seeds",
    "paper PPL",
    "paper BLEU",
    "paper − base",
    "paper params",
)


def write(workdir: pathlib.Path) -> None:
    """Writes and prints the table of a sweep.

    Raises:
      UserError: there is no sweep, or its results were not measured alike.
    """
    sweep = results.read(workdir)
    require_alike(sweep)
    reported = PAPER_TABLES[sweep.table]
    lines = [_line(row, sweep, reported) for row in sweep.rows if row.results or row.failures]
    notes = _notes(sweep)
    files.write(workdir / f"{sweep.table}.md", _markdown(lines, notes).encode())
    files.write(workdir / f"{sweep.table}.csv", _csv(sweep, reported).encode())
    _print(lines, _values(sweep.rows[0], sweep.base, whole=True), notes)


def difference(row: results.Row, base: results.Row) -> tuple[float | None, float | None]:
    """Difference in mean BLEU from the base, and half of its 95% interval over seeds (Welch's t).

    Runs of one seed share their data but soon part ways, so they are not treated as pairs. The
    difference is None where a side has no result, the half width where one has fewer than two.
    """
    ours, theirs = list(scores(row).values()), list(scores(base).values())
    if not ours or not theirs:
        return None, None
    gap = statistics.mean(ours) - statistics.mean(theirs)
    if len(ours) < 2 or len(theirs) < 2:
        return gap, None
    parts = [statistics.variance(side) / len(side) for side in (ours, theirs)]
    if not sum(parts):
        return gap, 0.0
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (ours, theirs), strict=True)
    )
    return gap, float(scipy.stats.t.ppf(0.975, freedom)) * sum(parts) ** 0.5


def scores(row: results.Row) -> dict[int, float]:
    """BLEU of a row by seed, in the variant that tables show."""
    return {seed: result["bleu"][bleu.MAIN]["score"] for seed, result in row.results.items()}


def require_alike(sweep: results.Sweep) -> None:
    """Raises UserError, saying what differs, unless all results were measured alike."""
    found: dict[str, set[str]] = {}
    for row in sweep.rows:
        for result in row.results.values():
            for name, value in (
                ("BLEU signature", result["bleu"][bleu.MAIN]["signature"]),
                ("corpus", result["data_sha256"]),
                ("tokenizer", result["tokenizer_sha256"]),
            ):
                found.setdefault(name, set()).add(value)
    for name, values in found.items():
        if len(values) > 1:
            raise config_lib.UserError(
                f"these results cannot stand in one table: they differ in {name} "
                f"({', '.join(sorted(value[:60] for value in values))})"
            )


def _line(
    row: results.Row, sweep: results.Sweep, reported: Mapping[str, paper.Result]
) -> list[str]:
    ours: list[str] = []
    base = sweep.rows[0]
    if row.results:
        ppl = [result["ppl"] for result in row.results.values()]
        ours = [_mean_and_deviation(ppl, 3), _mean_and_deviation(list(scores(row).values()), 2)]
        mean, half = (None, None) if row is base else difference(row, base)
        gap = "" if mean is None else f"{mean:+.2f}"
        ours.append(gap if half is None else f"{gap} ± {half:.2f}")
        params = next(iter(row.results.values()))["params"]
        seeds = str(len(row.results))
        if row.failures:
            seeds += f" ({len(row.failures)} failed)"
        ours += [f"{params / 1e6:.3g}", seeds]
    else:
        ours = ["failed", "", "", "", f"0 ({len(row.failures)} failed)"]
    theirs = reported[row.name]
    gap = "" if row is base else f"{theirs.bleu - reported[base.name].bleu:+.1f}"
    return [
        row.name,
        _values(row, sweep.base, whole=row is base),
        *ours,
        f"{theirs.ppl:.2f}",
        f"{theirs.bleu:.1f}",
        gap,
        str(theirs.params or ""),
    ]


def _values(row: results.Row, base: config_lib.Config, whole: bool) -> str:
    """The values that the row has here: all of the base's, and of others what differs."""
    if whole:
        fields = {name: config_lib.get(base, name) for name in _SYMBOLS if name != "model.position"}
    else:
        fields = {name: row.overrides[name] for name in _SYMBOLS if name in row.overrides}
        fields |= {name: value for name, value in row.overrides.items() if name not in _SYMBOLS}
    return " ".join(f"{_SYMBOLS.get(name, name)}={value}" for name, value in fields.items())


def _mean_and_deviation(values: Sequence[float], digits: int) -> str:
    text = f"{statistics.mean(values):.{digits}f}"
    return text if len(values) < 2 else f"{text} ± {statistics.stdev(values):.{digits}f}"


def _notes(sweep: results.Sweep) -> list[str]:
    notes = []
    done = [result for row in sweep.rows for result in row.results.values()]
    if done:
        data = sweep.base.data
        notes.append(
            f"Development set of the {data.corpus} corpus, {data.source_language} to "
            f"{data.target_language}; BLEU: {done[0]['bleu'][bleu.MAIN]['signature']}. "
            "± after PPL and BLEU: standard deviation over seeds; after a difference: half of its "
            "95% interval (Welch). The paper's columns: WMT14 newstest2013; across corpora only "
            "signs and ranks of differences compare."
        )
    failed = [f"{row.name} (seed {s}: {e})" for row in sweep.rows for s, e in row.failures.items()]
    if failed:
        notes.append("Failed: " + "; ".join(failed) + ".")
    stale = [f"{row.name} (seed {seed})" for row in sweep.rows for seed in row.stale]
    if stale:
        notes.append("Left out, being of another configuration: " + ", ".join(stale) + ".")
    missing = [row.name for row in sweep.rows if not (row.results or row.failures or row.stale)]
    if missing:
        notes.append("Not run: " + ", ".join(missing) + ".")
    return notes


def _markdown(lines: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    heads = [head.replace("paper", "paper, WMT14:", 1) for head in _HEADS]
    table = [row(heads), row(["---"] * len(heads)), *map(row, lines)]
    return "\n".join(table) + "\n\n" + "\n\n".join(notes) + "\n"


def _csv(sweep: results.Sweep, reported: Mapping[str, paper.Result]) -> str:
    """One line a row, numbers unrounded, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        "row seeds failed ppl ppl_sd bleu bleu_sd bleu_minus_base interval_half_width params "
        "paper_wmt14_ppl paper_wmt14_bleu paper_wmt14_bleu_minus_base paper_params_millions".split()
    )
    base = sweep.rows[0]
    for row in sweep.rows:
        numbers: list[Any] = [""] * 7
        if row.results:
            ppl = [result["ppl"] for result in row.results.values()]
            ours = list(scores(row).values())
            against = ["" if part is None else part for part in difference(row, base)]
            spread = [statistics.stdev(v) if len(v) > 1 else "" for v in (ppl, ours)]
            params = next(iter(row.results.values()))["params"]
            mean_bleu = statistics.mean(ours)
            numbers = [statistics.mean(ppl), spread[0], mean_bleu, spread[1], *against, params]
        theirs = reported[row.name]
        gap = round(theirs.bleu - reported[base.name].bleu, 1)
        counts = [len(row.results), len(row.failures)]
        writer.writerow(
            [row.name, *counts, *numbers, theirs.ppl, theirs.bleu, gap, theirs.params or ""]
        )
    return text.getvalue()


def _print(lines: Sequence[Sequence[str]], base_values: str, notes: Sequence[str]) -> None:
    title = f"base: {base_values}"  # too long for its cell
    table = rich.table.Table(box=rich.box.SIMPLE, pad_edge=False, title=title, title_style="")
    for head in _HEADS:
        table.add_column(
            head.replace("paper", "paper,\nWMT14:", 1),
            justify="left" if head in ("row", "values") else "right",
            style="dim" if head.startswith("paper") else "",
        )
    for line in lines:
        table.add_row(*("" if cell == base_values else rich.markup.escape(cell) for cell in line))
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=160)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False)


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder.", required=True)
    flags_lib.run(lambda: write(pathlib.Path(_WORKDIR.value)))
