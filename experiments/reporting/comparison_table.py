"""Rows beside base and the paper: the table, further numbers of its rows, and the notes below."""

import collections
import logging
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.analysis import comparison, ranks, significance
from experiments.reporting import further_tables, latex, sensitivity_table, verdict_words
from experiments.sweep import results
from experiments.sweep import table as table_lib
from transformer_jax import config as config_lib
from transformer_jax import paper
from transformer_jax.drawing import tables
from transformer_jax.evaluation import bleu

_log = logging.getLogger("transformer_jax.report")

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
    sections = [further_tables.held_out(compared), sensitivity_table.section(compared)]
    failed: list[Exception] = []
    for section in compared.table.sections:
        try:
            sections.append(section(sweep))
        except Exception as error:
            own = getattr(section, "func", section)  # of functools.partial
            name = getattr(own, "__qualname__", own)
            _log.error("%s lacks its section %s, which fails", sweep.table, name)
            failed.append(error)
    besides = [table for section in sections for table in section.shown]
    begun = _main(compared, [row for row in sweep.rows if row.results or row.failures])
    whole = _main(compared, sweep.rows)
    found = [*notes(compared), *(note for section in sections for note in section.notes)]
    return table_lib.Document(
        shown=[table for table in (begun, *besides) if table.lines],
        on_page=[whole, *besides],
        notes=found + results.shortfalls(sweep),
        csv=csv_of(compared),
        latex=typeset(compared) if typeset else latex.plain(whole),
        failed=failed,
    )


def _main(compared: comparison.Comparison, rows: Sequence[results.Row]) -> tables.Printed:
    tuned = [f"best of {field.split('.')[-1]}" for field in compared.sweep.tune]
    score = compared.table.compared_by.name
    heads = ["row", "values", "PPL", score, "− base", *tuned, "params ×10⁶", "seeds"]
    if compared.table.reported:
        heads += [*(f"paper: {head}" for head in ("PPL", "BLEU", "− base", "params")), "verdict"]
    lines = []
    for row in rows:
        base = compared.sweep.rows[0]
        of_base = "see below" if row is base else changed(row, base)
        lines.append([row.name, of_base, *_ours(row, compared), *_theirs(row, compared)])
    return tables.Printed(heads, lines, note=verdict_words.beneath(lines))


def _ours(row: results.Row, compared: comparison.Comparison) -> list[str]:
    """A row's numbers, from PPL to seeds."""
    sweep = compared.sweep
    tuned = [_best(row, compared) for _ in sweep.tune]
    failed = f" ({len(row.failures)} failed)" if row.failures else ""
    seeds = f"{len(row.results)}{failed}"
    if not row.results:
        state = "failed" if row.failures else "left out" if row.stale else "not run"
        return [state, "", "", *tuned, "", seeds]
    gap, base, params = compared.gaps.get(row.name), sweep.rows[0], row.of("params")[0]
    written = tables.difference(gap.mean, gap.half) if gap else ""
    if gap and gap.over_seeds and not gap.excludes_0 and not compared.table.reported:
        written += f" (detectable: {gap.detectable():.1f})"
    mark = results.unequal(params, base.of("params")[0]) if base.results else ""
    scores = comparison.scores(row, compared.table.measure)
    of_what = "" if scores else f" ({further_tables.asked_for(sweep.config(row))})"
    return [
        f"{tables.mean_and_deviation(row.of('ppl'), 3)}{of_what}",
        tables.mean_and_deviation(scores, 2),
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
    theirs, theirs_gap = reported[row.name], comparison.paper_gaps(compared).get(row.name)
    verdict = verdict_words.judged(row.name, compared.gaps, comparison.verdicts(compared))
    difference = "" if theirs_gap is None else tables.signed(theirs_gap, "+.1f")
    return [
        f"{theirs.ppl:.2f}", f"{theirs.bleu:.1f}", difference, str(theirs.params or ""), verdict
    ]  # fmt: skip


def _best(row: results.Row, compared: comparison.Comparison) -> str:
    """The score at the row's best; see `tuning`."""
    if row.name not in compared.tuned:
        return ""
    best = compared.tuned[row.name].best
    runs = len(best.row.results)
    return f"{best.score:.2f} at {best.value}" + f" ({runs} runs)" * (runs != len(row.results))


def so_far(sweep: results.Sweep) -> tables.Printed:
    """Means of the rows that have results, for who waits for the others."""
    table = table_lib.of_corpus(sweep.table, sweep.base)
    lines, measure = [], table.measure
    for row in sweep.rows:
        found = comparison.scores(row, measure)
        if found:
            ppl, score = statistics.mean(row.of("ppl")), statistics.mean(found)
            against = results.reference(row, sweep)
            theirs = [] if row is against else comparison.scores(against, measure)
            gap = tables.signed(score - statistics.mean(theirs)) if theirs else ""
            lines.append([row.name, changed(row, sweep.rows[0]), f"{ppl:.3f}", f"{score:.2f}", gap])
    return tables.Printed(["row", "values", "PPL", table.compared_by.name, "− base"], lines)


def by_length(sweep: results.Sweep) -> table_lib.Section:
    """Mean BLEU by source tokens, and, of rows trained on short sentences, beyond.

    A row whose vocabulary puts sentences into other buckets than base's has no line.
    """

    def of(row: results.Row) -> list[tuple[str, int]]:
        return [(b["tokens"], b["sentences"]) for b in row.of("bleu_by_length")[0]]

    rows = [row for row in sweep.rows if comparison.scores(row)]
    if not rows:
        return table_lib.Section([])
    buckets = of(rows[0])
    lines = []
    for row in rows:
        if of(row) != buckets:
            continue
        cells = [
            tables.mean_and_deviation([bucket["score"] for bucket in runs], 2)
            for runs in zip(*row.of("bleu_by_length"), strict=True)
        ]
        beyond, last = row.of("bleu_beyond_training"), ""
        if "data.train_max_tokens" in row.overrides and all(beyond):
            last = tables.mean_and_deviation([part["score"] for part in beyond], 2)
            last += f" ({beyond[0]['tokens']} tokens, {beyond[0]['sentences']})"
        lines.append([row.name, *cells, last])
    heads = ["row", *(f"{tokens} tokens ({sentences})" for tokens, sentences in buckets)]
    title = "BLEU by length of the source (sentences)"
    return table_lib.Section([tables.Printed([*heads, "beyond training"], lines, title)])


def changed(row: results.Row, base: results.Row) -> str:
    """What a row changes in that of base, which may have a recipe of its own; the paper's symbols.

    Of base, what it changes itself.
    """
    return _written(_changes(row, base))


def _changes(row: results.Row, base: results.Row) -> dict[str, Any]:
    recipe = base.overrides if row is not base else {}
    own = {n: v for n, v in row.overrides.items() if n not in recipe or recipe[n] != v}
    return {**{name: own[name] for name in SYMBOLS if name in own}, **own}


def own_name(row: results.Row, base: results.Row) -> tuple[str, str]:
    """A row's name with this sweep's size in the place of the paper's, and what the paper's is.

    Of "C N=2", where a base of another depth makes it 1, "C N=1" and "2"; of others the name, "".
    A letter alone says nothing: of "E" it is "E (position=learned)".
    """
    own = {SYMBOLS.get(field, field): str(v) for field, v in _changes(row, base).items()}
    if len(row.name) == 1 and len(own) == 1:
        return f"{row.name} ({changed(row, base)})", ""
    start, _, theirs = row.name.rpartition("=")
    symbol = start.rpartition(" ")[2]
    if symbol not in own or own[symbol] == theirs:
        return row.name, ""
    return f"{start}={own[symbol]}", theirs


def label(row: results.Row, base: results.Row) -> str:
    """What the page calls a row: by its size here, with the paper's, or its name, in brackets.

    "C N=1 (paper: 2)" is the row that the paper has as "C N=2"; "N=1 (named N=2)" it has not.
    """
    own, theirs = own_name(row, base)
    whose = f"paper: {theirs}" if row.name in paper.TABLE3 else f"named {row.name}"
    return f"{own} ({whose})" if theirs else own


def _written(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{SYMBOLS.get(name, name)}={value}" for name, value in fields.items())


def notes(compared: comparison.Comparison) -> list[str]:
    """What has to be known to read the table of rows, a paragraph each."""
    sweep = compared.sweep
    found = [of_base(sweep)]
    done = [result for row in sweep.rows for result in row.results.values()]
    if done:
        data = sweep.base.data
        scored = [result["bleu"][bleu.MAIN] for result in done if result["bleu"]]
        found.append(
            f"Development set{results.files_of(sweep, 'dev')} of the {data.corpus} corpus, "
            f"{data.source_language} to {data.target_language}; BLEU: "
            f"{scored[0]['signature'] if scored else 'none'}. ± after PPL and scores: standard "
            "deviation over seeds; after a difference: half of its 95% interval, over sentences, "
            "and over seeds where their deviation is known."
        )
        found[-1] += verdict_words.noise(compared)
        if compared.table.reported:
            found[-1] += (
                f" The paper's columns: {compared.table.reported_on}; across corpora only signs "
                f"and ranks of differences compare. Verdict: {significance.RULES}"
            )
            if compared.order:
                *tau, pairs = compared.order
                found.append(
                    f"Kendall's tau-b with the paper, over {pairs} pairs of rows that it separates "
                    f"by at least {ranks.APART} BLEU: {ranks.Estimate(*tau).written('.2f')}, on "
                    "the development set."
                )
            found += _unscaled(sweep)
        found += [*_trained_on(done), results.UNEQUAL_NOTE]
        if sweep.match:
            found.append(f"Rows have base's {sweep.match} (--match), but for those that cannot.")
    if done and not sweep.rows[0].results:
        found.append(f"Nothing is compared with {sweep.rows[0].name}, which has no run yet.")
    begun = [row for row in sweep.rows if row.results]
    others = {results.reference(row, sweep).name for row in begun} - {sweep.rows[0].name}
    if others:
        found.append(
            "Rows trained on short sentences only are compared not with base but with "
            f"{', '.join(others)}, which was trained on the same ones."
        )
    return found


def _trained_on(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many runs which kinds of devices trained, as a line; nothing where all are of one."""
    said = [run["devices"] for run in runs if run.get("devices")]
    kinds = collections.Counter(" and ".join(sorted({*devices})) for devices in said)
    each = ", ".join(f"{number} on {kind}" for kind, number in kinds.most_common())
    return [f"Runs by the devices that trained them: {each}."] if len(kinds) > 1 else []


def of_base(sweep: results.Sweep) -> str:
    """The sizes and the recipe of base, in a line that begins with its name."""
    base = sweep.config(sweep.rows[0])
    sizes = {name: config_lib.get(base, name) for name in SYMBOLS if name != "model.position"}
    return f"{sweep.rows[0].name}: {_written({**sizes, **sweep.rows[0].overrides})}"


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


def csv_of(
    compared: comparison.Comparison,
    more: Mapping[str, Callable[[results.Row], Sequence[float]]] | None = None,
) -> str:
    """One line a row, numbers unrounded, for other programs; and `more` of each row, by name."""
    sweep, reported = compared.sweep, compared.table.reported
    score = compared.table.compared_by.name.lower()

    def mean_sd(name: str, values: Sequence[float]) -> dict[str, Any]:
        deviation = statistics.stdev(values) if len(values) > 1 else ""
        return {name: statistics.mean(values) if values else "", f"{name}_sd": deviation}

    lines = []
    for row in sweep.rows:
        gap = compared.gaps.get(row.name)
        line: dict[str, Any] = {
            "row": row.name,
            "values": changed(row, sweep.rows[0]),
            "seeds": len(row.results),
            "failed": len(row.failures),
            **mean_sd("ppl", row.of("ppl")),
            **mean_sd(score, comparison.scores(row, compared.table.measure)),
            f"{score}_minus_base": gap.mean if gap else "",
            "interval_half_width": gap.half if gap else "",
            "params": next(iter(row.of("params")), ""),
        }
        for name, of_row in (more or {}).items():
            line |= mean_sd(name, of_row(row))
        if compared.floor:
            spread = compared.floor.spread(row.name)
            line |= {"seed_sd": spread.variance**0.5, "seed_sd_freedom": spread.freedom}
        for field in sweep.tune:
            found = compared.tuned[row.name].best if row.name in compared.tuned else None
            line[f"best_{field}_value"] = found.value if found else ""
            line[f"best_{field}_{score}"] = found.score if found else ""
        if reported:
            theirs = reported.get(row.name)
            line |= {
                "paper_ppl": theirs.ppl if theirs else "",
                "paper_bleu": theirs.bleu if theirs else "",
                "paper_bleu_minus_base": comparison.paper_gaps(compared).get(row.name, ""),
                "paper_params_millions": (theirs and theirs.params) or "",
                "verdict": comparison.verdict(row.name, compared),
            }
        lines.append(line)
    return tables.csv_of(lines[0], [line.values() for line in lines])
