"""The table of a sweep as people read it, and the notes below it."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.analysis import claims, comparison, intervals, significance
from experiments.sweep import results, seconds
from transformer_jax import config as config_lib
from transformer_jax import paper
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu

SYMBOLS = {  # the paper's column heads, in its order
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


def all_of(compared: comparison.Comparison) -> list[tables.Table]:
    """The rows that have been run, and the tables that a sweep of variations has besides."""
    rows = [row for row in compared.sweep.rows if row.results or row.failures]
    found = [main(compared, rows), *besides(compared)]
    return [table for table in found if table.lines]


def main(compared: comparison.Comparison, rows: Sequence[results.Row]) -> tables.Table:
    """Rows beside the paper's."""
    return tables.Table(_heads(compared), [_line(row, compared) for row in rows])


def so_far(sweep: results.Sweep) -> tables.Table:
    """Means of the rows that have results, for who waits for the others."""
    lines = []
    for row in sweep.rows:
        if row.results:
            ppl = statistics.mean(result["ppl"] for result in row.results.values())
            score, against = _mean_score(row), results.reference(row, sweep)
            known = row is not against and bool(against.results)
            gap = intervals.written(score - _mean_score(against), None) if known else ""
            lines.append([row.name, changed(row), f"{ppl:.3f}", f"{score:.2f}", gap])
    return tables.Table(["row", "values", "PPL", "BLEU", "− base"], lines)


def _mean_score(row: results.Row) -> float:
    return statistics.mean(comparison.scores(row).values())


def besides(compared: comparison.Comparison) -> list[tables.Table]:
    """Claims, and BLEU by length, of a sweep of variations."""
    if compared.sweep.table != "variations":
        return []
    heads, *lines = claims.table(compared.sweep)
    found = [tables.Table(heads, lines)]
    if done := [row for row in compared.sweep.rows if row.results]:
        heads, *lines = _by_length(done)
        found.append(tables.Table(heads, lines))
    return found


def _heads(compared: comparison.Comparison) -> list[str]:
    heads = ["row", "values", "PPL", "BLEU", "− base"]
    heads += [f"best of {field.split('.')[-1]}" for field in compared.sweep.tune]
    heads += ["params ×10⁶", "seeds"]
    if compared.reported:
        heads += [f"paper: {head}" for head in ("PPL", "BLEU", "− base", "params")]
        heads += ["verdict"]
    return heads


def _line(row: results.Row, compared: comparison.Comparison) -> list[str]:
    sweep, base = compared.sweep, compared.sweep.rows[0]
    values = "see below" if row is base else changed(row)
    tuned = [_best(row, sweep.base, field) for field in sweep.tune]
    state = "failed" if row.failures else "left out" if row.stale else "not run"
    ours = [state, "", "", *tuned, "", f"0 ({len(row.failures)} failed)" if row.failures else "0"]
    if row.results:
        ppl = [result["ppl"] for result in row.results.values()]
        params = next(iter(row.results.values()))["params"]
        base_params = [result["params"] for result in base.results.values()]
        mark = results.unequal(params, base_params[0]) if base_params else ""
        seeds = str(len(row.results))
        if row.failures:
            seeds += f" ({len(row.failures)} failed)"
        gap = compared.gaps.get(row.name)
        ours = [
            mean_and_deviation(ppl, 3),
            mean_and_deviation(list(comparison.scores(row).values()), 2),
            intervals.written(gap.mean, gap.half) if gap else "",
            *tuned,
            f"{params / 1e6:.3g}" + (f" ({mark})" if mark else ""),
            seeds,
        ]
    if not compared.reported:
        return [row.name, values, *ours]
    if row.name not in compared.reported:
        return [row.name, values, *ours, "", "", "", "", ""]
    theirs, gap = compared.reported[row.name], comparison.paper_gap(row, compared)
    in_paper = [f"{theirs.ppl:.2f}", f"{theirs.bleu:.1f}", "" if gap is None else f"{gap:+.1f}"]
    return [
        row.name,
        values,
        *ours,
        *in_paper,
        str(theirs.params or ""),
        comparison.explained(row, compared),
    ]


def _best(row: results.Row, base: config_lib.Config, field: str) -> str:
    found = comparison.best(row, base, field)
    if found is None:
        return ""
    value, mean, runs = found
    return f"{mean:.2f} at {value}" + (f" ({runs} runs)" if runs != len(row.results) else "")


def _by_length(rows: Sequence[results.Row]) -> list[list[str]]:
    """Mean BLEU by source tokens, and, of rows trained on short ones, beyond; heads first."""
    buckets = next(iter(rows[0].results.values()))["bleu_by_length"]
    heads = [f"BLEU, {b['tokens']} tokens ({b['sentences']})" for b in buckets]
    lines = [["row", *heads, "beyond training"]]
    for row in rows:
        found = list(row.results.values())
        cells = [
            mean_and_deviation([result["bleu_by_length"][i]["score"] for result in found], 2)
            for i in range(len(buckets))
        ]
        beyond = [result["bleu_beyond_training"] for result in found]
        last = ""
        if "data.train_max_tokens" in row.overrides and all(beyond):
            last = mean_and_deviation([part["score"] for part in beyond], 2)
            last += f" ({beyond[0]['tokens']} tokens, {beyond[0]['sentences']})"
        lines.append([row.name, *cells, last])
    return lines


def changed(row: results.Row) -> str:
    """What a row changes, in the paper's symbols."""
    fields = {name: row.overrides[name] for name in SYMBOLS if name in row.overrides}
    fields |= {name: value for name, value in row.overrides.items() if name not in SYMBOLS}
    return _written(fields)


def _base_values(base: config_lib.Config) -> str:
    """All of the base's values that the paper's table has columns for."""
    fields = [name for name in SYMBOLS if name != "model.position"]
    return _written({name: config_lib.get(base, name) for name in fields})


def _written(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{SYMBOLS.get(name, name)}={value}" for name, value in fields.items())


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """The two as a table shows them: 1.23 ± 0.45."""
    text = f"{statistics.mean(values):.{digits}f}"
    return text if len(values) < 2 else f"{text} ± {statistics.stdev(values):.{digits}f}"


def _order(compared: comparison.Comparison) -> list[str]:
    """How far our order of rows is the paper's, as a line, if there is one to compare."""
    if compared.order is None:
        return []
    tau, low, high, pairs = compared.order
    return [
        f"Kendall's tau-b with the paper, over {pairs} pairs of rows that it separates by at least "
        f"{significance.APART} BLEU: {tau:.2f} (95%: {low:.2f} to {high:.2f}), on the "
        f"{compared.sweep.base.data.corpus} corpus."
    ]


def _unscaled(sweep: results.Sweep) -> list[str]:
    """What rates that keep the paper's values meet in rows of smaller sizes, as a line."""
    width, theirs = sweep.base.model.d_model, paper.BASE_SIZES["model.d_model"]
    big = next((row for row in sweep.rows if row.name == "big" and row.results), None)
    if big is None or width >= theirs:
        return []
    own = config_lib.replace(sweep.base, big.overrides).model
    return [
        f"big: sizes and steps are scaled to this base, rates are not: P_drop={own.dropout_rate} "
        f"meets {own.d_model} dimensions where the paper's big has "
        f"{own.d_model * theirs // width:,}; so narrow a model may learn little under so much "
        "noise."
    ]


def notes(compared: comparison.Comparison) -> list[str]:
    """What has to be known to read the table, a paragraph each."""
    sweep = compared.sweep
    found = [f"base: {_base_values(sweep.base)}"]
    done = [result for row in sweep.rows for result in row.results.values()]
    if done:
        data = sweep.base.data
        found.append(
            f"Development set of the {data.corpus} corpus, {data.source_language} to "
            f"{data.target_language}; BLEU: {done[0]['bleu'][bleu.MAIN]['signature']}. "
            "± after PPL and BLEU: standard deviation over seeds; after a difference: half of its "
            "95% interval, over sentences and, where both rows have several, seeds."
        )
        if compared.reported:
            found[-1] += (
                " The paper's columns: WMT14 newstest2013; across corpora only signs and ranks of "
                "differences compare. Verdict: " + significance.RULES
            )
            found += _order(compared) + _unscaled(sweep)
        found.append(results.UNEQUAL_NOTE)
        if sweep.match:
            found.append(f"Rows have base's {sweep.match} (--match), but for those that cannot.")
            if sweep.match == "seconds" and (where := seconds.devices(sweep.workdir, sweep.base)):
                found[-1] += f" Seconds a step were measured on {', '.join(where)}."
    others = {results.reference(row, sweep).name for row in sweep.rows} - {sweep.rows[0].name}
    if others:
        found.append(
            "Rows trained on short sentences only are compared not with base but with "
            f"{', '.join(others)}, which was trained on the same ones."
        )
    if sweep.table == "variations":
        found.append(claims.NOTE)
    return found + results.shortfalls(sweep)
