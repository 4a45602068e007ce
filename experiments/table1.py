"""Table 1 of the paper, measured: the cost of a layer by sequence length and by width.

  python -m experiments.table1 --workdir=runs/table1
  python -m experiments.table1 --workdir=runs/long --lengths=1024,4096,16384 --neighbourhood=128

The command times the forward pass of one layer of each kind, fits the exponents of length and width
in its time, and writes table1.md and table1.png. This takes one to three minutes on 2 CPU cores.
"""

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence

from absl import flags

from experiments.benchmarks import layer_kinds, measuring
from experiments.results import table1 as report
from transformer_jax import files
from transformer_jax import flags as flags_lib

_log = logging.getLogger("transformer_jax.table1")

SECONDS_BETWEEN_LINES = 10


def measure(
    axes: Mapping[str, Sequence[layer_kinds.Sizes]], repeats: int
) -> dict[str, report.ByKind]:
    """Measures every kind of layer at the sizes of each axis.

    A size that both axes have is measured once.

    Args:
      axes: the sizes along each axis, "n" and "d".
      repeats: the number of rounds. In each round, every layer is timed once.

    Returns:
      For each axis, the costs of each kind of layer.
    """
    sizes = list(dict.fromkeys(size for points in axes.values() for size in points))
    cases = [(kind, size) for kind in layer_kinds.KINDS for size in sizes]
    last_line = 0.0

    def say(done: int, total: int, what: str) -> None:
        nonlocal last_line
        if done == total or time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            _log.info("%d of %d %s", done, total, what)

    programs = []
    for number, (kind, size) in enumerate(cases, start=1):
        programs.append(measuring.prepare(*layer_kinds.KINDS[kind](size)))
        say(number, len(cases), "layers compiled")
    samples = measuring.interleave(
        [measuring.sampler(each.run) for each in programs],
        repeats,
        lambda done: say(done, repeats, "rounds timed"),
    )
    found = {
        (kind, size): report.LayerCost(kind, size, seconds, program)
        for (kind, size), seconds, program in zip(cases, samples, programs, strict=True)
    }
    return {
        axis: {kind: [found[kind, size] for size in points] for kind in layer_kinds.KINDS}
        for axis, points in axes.items()
    }


def _main() -> None:
    workdir = files.local_path(_WORKDIR.value)
    lengths = flags_lib.sizes("lengths", _LENGTHS.value)
    widths = flags_lib.sizes("widths", _WIDTHS.value)
    common = layer_kinds.Sizes(
        _BATCH.value, _AT_LENGTH.value, _AT_WIDTH.value, _KERNEL.value, _NEIGHBOURHOOD.value
    )
    axes = {
        "n": [dataclasses.replace(common, length=length) for length in lengths],
        "d": [dataclasses.replace(common, width=width) for width in widths],
    }
    files.make_folder(workdir, "the folder of the table")
    sweeps = measure(axes, _REPEATS.value)
    report.write(workdir, sweeps, measuring.describe_machine())
    _log.info("the table lies in %s", workdir / "table1.md")


if __name__ == "__main__":
    _WORKDIR = flags_lib.define_required("workdir", "Where the table is written.")
    _LENGTHS = flags.DEFINE_list(
        "lengths", "128,256,512,1024,2048,4096,8192", "n: lengths to measure, at --at_width."
    )
    _WIDTHS = flags.DEFINE_list(
        "widths", "32,64,128,256,512,1024,2048", "d: widths to measure, at --at_length."
    )
    _AT_WIDTH = flags.DEFINE_integer("at_width", 64, "d while n changes.", lower_bound=1)
    _AT_LENGTH = flags.DEFINE_integer("at_length", 512, "n while d changes.", lower_bound=1)
    _KERNEL = flags.DEFINE_integer("kernel", 3, "k: the convolution's kernel.", lower_bound=1)
    _NEIGHBOURHOOD = flags.DEFINE_integer(
        "neighbourhood",
        32,
        "r: positions that restricted self-attention sees to each side.",
        lower_bound=1,
    )
    _BATCH = flags.DEFINE_integer("batch", 1, "Sequences in a batch.", lower_bound=1)
    _REPEATS = flags.DEFINE_integer("repeats", 15, "Rounds of timing.", lower_bound=1)
    flags_lib.run(_main)
