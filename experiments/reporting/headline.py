"""What the page of a sweep says first: how much has run, what it says, and of which rows."""

import re
from collections.abc import Sequence

from experiments.analysis import comparison, significance
from experiments.reporting import comparison_table
from experiments.sweep import results
from transformer_jax.drawing import tables


def summary(compared: comparison.Comparison) -> str:
    """The sweep in a line: how many rows, which is lowest, how near the paper's order."""
    sweep, gaps, measure = compared.sweep, compared.gaps, compared.table.compared_by.name
    done = [row for row in sweep.rows if row.results]
    counts = sorted({len(row.results) for row in done}) or [0]
    seeds = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    parts = [f"{len(done)} of {len(sweep.rows)} rows, {seeds} seed{'s' * (seeds != '1')}"]
    words = [judgement.word for judgement in comparison.verdicts(compared).values()]
    if words:
        known = [word for word in significance.VERDICTS if word in words]
        parts.append(", ".join(f"{words.count(word)} {word}" for word in known))
    if gaps and min(gap.mean for gap in gaps.values()) < 0:
        name, lowest = min(gaps.items(), key=lambda item: item[1].mean)
        is_sure = comparison.is_sure_over_seeds(name, compared)
        sure, what = ("", "hurts most") if is_sure else (", which may be chance", "lowest")
        written = f"{tables.signed(lowest.mean, '+.1f')} ± {lowest.half:.1f} {measure}"
        parts.append(f"{what}: {_labels(sweep)[name]}, {written}{sure}")
    if compared.order:
        tau, low, high, pairs = compared.order
        said = f"{tau:z.2f} ({low:z.2f} to {high:z.2f}, over {pairs} pairs of rows)"
        parts.append(f"Kendall's tau with the paper {said}".replace("-", "−"))
    return "; ".join(parts) + "."


def on_names(sweep: results.Sweep) -> str:
    """What stands below the summary where a row's size here is not the paper's; or nothing."""
    scaled = _scaled(sweep)
    if not scaled:
        return ""
    name, label = next(iter(scaled.items()))
    said = f"On this page a row is called by its size here: {label}."
    return f"{said} Files and commands call it {name}."


def relabelled(notes: Sequence[str], sweep: results.Sweep) -> list[str]:
    """Notes in which rows are called as everywhere on the page; what base's sizes are stays."""
    scaled = _scaled(sweep)
    of_base = comparison_table.of_base(sweep)
    names = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, scaled))})(?!\w|\.\d)")
    return [
        names.sub(lambda name: scaled[name[0]], note) if scaled and note != of_base else note
        for note in notes
    ]


def _labels(sweep: results.Sweep) -> dict[str, str]:
    return {row.name: comparison_table.label(row, sweep.rows[0]) for row in sweep.rows}


def _scaled(sweep: results.Sweep) -> dict[str, str]:
    """What rows are called whose size here is not the paper's."""
    base, labels = sweep.rows[0], _labels(sweep)
    return {
        row.name: labels[row.name] for row in sweep.rows if comparison_table.own_name(row, base)[1]
    }
