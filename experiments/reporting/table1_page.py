"""The measured Table 1, its exponents fitted: terminal, table1.md and table1.png."""

import dataclasses
import io
import pathlib
import statistics
from collections.abc import Mapping, Sequence

import matplotlib.figure
import numpy as np

from experiments.benchmarks import layer_kinds, measuring
from transformer_jax import files, paper
from transformer_jax.drawing import tables

# Okabe and Ito's colours, which those who see few colours can tell apart, and a mark for each.
_LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"))
_PANELS = (("Time", "n"), ("Time", "d"), ("Memory", "n"))
FIELDS = {"n": "length", "d": "width"}


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """One kind of layer at one size, and the seconds a call by round."""

    kind: str
    sizes: layer_kinds.Sizes
    samples: Sequence[float]
    program: measuring.TimedProgram

    @property
    def seconds(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples)

    @property
    def memory(self) -> int:
        """Bytes of the result and of what the compiler sets aside on the way to it."""
        return self.program.temporary_bytes + self.program.output_bytes


ByKind = Mapping[str, Sequence[LayerCost]]  # by kind of layer, the sizes ascending


def write(workdir: pathlib.Path, sweeps: Mapping[str, ByKind], machine: str) -> None:
    """Writes and prints the table of both axes, "n" and "d", measured on a machine."""
    found = [_costs(axis, sweep) for axis, sweep in sweeps.items()] + [_sequential(sweeps["n"])]
    first = next(iter(sweeps["n"].values()))[0]
    notes = _notes(first.sizes, len(first.samples), machine)
    files.write(workdir / "table1.png", _png(sweeps, machine))
    plot = "![Time against n and d, memory against n](table1.png)"
    text = "# Table 1, measured\n\n" + tables.markdown(found, [plot, *notes])
    files.write(workdir / "table1.md", text.encode())
    tables.show(found, notes)


def fit(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The exponent p of values ≈ c · sizes^p by least squares on logarithms, and its R².

    R² is 1 where all values are equal: nothing is left to explain.
    """
    x, y = np.log(sizes), np.log(values)
    power, offset = np.polyfit(x, y, 1)
    total = np.square(y - y.mean()).sum()
    residual = np.square(y - (power * x + offset)).sum()
    return float(power), float(1 - residual / total) if total > 1e-12 else 1.0


def _larger_half(points: Sequence[LayerCost]) -> Sequence[LayerCost]:
    """What exponents are fitted to, two at least: at small sizes fixed costs hide them."""
    return points[-max(2, -(-len(points) // 2)) :]


def _sizes(points: Sequence[LayerCost], axis: str) -> list[int]:
    return [getattr(point.sizes, FIELDS[axis]) for point in points]


def _costs(axis: str, sweep: ByKind) -> tables.Printed:
    """Fitted exponents of one axis, and what its largest size takes."""
    lines = []
    for kind, points in sweep.items():
        half, expected = _larger_half(points), paper.TABLE1[kind]
        sizes, last = _sizes(half, axis), points[-1]
        flops, _ = fit(sizes, [point.program.flops for point in half])
        seconds, r2 = fit(sizes, [point.seconds for point in half])
        memory, _ = fit(sizes, [point.memory for point in half])
        most = (last.seconds * 1e3, last.memory / 2**20)
        lines.append([
            *(kind, expected.complexity, str(expected.powers[axis])),
            *(tables.signed(flops, ".2f"), tables.signed(seconds, ".2f")),
            *(f"{r2:.3f}", tables.signed(memory, ".2f")),
            *(f"{value:.3g}" if value < 1000 else f"{value:,.0f}" for value in most),
        ])  # fmt: skip
    points = next(iter(sweep.values()))
    low, *_, high = _sizes(_larger_half(points), axis)
    other = "d" if axis == "n" else "n"
    heads = ["layer", "complexity", "paper", "operations", "time", "R² of time", "memory"]
    return tables.Printed(
        [*heads, f"ms at {axis} = {high}", f"MiB at {axis} = {high}"],
        lines,
        f"Exponents of {FIELDS[axis]} {axis}, fitted from {axis} = {low} to {high} at "
        f"{other} = {_sizes(points, other)[0]}",
    )


def _sequential(sweep: ByKind) -> tables.Printed:
    """The longest chain of dependent instructions at each length."""
    lines = []
    for kind, points in sweep.items():
        counts = [point.program.sequential_operations for point in points]
        half, expected = _larger_half(points), paper.TABLE1[kind]
        power, _ = fit(_sizes(half, "n"), counts[-len(half) :])
        start = [kind, expected.sequential, *map(str, counts)]
        fitted = tables.signed(power, ".2f")
        lines.append([*start, str(expected.sequential_power), fitted, expected.path])
    lengths = [f"n = {length}" for length in _sizes(next(iter(sweep.values())), "n")]
    return tables.Printed(
        ["layer", "complexity", *lengths, "paper", "fitted", "maximum path (paper)"],
        lines,
        "Sequential operations of the compiled program, and their exponent of n",
    )


def _png(sweeps: Mapping[str, ByKind], machine: str) -> bytes:
    """Time against n and d and memory against n, dotted lines having the paper's slopes."""
    figure = matplotlib.figure.Figure(figsize=(15, 5.6), layout="constrained")
    panels = figure.subplots(1, 3)
    for panel, (what, axis) in zip(panels, _PANELS, strict=True):
        is_time, other = what == "Time", "d" if axis == "n" else "n"
        for (kind, points), (colour, mark) in zip(sweeps[axis].items(), _LOOKS, strict=True):
            values = [1e3 * p.seconds if is_time else p.memory / 2**20 for p in points]
            panel.plot(_sizes(points, axis), values, color=colour, marker=mark, label=kind)
            if is_time:
                power, sizes = paper.TABLE1[kind].powers[axis], _sizes(_larger_half(points), axis)
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
