"""Rows beside base and the paper: the table, further numbers of its rows, and the notes below."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.analysis import comparison, intervals, significance
from experiments.reporting import latex
from experiments.sweep import results, seconds
from experiments.sweep import table as table_lib
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


def document(compared: comparison.Comparison) -> table_lib.Document:
    """All that is shown of rows that are compared with base."""
    sweep, typeset = compared.sweep, compared.table.latex
    sections = [section(sweep) for section in compared.table.sections]
    besides = [table for section in sections for table in section.shown]
    begun = _main(compared, [row for row in sweep.rows if row.results or row.failures])
    whole = _main(compared, sweep.rows)
    found = [*notes(compared), *(note for section in sections for note in section.notes)]
    return table_lib.Document(
        shown=[table for table in (begun, *besides) if table.lines],
        on_page=[whole, *besides],
        notes=found + results.shortfalls(sweep),
        csv=_csv(compared),
        latex=typeset(compared) if typeset else latex.plain(whole),
    )


def _main(compared: comparison.Comparison, rows: Sequence[results.Row]) -> tables.Printed:
    tuned = [f"best of {field.split('.')[-1]}" for field in compared.sweep.tune]
    heads = ["row", "values", "PPL", "BLEU", "− base", *tuned, "params ×10⁶", "seeds"]
    if compared.table.reported:
        heads += [*(f"paper: {head}" for head in ("PPL", "BLEU", "− base", "params")), "verdict"]
    lines = []
    for row in rows:
        of_base = "see Notes" if row is compared.sweep.rows[0] else changed(row)
        lines.append([row.name, of_base, *_ours(row, compared), *_theirs(row, compared)])
    return tables.Printed(heads, lines)


def _ours(row: results.Row, compared: comparison.Comparison) -> list[str]:
    """A row's numbers, from PPL to seeds."""
    sweep = compared.sweep
    tuned = [_best(row, sweep.base, field) for field in sweep.tune]
    failed = f" ({len(row.failures)} failed)" if row.failures else ""
    seeds = f"{len(row.results)}{failed}"
    if not row.results:
        state = "failed" if row.failures else "left out" if row.stale else "not run"
        return [state, "", "", *tuned, "", seeds]
    gap, base, params = compared.gaps.get(row.name), sweep.rows[0], row.of("params")[0]
    written = intervals.written(gap.mean, gap.half) if gap else ""
    if gap and gap.seeds > 1 and not gap.excludes_0 and not compared.table.reported:
        written += f" ({gap.shows:.1f} would show)"
    mark = results.unequal(params, base.of("params")[0]) if base.results else ""
    return [
        tables.mean_and_deviation(row.of("ppl"), 3),
        tables.mean_and_deviation(comparison.scores(row), 2),
        written,
        *tuned,
        f"{params / 1e6:.3g}" + (f" ({mark})" if mark else ""),
        seeds,
    ]


def _theirs(row: results.Row, compared: comparison.Comparison) -> list[str]:
    """The paper's numbers of a row, and the verdict; nothing where the table is not the paper's."""
    reported = compared.table.reported
    if row.name not in reported:
        return [""] * (5 if reported else 0)
    theirs, theirs_gap = reported[row.name], comparison.paper_gap(row, compared)
    verdict, gap = comparison.verdict(row, compared), compared.gaps.get(row.name)
    if verdict == significance.UNDECIDED and gap and gap.seeds > 1:
        verdict += f" ({gap.shows:.1f})"  # what the seeds could have shown
    difference = "" if theirs_gap is None else f"{theirs_gap:+.1f}"
    return [
        f"{theirs.ppl:.2f}", f"{theirs.bleu:.1f}", difference, str(theirs.params or ""), verdict
    ]  # fmt: skip


def _best(row: results.Row, base: config_lib.Config, field: str) -> str:
    found = comparison.best(row, base, field)
    if found is None:
        return ""
    value, mean, runs = found
    return f"{mean:.2f} at {value}" + (f" ({runs} runs)" if runs != len(row.results) else "")


def so_far(sweep: results.Sweep) -> tables.Printed:
    """Means of the rows that have results, for who waits for the others."""
    lines = []
    for row in sweep.rows:
        if row.results:
            ppl, score = statistics.mean(row.of("ppl")), statistics.mean(comparison.scores(row))
            against, gap = results.reference(row, sweep), ""
            if row is not against and against.results:
                difference = score - statistics.mean(comparison.scores(against))
                gap = intervals.written(difference, None)
            lines.append([row.name, changed(row), f"{ppl:.3f}", f"{score:.2f}", gap])
    return tables.Printed(["row", "values", "PPL", "BLEU", "− base"], lines)


def by_length(sweep: results.Sweep) -> table_lib.Section:
    """Mean BLEU by source tokens, and, of rows trained on short sentences, beyond."""
    rows = [row for row in sweep.rows if row.results]
    if not rows:
        return table_lib.Section([])
    buckets = rows[0].of("bleu_by_length")[0]
    lines = []
    for row in rows:
        cells = [
            tables.mean_and_deviation([bucket["score"] for bucket in runs], 2)
            for runs in zip(*row.of("bleu_by_length"), strict=True)
        ]
        beyond, last = row.of("bleu_beyond_training"), ""
        if "data.train_max_tokens" in row.overrides and all(beyond):
            last = tables.mean_and_deviation([part["score"] for part in beyond], 2)
            last += f" ({beyond[0]['tokens']} tokens, {beyond[0]['sentences']})"
        lines.append([row.name, *cells, last])
    heads = [f"BLEU, {b['tokens']} tokens ({b['sentences']})" for b in buckets]
    return table_lib.Section([tables.Printed(["row", *heads, "beyond training"], lines)])


def changed(row: results.Row) -> str:
    """What a row changes, in the paper's symbols."""
    fields = {name: row.overrides[name] for name in SYMBOLS if name in row.overrides}
    return _written({**fields, **row.overrides})


def _written(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{SYMBOLS.get(name, name)}={value}" for name, value in fields.items())


def notes(compared: comparison.Comparison) -> list[str]:
    """What has to be known to read the table of rows, a paragraph each."""
    sweep = compared.sweep
    sizes = {name: config_lib.get(sweep.base, name) for name in SYMBOLS if name != "model.position"}
    found = [f"base: {_written(sizes)}"]
    done = [result for row in sweep.rows for result in row.results.values()]
    if done:
        data = sweep.base.data
        found.append(
            f"Development set of the {data.corpus} corpus, {data.source_language} to "
            f"{data.target_language}; BLEU: {done[0]['bleu'][bleu.MAIN]['signature']}. "
            "± after PPL and BLEU: standard deviation over seeds; after a difference: half of its "
            "95% interval, over sentences and, where both rows have several, seeds."
        )
        if compared.table.reported:
            found[-1] += (
                " The paper's columns: WMT14 newstest2013; across corpora only signs and ranks of "
                "differences compare. Verdict: " + significance.RULES
            )
            if compared.order:
                tau, low, high, pairs = compared.order
                found.append(
                    f"Kendall's tau-b with the paper, over {pairs} pairs of rows that it separates "
                    f"by at least {significance.APART} BLEU: {tau:.2f} (95%: {low:.2f} to "
                    f"{high:.2f}), on the {data.corpus} corpus."
                )
            found += _unscaled(sweep)
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
    return found


def _unscaled(sweep: results.Sweep) -> list[str]:
    """What rates that keep the paper's values meet in rows of smaller sizes, as a line."""
    width, theirs = sweep.base.model.d_model, paper.BASE_SIZES["model.d_model"]
    big = next((row for row in sweep.rows if row.name == "big" and row.results), None)
    if big is None or width >= theirs:
        return []
    own = sweep.config(big).model
    return [
        f"big: sizes and steps are scaled to this base, rates are not: P_drop={own.dropout_rate} "
        f"meets {own.d_model} dimensions where the paper's big has "
        f"{own.d_model * theirs // width:,}; so narrow a model may learn little under so much "
        "noise."
    ]


def _csv(compared: comparison.Comparison) -> str:
    """One line a row, numbers unrounded, for other programs."""
    sweep, reported = compared.sweep, compared.table.reported

    def mean_sd(name: str, values: Sequence[float]) -> dict[str, Any]:
        deviation = statistics.stdev(values) if len(values) > 1 else ""
        return {name: statistics.mean(values) if values else "", f"{name}_sd": deviation}

    lines = []
    for row in sweep.rows:
        gap = compared.gaps.get(row.name)
        line: dict[str, Any] = {
            "row": row.name,
            "values": changed(row),
            "seeds": len(row.results),
            "failed": len(row.failures),
            **mean_sd("ppl", row.of("ppl")),
            **mean_sd("bleu", comparison.scores(row)),
            "bleu_minus_base": gap.mean if gap else "",
            "interval_half_width": gap.half if gap else "",
            "p": gap.p if gap else "",
            "params": next(iter(row.of("params")), ""),
        }
        for field in sweep.tune:
            found = comparison.best(row, sweep.base, field) or ("", "")
            line |= {f"best_{field}_value": found[0], f"best_{field}_bleu": found[1]}
        if reported:
            theirs, theirs_gap = reported.get(row.name), comparison.paper_gap(row, compared)
            line |= {
                "paper_wmt14_ppl": theirs.ppl if theirs else "",
                "paper_wmt14_bleu": theirs.bleu if theirs else "",
                "paper_wmt14_bleu_minus_base": "" if theirs_gap is None else theirs_gap,
                "paper_params_millions": (theirs and theirs.params) or "",
                "verdict": comparison.verdict(row, compared),
            }
        lines.append(line)
    return tables.csv_of(lines[0], [line.values() for line in lines])
