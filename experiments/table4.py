"""Table 4 of the paper: the Transformer as a constituency parser.

  python -m experiments.table4 --config=configs/toy_parsing.py --workdir=runs/parsing
  python -m experiments.table4 --config=configs/wsj.py --workdir=runs/wsj --dry_run

Runs the rows that have no result yet, then prints them beside the paper's table. Further rows show
the effect of the Transformer's parts: a model without positions, models of other depths, and
recurrent models with and without attention (Vinyals et al.). --parsed=PATHS names trees that a
first model wrote for other text (transformer_jax.parse), and adds a row that also learns from
them, for as many steps.
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
    """Returns the rows, with depths scaled to base's.

    Args:
      base: the configuration that the rows change.
      parsed: paths of trees that a model wrote, which add the semi-supervised row.

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
