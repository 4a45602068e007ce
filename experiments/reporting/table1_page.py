"""The measured Table 1, its exponents fitted: terminal, table1.md and table1.csv."""

import dataclasses
import pathlib
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.benchmarks import layer_kinds, measuring
from transformer_jax import files, paper
from transformer_jax.drawing import tables

NAMES = {"n": "length n", "d": "width d"}
FIELDS = {"n": "length", "d": "width"}
# Beside the paper's rows, ours: the projections are part of the layer that the model has.
EXPECTED = paper.TABLE1 | {
    layer_kinds.PROJECTED: paper.LayerKind("O(n² d + n d²)", {"n": 2, "d": 2}, "O(1)", 0, "O(1)")
}


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """One kind of layer at one size.

    Attributes:
      kind: a name in `layer_kinds.KINDS`.
      sizes: of the layer and its input.
      samples: seconds a call, by round.
      program: the compiled layer.
    """

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
    """Writes and prints the table.

    Args:
      workdir: the folder.
      sweeps: over the axes "n" and "d".
      machine: where and when they were measured.
    """
    found = [_costs(axis, sweep) for axis, sweep in sweeps.items()] + [_sequential(sweeps["n"])]
    first = next(iter(sweeps["n"].values()))[0]
    notes = _notes(first.sizes, len(first.samples), machine)
    files.write(workdir / "table1.csv", _csv(sweeps, machine).encode())
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


def larger_half(points: Sequence[LayerCost]) -> Sequence[LayerCost]:
    """What exponents are fitted to, two at least: at small sizes fixed costs hide them."""
    return points[-max(2, -(-len(points) // 2)) :]


def _costs(axis: str, sweep: ByKind) -> tables.Printed:
    """Fitted exponents of one axis, and what its largest size takes."""
    lines = []
    for kind, points in sweep.items():
        half = larger_half(points)
        sizes = [getattr(point.sizes, FIELDS[axis]) for point in half]
        flops, _ = fit(sizes, [point.program.flops for point in half])
        seconds, explained = fit(sizes, [point.seconds for point in half])
        memory, _ = fit(sizes, [point.memory for point in half])
        expected = [EXPECTED[kind].complexity, str(EXPECTED[kind].powers[axis])]
        fitted = [f"{flops:.2f}", f"{seconds:.2f}", f"{explained:.3f}", f"{memory:.2f}"]
        most = map(_three_digits, (points[-1].seconds * 1e3, points[-1].memory / 2**20))
        lines.append([kind, *expected, *fitted, *most])
    points = next(iter(sweep.values()))
    low, high = (getattr(larger_half(points)[i].sizes, FIELDS[axis]) for i in (0, -1))
    other = "d" if axis == "n" else "n"
    heads = ["layer", "complexity", "paper", "operations", "time", "R² of time", "memory"]
    return tables.Printed(
        [*heads, f"ms at {axis} = {high}", f"MiB at {axis} = {high}"],
        lines,
        f"Exponents of {NAMES[axis]}, fitted from {axis} = {low} to {high} at "
        f"{other} = {getattr(points[0].sizes, FIELDS[other])}",
    )


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _sequential(sweep: ByKind) -> tables.Printed:
    """The longest chain of dependent instructions at each length."""
    lines = []
    for kind, points in sweep.items():
        counts = [point.program.sequential_operations for point in points]
        half = larger_half(points)
        power, _ = fit([p.sizes.length for p in half], counts[-len(half) :])
        fitted = f"{abs(power):.2f}" if abs(power) < 0.005 else f"{power:.2f}"  # no −0.00
        paper_says = EXPECTED[kind]
        start = [kind, paper_says.sequential, *map(str, counts)]
        lines.append([*start, str(paper_says.sequential_power), fitted, paper_says.path])
    lengths = [f"n = {point.sizes.length}" for point in next(iter(sweep.values()))]
    return tables.Printed(
        ["layer", "complexity", *lengths, "paper", "fitted", "maximum path (paper)"],
        lines,
        "Sequential operations of the compiled program, and their exponent of n",
    )


def _notes(sizes: layer_kinds.Sizes, repeats: int, machine: str) -> list[str]:
    return [
        f"Measured on {machine}: one layer, forward, float32, batch {sizes.batch}, kernel "
        f"k = {sizes.kernel}, neighbourhood r = {sizes.neighbourhood} to each side; medians of "
        f"{repeats} interleaved calls. Exponents: least squares on logarithms over the larger half "
        "of the sizes.",
        "Attention is counted as the paper counts it: one head of d_k = d_v = d, whose queries, "
        "keys and values are given. The row with projections is ours, also where it stands in the "
        "paper's columns: it adds the four d × d products of the layer.",
        "Operations: matrix products, counted before compilation. They leave out the softmax, "
        "whose work is n² whatever d is: attention's time grows like d only where d is large. "
        "Memory: the result and the compiler's temporary arrays; what a library call sets aside "
        "for itself is not in it.",
        "Sequential operations: the longest chain of dependent instructions, a loop's body as "
        "often as it turns, moves of data left out; a matrix product or a sum counts one (the "
        "compiler makes two of some). The maximum path is the paper's, not measured.",
    ]


def _csv(sweeps: Mapping[str, ByKind], machine: str) -> str:
    """One line a measurement, numbers unrounded, for other programs."""
    unique = {  # a size on both axes was measured once
        (point.kind, point.sizes): point
        for sweep in sweeps.values()
        for points in sweep.values()
        for point in points
    }
    lines = [
        {
            "layer": point.kind,
            **dataclasses.asdict(point.sizes),
            "median_seconds": point.seconds,
            "flops": point.program.flops,
            "temporary_bytes": point.program.temporary_bytes,
            "output_bytes": point.program.output_bytes,
            "sequential_operations": point.program.sequential_operations,
            "samples_seconds": " ".join(map(str, point.samples)),
            "measured_on": machine,
        }
        for point in unique.values()
    ]
    return tables.csv_of(lines[0], [line.values() for line in lines])
