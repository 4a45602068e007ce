"""The table of a sweep, from the results on disk: terminal, table3.md and table3.csv.

python -m experiments.report --workdir=runs/toy
"""

import csv
import dataclasses
import io
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from experiments import claims, intervals, paper, results, significance, table2_report, tables
from transformer_jax import config as config_lib
from transformer_jax import files
from transformer_jax import flags as flags_lib
from transformer_jax.evaluation import bleu

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


@dataclasses.dataclass(frozen=True)
class _Report:
    """A sweep with what stands beside it.

    Attributes:
      sweep: the results.
      reported: the paper's, by row.
      counts: of each row's sentences, by seed; empty where a run has left none.
      gaps: each row's difference from the one it is compared with, where there is one.
    """

    sweep: results.Sweep
    reported: Mapping[str, paper.Result]
    counts: Mapping[str, Mapping[int, significance.Counts]]
    gaps: Mapping[str, significance.Difference]


def write(workdir: pathlib.Path) -> None:
    """Writes and prints the table of a sweep.

    Raises:
      UserError: there is no sweep, or its results were not measured alike.
    """
    sweep = results.read(workdir)
    if sweep.table == "table2":  # the only one whose rows have several corpora
        for pair in table2_report.PAIRS.values():
            require_alike([row for row in sweep.rows if row.name.endswith(pair)])
        table2_report.write(sweep)
        return
    if sweep.table == "variations" and (lost := claims.COMPARED - {r.name for r in sweep.rows}):
        raise config_lib.UserError(
            f"{workdir / 'sweep.json'} lacks rows that claims compare ({', '.join(sorted(lost))}): "
            "start the sweep again, which writes it anew and runs nothing twice"
        )
    require_alike(sweep.rows)
    report = _compare(sweep)
    rows = [row for row in sweep.rows if row.results or row.failures]
    found = [tables.Table(_heads(report), [_line(row, report) for row in rows])]
    if sweep.table == "variations":
        heads, *lines = claims.table(sweep)
        found.append(tables.Table(heads, lines))
        if any(row.results for row in rows):
            heads, *lines = _by_length(rows)
            found.append(tables.Table(heads, lines))
    found = [table for table in found if table.lines]
    notes = _notes(report)
    files.write(workdir / f"{sweep.table}.md", tables.markdown(found, notes).encode())
    files.write(workdir / f"{sweep.table}.csv", _csv(report).encode())
    tables.show(found, notes)


def _compare(sweep: results.Sweep) -> _Report:
    counts = {row.name: results.counts(sweep, row, bleu.MAIN) for row in sweep.rows}
    lengths = {len(run): name for name, runs in counts.items() for run in runs.values()}
    if len(lengths) > 1:
        raise config_lib.UserError(
            f"the bleu_counts.json of {' and '.join(sorted(lengths.values()))} are of different "
            "numbers of sentences: delete the result.json of the wrong one and start the sweep "
            "again, which evaluates it anew"
        )
    gaps = {
        row.name: significance.difference(counts[row.name], counts[against.name], bleu.MAIN)
        for row in sweep.rows
        for against in [results.reference(row, sweep)]
        if row is not against and counts[row.name] and counts[against.name]
    }
    return _Report(sweep, paper.TABLES.get(sweep.table, {}), counts, gaps)


def _verdict(row: results.Row, report: _Report) -> str:
    """What our difference says of the paper's; "" where one is missing."""
    gap, theirs = report.gaps.get(row.name), _paper_gap(row, report)
    return "" if gap is None or theirs is None else significance.verdict(gap, theirs)


def _paper_gap(row: results.Row, report: _Report) -> float | None:
    """The paper's difference from base, to its one decimal."""
    base = report.sweep.rows[0]
    if row is base or not {row.name, base.name} <= report.reported.keys():
        return None
    return round(report.reported[row.name].bleu - report.reported[base.name].bleu, 1)


def scores(row: results.Row) -> dict[int, float]:
    """BLEU of a row by seed, in the variant that tables show."""
    return {seed: result["bleu"][bleu.MAIN]["score"] for seed, result in row.results.items()}


def require_alike(rows: Sequence[results.Row]) -> None:
    """Raises UserError, saying what differs, unless all results were measured alike."""
    found: dict[str, set[str]] = {}
    for row in [row for own in rows for row in (own, *own.tuned.values())]:
        for result in row.results.values():
            for name, value in (
                *(
                    (f"BLEU signature of {variant}", score["signature"])
                    for variant, score in result["bleu"].items()
                ),
                ("corpus", result["data_sha256"]),
                ("test set", result["test_sha256"] or "not scored"),
                ("tokenizer", result["tokenizer_sha256"]),
                ("direction", " to ".join(result["data"]["languages"])),
                (
                    "buckets of length",
                    ", ".join(bucket["tokens"] for bucket in result["bleu_by_length"]),
                ),
                *(
                    # What a row is there to vary may differ.
                    (f"decode.{field}", str(value))
                    for field, value in result["decode"].items()
                    if f"decode.{field}" not in row.overrides
                ),
            ):
                found.setdefault(name, set()).add(value)
    for name, values in found.items():
        if len(values) > 1:
            raise config_lib.UserError(
                f"these results cannot stand in one table: they differ in {name} "
                f"({', '.join(sorted(value[:60] for value in values))})"
            )


def _heads(report: _Report) -> list[str]:
    heads = ["row", "values", "PPL", "BLEU", "− base"]
    heads += [f"best of {field.split('.')[-1]}" for field in report.sweep.tune]
    heads += ["params ×10⁶", "seeds"]
    if report.reported:
        heads += [f"paper: {head}" for head in ("PPL", "BLEU", "− base", "params")]
        heads += ["verdict"]
    return heads


def _line(row: results.Row, report: _Report) -> list[str]:
    sweep, base = report.sweep, report.sweep.rows[0]
    values = "see below" if row is base else _values(row)
    tuned = [_best(row, sweep.base, field) for field in sweep.tune]
    ours = ["failed", "", "", *tuned, "", f"0 ({len(row.failures)} failed)"]
    if row.results:
        ppl = [result["ppl"] for result in row.results.values()]
        params = next(iter(row.results.values()))["params"]
        base_params = [result["params"] for result in base.results.values()]
        mark = results.unequal(params, base_params[0]) if base_params else ""
        seeds = str(len(row.results))
        if row.failures:
            seeds += f" ({len(row.failures)} failed)"
        gap = report.gaps.get(row.name)
        ours = [
            _mean_and_deviation(ppl, 3),
            _mean_and_deviation(list(scores(row).values()), 2),
            intervals.written(gap.mean, gap.half) if gap else "",
            *tuned,
            f"{params / 1e6:.3g}" + (f" ({mark})" if mark else ""),
            seeds,
        ]
    if not report.reported:
        return [row.name, values, *ours]
    if row.name not in report.reported:
        return [row.name, values, *ours, "", "", "", "", ""]
    theirs, gap = report.reported[row.name], _paper_gap(row, report)
    in_paper = [f"{theirs.ppl:.2f}", f"{theirs.bleu:.1f}", "" if gap is None else f"{gap:+.1f}"]
    return [row.name, values, *ours, *in_paper, str(theirs.params or ""), _verdict(row, report)]


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


def _values(row: results.Row) -> str:
    """What a row changes, in the paper's symbols."""
    fields = {name: row.overrides[name] for name in _SYMBOLS if name in row.overrides}
    fields |= {name: value for name, value in row.overrides.items() if name not in _SYMBOLS}
    return _written(fields)


def _base_values(base: config_lib.Config) -> str:
    """All of the base's values that the paper's table has columns for."""
    fields = [name for name in _SYMBOLS if name != "model.position"]
    return _written({name: config_lib.get(base, name) for name in fields})


def _written(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{_SYMBOLS.get(name, name)}={value}" for name, value in fields.items())


def _mean_and_deviation(values: Sequence[float], digits: int) -> str:
    text = f"{statistics.mean(values):.{digits}f}"
    return text if len(values) < 2 else f"{text} ± {statistics.stdev(values):.{digits}f}"


def _order(report: _Report) -> list[str]:
    """How far our order of rows is the paper's, as a line, if there is one to compare."""
    paper_bleu = {name: result.bleu for name, result in report.reported.items()}
    known = {name: counts for name, counts in report.counts.items() if name in paper_bleu}
    found = significance.tau(known, paper_bleu, bleu.MAIN)
    if found is None:
        return []
    tau, low, high, pairs = found
    return [
        f"Kendall's tau-b with the paper, over {pairs} pairs of rows that it separates by at least "
        f"{significance.APART} BLEU: {tau:.2f} (95%: {low:.2f} to {high:.2f}), on the "
        f"{report.sweep.base.data.corpus} corpus."
    ]


def _notes(report: _Report) -> list[str]:
    sweep = report.sweep
    notes = [f"base: {_base_values(sweep.base)}"]
    done = [result for row in sweep.rows for result in row.results.values()]
    if done:
        data = sweep.base.data
        notes.append(
            f"Development set of the {data.corpus} corpus, {data.source_language} to "
            f"{data.target_language}; BLEU: {done[0]['bleu'][bleu.MAIN]['signature']}. "
            "± after PPL and BLEU: standard deviation over seeds; after a difference: half of its "
            "95% interval, over sentences and, where both rows have several, seeds."
        )
        if report.reported:
            notes[-1] += (
                " The paper's columns: WMT14 newstest2013; across corpora only signs and ranks of "
                "differences compare. Verdict: " + significance.RULES
            )
            notes += _order(report)
        notes.append(results.UNEQUAL_NOTE)
        if sweep.match:
            notes.append(f"Rows have base's {sweep.match} (--match), but for those that cannot.")
    others = {results.reference(row, sweep).name for row in sweep.rows} - {sweep.rows[0].name}
    if others:
        notes.append(
            "Rows trained on short sentences only are compared not with base but with "
            f"{', '.join(others)}, which was trained on the same ones."
        )
    if sweep.table == "variations":
        notes.append(claims.NOTE)
    return notes + results.shortfalls(sweep)


def _csv(report: _Report) -> str:
    """One line a row, numbers unrounded, for other programs."""
    sweep, reported = report.sweep, report.reported
    lines = []
    for row in sweep.rows:
        ppl = [result["ppl"] for result in row.results.values()]
        ours = list(scores(row).values())
        gap = report.gaps.get(row.name)
        line: dict[str, Any] = {
            "row": row.name,
            "seeds": len(row.results),
            "failed": len(row.failures),
            **{f"ppl{end}": value for end, value in _mean_sd(ppl).items()},
            **{f"bleu{end}": value for end, value in _mean_sd(ours).items()},
            "bleu_minus_base": gap.mean if gap else "",
            "interval_half_width": gap.half if gap else "",
            "p": gap.p if gap else "",
            "params": next((result["params"] for result in row.results.values()), ""),
        }
        for field in sweep.tune:
            found = best(row, sweep.base, field) or ("", "")
            line |= {f"best_{field}_value": found[0], f"best_{field}_bleu": found[1]}
        if reported:
            theirs, theirs_gap = reported.get(row.name), _paper_gap(row, report)
            line |= {
                "paper_wmt14_ppl": theirs.ppl if theirs else "",
                "paper_wmt14_bleu": theirs.bleu if theirs else "",
                "paper_wmt14_bleu_minus_base": "" if theirs_gap is None else theirs_gap,
                "paper_params_millions": (theirs and theirs.params) or "",
                "verdict": _verdict(row, report),
            }
        lines.append(line)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _mean_sd(values: Sequence[float]) -> dict[str, Any]:
    """Mean and standard deviation, by the end of their columns' names."""
    return {
        "": statistics.mean(values) if values else "",
        "_sd": statistics.stdev(values) if len(values) > 1 else "",
    }


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder.", required=True)
    flags_lib.run(lambda: write(files.local_path(_WORKDIR.value)))
