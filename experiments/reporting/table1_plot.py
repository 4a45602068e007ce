"""The measured Table 1 as a picture: table1.png."""

import io
import pathlib
from collections.abc import Mapping, Sequence

import matplotlib.axes
import matplotlib.figure

from experiments.reporting import table1_page
from transformer_jax import files, paper

# Okabe and Ito's colours, which those who see few colours can tell apart, and a mark for each.
_LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#56B4E9", "v"))


def write(workdir: pathlib.Path, sweeps: Mapping[str, table1_page.ByKind], machine: str) -> None:
    """Draws time against n and d and memory against n, dotted lines having the paper's slopes.

    Args:
      workdir: the folder.
      sweeps: over the axes "n" and "d".
      machine: where and when they were measured.
    """
    figure = matplotlib.figure.Figure(figsize=(15, 5.6), layout="constrained")
    time_n, time_d, memory_n = figure.subplots(1, 3)
    for panel, axis in ((time_n, "n"), (time_d, "d")):
        values = {kind: [1e3 * p.seconds for p in ps] for kind, ps in sweeps[axis].items()}
        _draw(panel, axis, sweeps[axis], values)
        _add_slopes(panel, axis, sweeps[axis], values)
        panel.set(ylabel="milliseconds a call", title=f"Time against {table1_page.NAMES[axis]}")
    memory = {kind: [p.memory / 2**20 for p in ps] for kind, ps in sweeps["n"].items()}
    _draw(memory_n, "n", sweeps["n"], memory)
    memory_n.set(ylabel="MiB, result and temporary", title="Memory against length n")
    handles, labels = time_n.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    dotted = "Dotted: the paper's exponent, through the largest size."
    figure.suptitle(f"One layer, forward. {machine}. {dotted}", fontsize=10)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    files.write(workdir / "table1.png", content.getvalue())


def _draw(
    panel: matplotlib.axes.Axes,
    axis: str,
    sweep: table1_page.ByKind,
    values: Mapping[str, Sequence[float]],
) -> None:
    """One line a kind of layer, both scales logarithmic."""
    other = "d" if axis == "n" else "n"
    for (kind, points), (colour, mark) in zip(sweep.items(), _LOOKS, strict=True):
        panel.plot(_sizes(points, axis), values[kind], color=colour, marker=mark, label=kind)
    panel.set(xscale="log", yscale="log")
    points = next(iter(sweep.values()))
    sizes = _sizes(points, axis)
    panel.set_xticks(sizes, [str(size) for size in sizes])
    panel.minorticks_off()
    panel.set_xlabel(f"{table1_page.NAMES[axis]}, at {other} = {_sizes(points, other)[0]}")
    panel.grid(alpha=0.3)


def _add_slopes(
    panel: matplotlib.axes.Axes,
    axis: str,
    sweep: table1_page.ByKind,
    values: Mapping[str, Sequence[float]],
) -> None:
    for (kind, points), (colour, _) in zip(sweep.items(), _LOOKS, strict=True):
        if kind in paper.TABLE1:
            sizes = _sizes(table1_page.larger_half(points), axis)
            power = paper.TABLE1[kind].powers[axis]
            slope = [values[kind][-1] * (size / sizes[-1]) ** power for size in sizes]
            panel.plot(sizes, slope, color=colour, linestyle=":")


def _sizes(points: Sequence[table1_page.LayerCost], axis: str) -> list[int]:
    return [getattr(point.sizes, table1_page.FIELDS[axis]) for point in points]
