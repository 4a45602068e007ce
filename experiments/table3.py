"""Table 3 of the paper: the effect of each part of the Transformer.

  python -m experiments.table3 --config=configs/toy.py --workdir=runs/toy
  python -m experiments.table3 --config=configs/base.py --workdir=runs/base --dry_run
  python -m experiments.table3 --config=configs/toy.py --workdir=runs/toy --rows='base,A*' --seeds=3

The command runs the rows that have no result yet, and prints the table.
"""

from typing import Any

from experiments.results import table3 as report
from experiments.sweep import table
from transformer_jax import config as config_lib
from transformer_jax import flags as flags_lib
from transformer_jax import paper

# Differences from base, in the paper's order and with the paper's sizes.
ROWS: dict[str, dict[str, Any]] = {
    "base": {},
    "A h=1": {"model.num_heads": 1, "model.d_k": 512, "model.d_v": 512},
    "A h=4": {"model.num_heads": 4, "model.d_k": 128, "model.d_v": 128},
    "A h=16": {"model.num_heads": 16, "model.d_k": 32, "model.d_v": 32},
    "A h=32": {"model.num_heads": 32, "model.d_k": 16, "model.d_v": 16},
    "B d_k=16": {"model.d_k": 16},
    "B d_k=32": {"model.d_k": 32},
    "C N=2": {"model.num_layers": 2},
    "C N=4": {"model.num_layers": 4},
    "C N=8": {"model.num_layers": 8},
    "C d_model=256": {"model.d_model": 256, "model.d_k": 32, "model.d_v": 32},
    "C d_model=1024": {"model.d_model": 1024, "model.d_k": 128, "model.d_v": 128},
    "C d_ff=1024": {"model.d_ff": 1024},
    "C d_ff=4096": {"model.d_ff": 4096},
    "D P_drop=0.0": {"model.dropout_rate": 0.0},
    "D P_drop=0.2": {"model.dropout_rate": 0.2},
    "D eps_ls=0.0": {"train.label_smoothing": 0.0},
    "D eps_ls=0.2": {"train.label_smoothing": 0.2},
    "E": {"model.position": "learned"},
    "big": {
        "model.d_model": 1024,
        "model.d_ff": 4096,
        "model.num_heads": 16,
        "model.dropout_rate": 0.3,
        "train.num_steps": 300_000,
    },
}


def rows_for(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """Returns the overrides of each row, with the paper's sizes scaled to base's sizes."""
    return table.scaled_rows(ROWS, base)


TABLE = table.Table(
    "table3",
    "Table 3",
    rows_for,
    reported=paper.TABLE3,
    latex=report.latex,
)

if __name__ == "__main__":
    from experiments.scheduling import runner  # defines the flags of a command

    flags_lib.run(lambda: runner.main(TABLE))
