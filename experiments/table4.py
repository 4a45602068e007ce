"""Table 4 of the paper: the Transformer as a constituency parser.

  python -m experiments.table4 --config=configs/toy_parsing.py --workdir=runs/parsing
  python -m experiments.table4 --config=configs/wsj.py --workdir=runs/wsj --dry_run

The command runs the rows that have no result yet, and prints the results beside the paper's. Rows
that the paper does not have show the effect of parts of the model: no positions, other numbers of
layers, and recurrent models with and without attention (Vinyals et al.). --parsed=PATHS names trees
that transformer_jax.parse has written for further text. It adds the row "semi-supervised", which
also trains on these trees, for the same number of steps as the other rows.
"""

from typing import Any

from absl import flags

from experiments.results import table4 as report
from experiments.sweep import table
from transformer_jax import config as config_lib
from transformer_jax import errors, paper
from transformer_jax import flags as flags_lib
from transformer_jax.data import treebank

_RECURRENT = {"model.architecture": "lstm", "model.position": "none"}
# Differences from the paper's parser. `rows_for` scales the depths to base's.
ROWS: dict[str, dict[str, Any]] = {
    "Transformer": {},
    "no positions": {"model.position": "none"},
    "N=2": {"model.num_layers": 2},
    "N=6": {"model.num_layers": 6},
    "recurrent with attention": {**_RECURRENT, "model.recurrent_attention": "additive"},
    "recurrent without attention": _RECURRENT,
}


def rows_for(base: config_lib.Config, parsed: str = "") -> dict[str, dict[str, Any]]:
    """Returns the overrides of each row, with the paper's numbers of layers scaled to base.

    Args:
      base: the configuration that the rows change.
      parsed: paths of trees that a model has written, for the row "semi-supervised"; "" for no such
        row.

    Raises:
      UserError: the base does not parse, or its depth cannot be scaled.
    """
    if base.data.corpus not in treebank.CORPORA:
        raise errors.UserError(
            f"Table 4 is of parsers: give a base with data.corpus={' or '.join(treebank.CORPORA)}, "
            "such as configs/toy_parsing.py"
        )
    rows = table.scaled_rows(ROWS, base, {"model.num_layers": paper.PARSING_LAYERS})
    if parsed:
        rows["semi-supervised"] = {"data.parsed": parsed}
    for changes in rows.values():
        if "model.architecture" in changes and base.model.attention_dropout_rate:
            changes["model.attention_dropout_rate"] = 0.0  # recurrent models have none
    return rows


TABLE = table.Table(
    "table4",
    "Table 4",
    lambda base: rows_for(base, flags.FLAGS.parsed),
    measure="f1",
    document=report.document,
)

if __name__ == "__main__":
    from experiments.scheduling import runner  # defines the flags of a command

    flags.DEFINE_string(
        "parsed", "", "Trees that a model wrote, for the semi-supervised row: paths."
    )
    flags_lib.run(lambda: runner.main(TABLE))
