"""Shows the runs of a sweep while they run.

python -m experiments.watch --workdir=runs/table3
"""

import contextlib
import time

import rich.console
import rich.live
from absl import flags

from experiments.running import handing_over
from experiments.sweep import progress
from transformer_jax import files
from transformer_jax import flags as flags_lib

SECONDS_BETWEEN_QUESTIONS = 30  # to an engine; the files are looked at more often


def main() -> None:
    """Shows a sweep until nothing is left to run, or once, where the output is no terminal."""
    workdir = files.local_path(_WORKDIR.value)
    engine, asked = handing_over.states(workdir), time.monotonic()
    cells = progress.read(workdir, engine)
    console = rich.console.Console()
    if console.is_terminal:
        # Ctrl-C is how one who has seen enough goes; what was seen last stays.
        with (
            contextlib.suppress(KeyboardInterrupt),
            rich.live.Live(console=console, auto_refresh=False, transient=True) as live,
        ):
            while True:
                live.update(progress.rendered(cells, console.height), refresh=True)
                if all(cell.state in progress.ENDED for cell in cells):
                    break
                time.sleep(_INTERVAL.value)
                if time.monotonic() - asked >= SECONDS_BETWEEN_QUESTIONS:
                    engine, asked = handing_over.states(workdir), time.monotonic()
                cells = progress.read(workdir, engine)
    progress.show(cells)


if __name__ == "__main__":
    _WORKDIR = flags.DEFINE_string("workdir", None, "The sweep's folder.", required=True)
    _INTERVAL = flags.DEFINE_float(
        "interval", 2.0, "Seconds between two looks at the files.", lower_bound=0.1
    )
    flags_lib.run(main)
