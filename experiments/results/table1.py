"""Writes the report of the measured Table 1, with fitted exponents: table1.md and table1.png."""

import dataclasses
import io
import pathlib
import statistics
from collections.abc import Mapping, Sequence

import matplotlib.figure
import numpy as np
import pandas as pd

from experiments.benchmarks import layer_kinds, measuring
from experiments.results import tables
from transformer_jax import files, paper

# A colour and a mark for each kind of layer. The colours are Okabe and Ito's, which people with
# colour blindness can tell apart.
_LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"))
_PANELS = (("Time", "n"), ("Time", "d"), ("Memory", "n"))
FIELDS = {"n": "length", "d": "width"}


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """The measured cost of one kind of layer at one size."""

    kind: str
    sizes: layer_kinds.Sizes
    samples: Sequence[float]  # seconds of one call in each round
    program: measuring.TimedProgram

    @property
    def seconds(self) -> float:
        """The median of the samples, in seconds."""
        return statistics.median(self.samples)

    @property
    def memory(self) -> int:
        """The bytes of the result and of the compiler's temporary arrays."""
        return self.program.temporary_bytes + self.program.output_bytes


ByKind = Mapping[str, Sequence[LayerCost]]  # for each kind of layer, costs in order of size


def write(workdir: pathlib.Path, sweeps: Mapping[str, ByKind], machine: str) -> None:
    """Writes table1.md and table1.png, and prints the tables and notes.

    Args:
      workdir: the folder of the table.
      sweeps: the costs along each axis, "n" and "d".
      machine: the text of `measuring.describe_machine`.
    """
    shown = [_costs(axis, sweep) for axis, sweep in sweeps.items()] + [_sequential(sweeps["n"])]
    first = next(iter(sweeps["n"].values()))[0]
    notes = _notes(first.sizes, len(first.samples), machine)
    files.write(workdir / "table1.png", _png(sweeps, machine))
    plot = "![Time against n and d, memory against n](table1.png)"
    text = "# Table 1, measured\n\n" + tables.markdown(shown, [plot, *notes])
    files.write(workdir / "table1.md", text.encode())
    tables.show(shown, notes)


def fit(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Fits values ≈ c · sizes^p by least squares on logarithms.

    Returns:
      The exponent p, and R². R² is 1 if all values are equal.
    """
    x, y = np.log(sizes), np.log(values)
    power, offset = np.polyfit(x, y, 1)
    total = np.square(y - y.mean()).sum()
    residual = np.square(y - (power * x + offset)).sum()
    return float(power), float(1 - residual / total) if total > 1e-12 else 1.0


def _larger_half(points: Sequence[LayerCost]) -> Sequence[LayerCost]:
    """Returns the costs at the larger half of the sizes, to which exponents are fitted."""
    # At small sizes, costs that do not depend on the size dominate.
    return points[-max(2, -(-len(points) // 2)) :]


def _sizes(points: Sequence[LayerCost], axis: str) -> list[int]:
    return [getattr(point.sizes, FIELDS[axis]) for point in points]


def _costs(axis: str, sweep: ByKind) -> tables.Table:
    """Returns a table of the exponents fitted along an axis, and the costs at the largest size."""
    lines = []
    for kind, points in sweep.items():
        half, expected = _larger_half(points), paper.TABLE1[kind]
        sizes, last = _sizes(half, axis), points[-1]
        seconds, r2 = fit(sizes, [point.seconds for point in half])
        lines.append({
            "layer": kind,
            "complexity": expected.complexity,
            "paper": expected.powers[axis],
            "operations": fit(sizes, [point.program.flops for point in half])[0],
            "time": seconds,
            "r2": r2,
            "memory": fit(sizes, [point.memory for point in half])[0],
            "milliseconds": last.seconds * 1e3,
            "mebibytes": last.memory / 2**20,
        })  # fmt: skip
    points = next(iter(sweep.values()))
    low, *_, high = _sizes(_larger_half(points), axis)
    other = "d" if axis == "n" else "n"
    columns = [
        tables.Column("layer"),
        tables.Column("complexity"),
        tables.Column("paper", form="d"),
        *(tables.Column(name, form=".2f") for name in ("operations", "time")),
        tables.Column("R² of time", "r2", ".3f"),
        tables.Column("memory", form=".2f"),
        tables.Column(f"ms at {axis} = {high}", "milliseconds", ",.1f"),
        tables.Column(f"MiB at {axis} = {high}", "mebibytes", ",.1f"),
    ]
    title = (
        f"Exponents of {FIELDS[axis]} {axis}, fitted from {axis} = {low} to {high} at "
        f"{other} = {_sizes(points, other)[0]}"
    )
    return tables.Table(pd.DataFrame(lines), columns, title)


def _sequential(sweep: ByKind) -> tables.Table:
    """Returns a table with the longest chain of dependent instructions at each length."""
    lengths = _sizes(next(iter(sweep.values())), "n")
    lines = []
    for kind, points in sweep.items():
        counts = [point.program.sequential_operations for point in points]
        half, expected = _larger_half(points), paper.TABLE1[kind]
        power, _ = fit(_sizes(half, "n"), counts[-len(half) :])
        lines.append({
            "layer": kind,
            "complexity": expected.sequential,
            **{f"n = {length}": count for length, count in zip(lengths, counts, strict=True)},
            "paper": expected.sequential_power,
            "fitted": power,
            "path": expected.path,
        })  # fmt: skip
    columns = [
        tables.Column("layer"),
        tables.Column("complexity"),
        *(tables.Column(f"n = {length}", form="d") for length in lengths),
        tables.Column("paper", form="d"),
        tables.Column("fitted", form=".2f"),
        tables.Column("maximum path (paper)", "path"),
    ]
    title = "Sequential operations of the compiled program, and their exponent of n"
    return tables.Table(pd.DataFrame(lines), columns, title)


def _png(sweeps: Mapping[str, ByKind], machine: str) -> bytes:
    """Draws time against n, time against d, and memory against n, as a PNG.

    Dotted lines have the exponents of the paper.
    """
    figure = matplotlib.figure.Figure(figsize=(15, 5.6), layout="constrained")
    panels = figure.subplots(1, 3)
    for panel, (what, axis) in zip(panels, _PANELS, strict=True):
        is_time = what == "Time"
        other = "d" if axis == "n" else "n"
        for (kind, points), (colour, mark) in zip(sweeps[axis].items(), _LOOKS, strict=True):
            values = [1e3 * p.seconds if is_time else p.memory / 2**20 for p in points]
            panel.plot(_sizes(points, axis), values, color=colour, marker=mark, label=kind)
            if is_time:
                power = paper.TABLE1[kind].powers[axis]
                sizes = _sizes(_larger_half(points), axis)
                slope = [values[-1] * (size / sizes[-1]) ** power for size in sizes]
                panel.plot(sizes, slope, color=colour, linestyle=":")
        points = next(iter(sweeps[axis].values()))
        panel.set(
            xscale="log", yscale="log", title=f"{what} against {FIELDS[axis]} {axis}",
            xlabel=f"{FIELDS[axis]} {axis}, at {other} = {_sizes(points, other)[0]}",
            ylabel="milliseconds a call" if is_time else "MiB, result and temporary",
        )  # fmt: skip
        panel.set_xticks(_sizes(points, axis), list(map(str, _sizes(points, axis))))
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    dotted = "Dotted: the paper's exponent, through the largest size."
    figure.suptitle(f"One layer, forward. {machine}. {dotted}", fontsize=10)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def _notes(sizes: layer_kinds.Sizes, repeats: int, machine: str) -> list[str]:
    return [
        f"Measured on {machine}: one layer, forward, float32, batch {sizes.batch}, kernel "
        f"k = {sizes.kernel}, neighbourhood r = {sizes.neighbourhood} to each side; medians of "
        f"{repeats} interleaved calls. Exponents: least squares on logarithms over the larger half "
        "of the sizes.",
        "Attention is counted as the paper counts it: one head of d_k = d_v = d, whose queries, "
        "keys and values are given.",
        "Operations: matrix products, counted before compilation. They leave out the softmax, "
        "whose work is n² whatever d is: attention's time grows like d only where d is large. "
        "Memory: the result and the compiler's temporary arrays; what a library call sets aside "
        "for itself is not in it.",
        "Sequential operations: the longest chain of dependent instructions, a loop's body as "
        "often as it turns, moves of data left out; a matrix product or a sum counts one (the "
        "compiler makes two of some). The maximum path is the paper's, not measured.",
    ]
