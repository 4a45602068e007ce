r"""Runs a sweep whose rows are defined in a Python file, and compares each row with --config.

  python -m experiments.run_sweep --sweep=configs/sweeps/warmup_smoothing.py \
      --config=configs/toy.py --workdir=runs/warmup --seeds=2

The file defines GRID or ZIP, which map fields to lists of values, or ROWS, which maps the names of
rows to overrides; see `experiments.sweep.rows.read`. The table has the name of the file, such as
warmup_smoothing.
"""

import re

from experiments.scheduling import runner
from experiments.sweep import rows, store, table
from transformer_jax import errors, files
from transformer_jax import flags as flags_lib

_SWEEP = flags_lib.define_required("sweep", "Python file that has GRID, ZIP or ROWS.")


def main() -> int:
    """Runs the sweep of the file in --sweep; returns the exit code."""
    path = files.expanded(_SWEEP.value)
    if not re.fullmatch(r"\w+", path.stem):
        raise errors.UserError(
            f"--sweep={path}: the table is called as the file: use letters, digits and _ alone"
        )
    if path.stem in (*table.names(), *store.RESERVED_TABLES):
        raise errors.UserError(
            f"--sweep={path}: {path.stem} is another table's name: rename the file"
        )
    described = rows.run(path)
    own = table.Table(path.stem, path.stem, lambda base: rows.read(path, described, base))
    return runner.main(own)


if __name__ == "__main__":
    flags_lib.run(main)
