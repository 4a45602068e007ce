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
from absl import flags

from experiments import claims, intervals, paper, results
from transformer_jax import config as config_lib
from transformer_jax import files
from transformer_jax import flags as flags_lib
from transformer_jax.evaluation import bleu

UNEQUAL_NOTE = (
    "A percentage after params: the row has so many more or fewer than base, so that it does not "
    "compare parts at equal parameters."
)
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


def write(workdir: pathlib.Path) -> None:
    """Writes and prints the table of a sweep.

    Raises:
      UserError: there is no sweep, or its results were not measured alike.
    """
    sweep = results.read(workdir)
    require_alike(sweep)
    reported = paper.TABLES.get(sweep.table, {})
    rows = [row for row in sweep.rows if row.results or row.failures]
    tables = [[_heads(sweep, reported), *(_line(row, sweep, reported) for row in rows)]]
    if sweep.table == "variations":
        tables += [claims.table(sweep), _by_length(rows)]
    tables = [table for table in tables if len(table) > 1]
    notes = _notes(sweep)
    files.write(workdir / f"{sweep.table}.md", _markdown(tables, notes).encode())
    files.write(workdir / f"{sweep.table}.csv", _csv(sweep, reported).encode())
    _print(tables, _values(sweep.rows[0], sweep.base, whole=True), notes)


def difference(row: results.Row, base: results.Row) -> tuple[float | None, float | None]:
    """Difference in mean BLEU from the base, and half of its 95% interval over seeds."""
    return intervals.difference(list(scores(row).values()), list(scores(base).values()))


def scores(row: results.Row) -> dict[int, float]:
    """BLEU of a row by seed, in the variant that tables show."""
    return {seed: result["bleu"][bleu.MAIN]["score"] for seed, result in row.results.items()}


def require_alike(sweep: results.Sweep) -> None:
    """Raises UserError, saying what differs, unless all results were measured alike."""
    found: dict[str, set[str]] = {}
    for row in [row for own in sweep.rows for row in (own, *own.tuned.values())]:
        for result in row.results.values():
            for name, value in (
                ("BLEU signature", result["bleu"][bleu.MAIN]["signature"]),
                ("corpus", result["data_sha256"]),
                ("tokenizer", result["tokenizer_sha256"]),
                (
                    "buckets of length",
                    ", ".join(bucket["tokens"] for bucket in result["bleu_by_length"]),
                ),
            ):
                found.setdefault(name, set()).add(value)
    for name, values in found.items():
        if len(values) > 1:
            raise config_lib.UserError(
                f"these results cannot stand in one table: they differ in {name} "
                f"({', '.join(sorted(value[:60] for value in values))})"
            )


def _heads(sweep: results.Sweep, reported: Mapping[str, paper.Result]) -> list[str]:
    heads = ["row", "values", "PPL", "BLEU", "− base"]
    heads += [f"best of {field.split('.')[-1]}" for field in sweep.tune]
    heads += ["params ×10⁶", "seeds"]
    if reported:
        heads += [f"paper, WMT14: {head}" for head in ("PPL", "BLEU", "− base", "params")]
    return heads


def _line(
    row: results.Row, sweep: results.Sweep, reported: Mapping[str, paper.Result]
) -> list[str]:
    base = sweep.rows[0]
    values = _values(row, sweep.base, whole=row is base)
    tuned = [_best(row, sweep.base, field) for field in sweep.tune]
    ours = ["failed", "", "", *tuned, "", f"0 ({len(row.failures)} failed)"]
    if row.results:
        ppl = [result["ppl"] for result in row.results.values()]
        against = results.reference(row, sweep)
        gap = "" if row is against else intervals.written(*difference(row, against))
        params = next(iter(row.results.values()))["params"]
        base_params = [result["params"] for result in base.results.values()]
        mark = results.unequal(params, base_params[0]) if base_params else ""
        seeds = str(len(row.results))
        if row.failures:
            seeds += f" ({len(row.failures)} failed)"
        ours = [
            _mean_and_deviation(ppl, 3),
            _mean_and_deviation(list(scores(row).values()), 2),
            gap,
            *tuned,
            f"{params / 1e6:.3g}" + (f" ({mark})" if mark else ""),
            seeds,
        ]
    if row.name not in reported:
        return [row.name, values, *ours]
    theirs = reported[row.name]
    gap = "" if row is base else f"{theirs.bleu - reported[base.name].bleu:+.1f}"
    paper_cells = [f"{theirs.ppl:.2f}", f"{theirs.bleu:.1f}", gap, str(theirs.params or "")]
    return [row.name, values, *ours, *paper_cells]


def best(row: results.Row, base: config_lib.Config, field: str) -> tuple[Any, float, int] | None:
    """The value of the tuned field with the row's best mean BLEU, that mean, and its runs."""
    own = config_lib.get(config_lib.replace(base, row.overrides), field)
    found = [
        (value, statistics.mean(scores(variant).values()), len(variant.results))
        for value, variant in {own: row, **row.tuned}.items()
        if variant.results
    ]
    return max(found, key=lambda candidate: candidate[1], default=None)


def _best(row: results.Row, base: config_lib.Config, field: str) -> str:
    found = best(row, base, field)
    if found is None:
        return ""
    value, mean, runs = found
    return f"{mean:.2f} at {value}" + (f" ({runs} runs)" if runs != len(row.results) else "")


def _by_length(rows: Sequence[results.Row]) -> list[list[str]]:
    """Mean BLEU by source tokens, and, of rows trained on short ones, beyond; heads first."""
    done = [row for row in rows if row.results]
    if not done:
        return []
    buckets = _any_result(done)["bleu_by_length"]
    heads = [f"BLEU, {b['tokens']} tokens ({b['sentences']})" for b in buckets]
    lines = [["row", *heads, "beyond training"]]
    for row in done:
        found = list(row.results.values())
        cells = [
            _mean_and_deviation([result["bleu_by_length"][i]["score"] for result in found], 2)
            for i in range(len(buckets))
        ]
        beyond = [result["bleu_beyond_training"] for result in found]
        last = ""
        if "data.train_max_tokens" in row.overrides and all(beyond):
            last = _mean_and_deviation([part["score"] for part in beyond], 2)
            last += f" ({beyond[0]['tokens']} tokens, {beyond[0]['sentences']})"
        lines.append([row.name, *cells, last])
    return lines


def _any_result(rows: Sequence[results.Row]) -> Mapping[str, Any]:
    return next(iter(rows[0].results.values()))


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
            "95% interval (Welch)."
        )
        if sweep.table in paper.TABLES:
            notes[0] += (
                " The paper's columns: WMT14 newstest2013; across corpora only signs and ranks of "
                "differences compare."
            )
        notes.append(UNEQUAL_NOTE)
    others = {results.reference(row, sweep).name for row in sweep.rows} - {sweep.rows[0].name}
    if others:
        notes.append(
            "Rows trained on short sentences only are compared not with base but with "
            f"{', '.join(others)}, which was trained on the same ones."
        )
    if sweep.table == "variations":
        notes.append(claims.NOTE)
    rows = [row for own in sweep.rows for row in (own, *own.tuned.values())]
    failed = [f"{row.name} (seed {s}: {e})" for row in rows for s, e in row.failures.items()]
    if failed:
        notes.append("Failed: " + "; ".join(failed) + ".")
    stale = [f"{row.name} (seed {seed})" for row in rows for seed in row.stale]
    if stale:
        notes.append("Left out, being of another configuration: " + ", ".join(stale) + ".")
    missing = [row.name for row in rows if not (row.results or row.failures or row.stale)]
    if missing:
        notes.append("Not run: " + ", ".join(missing) + ".")
    return notes


def _markdown(tables: Sequence[Sequence[Sequence[str]]], notes: Sequence[str]) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    written = [
        "\n".join([row(heads), row(["---"] * len(heads)), *map(row, lines)])
        for heads, *lines in tables
    ]
    return "\n\n".join([*written, *notes]) + "\n"


def _csv(sweep: results.Sweep, reported: Mapping[str, paper.Result]) -> str:
    """One line a row, numbers unrounded, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *"row seeds failed ppl ppl_sd bleu bleu_sd bleu_minus_base interval_half_width".split(),
            "params",
            *(f"best_{field}_{part}" for field in sweep.tune for part in ("value", "bleu")),
            *(
                f"paper_{name}"
                for name in "wmt14_ppl wmt14_bleu wmt14_bleu_minus_base params_millions".split()
                if reported
            ),
        ]
    )
    base = sweep.rows[0]
    for row in sweep.rows:
        numbers: list[Any] = [""] * 7
        if row.results:
            ppl = [result["ppl"] for result in row.results.values()]
            ours = list(scores(row).values())
            gap = difference(row, results.reference(row, sweep))
            against = ["" if part is None else part for part in gap]
            spread = [statistics.stdev(v) if len(v) > 1 else "" for v in (ppl, ours)]
            params = next(iter(row.results.values()))["params"]
            mean_bleu = statistics.mean(ours)
            numbers = [statistics.mean(ppl), spread[0], mean_bleu, spread[1], *against, params]
        in_paper: list[Any] = []
        if row.name in reported:
            theirs = reported[row.name]
            gap = round(theirs.bleu - reported[base.name].bleu, 1)
            in_paper = [theirs.ppl, theirs.bleu, gap, theirs.params or ""]
        tuned = [(best(row, sweep.base, field) or ("", ""))[:2] for field in sweep.tune]
        flat = [part for pair in tuned for part in pair]
        counts = [len(row.results), len(row.failures)]
        writer.writerow([row.name, *counts, *numbers, *flat, *in_paper])
    return text.getvalue()


def _print(
    tables: Sequence[Sequence[Sequence[str]]], base_values: str, notes: Sequence[str]
) -> None:
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=160)
    console.print(f"base: {base_values}", highlight=False, markup=False)  # too long for its cell
    for heads, *lines in tables:
        table = rich.table.Table(box=rich.box.SIMPLE, pad_edge=False)
        for head, cells in zip(heads, zip(*lines, strict=True), strict=True):
            is_number = any(cell[:1].isdigit() or cell[:1] in "+-−" for cell in cells if cell)
            table.add_column(
                head.replace("WMT14: ", "\nWMT14: "),
                justify="right" if is_number else "left",
                style="dim" if head.startswith("paper") else "",
            )
        for line in lines:
            cells = ("" if cell == base_values else rich.markup.escape(cell) for cell in line)
            table.add_row(*cells)
        console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False)


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder.", required=True)
    flags_lib.run(lambda: write(pathlib.Path(_WORKDIR.value)))
