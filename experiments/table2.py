"""Table 2 of the paper: the base and big models for English–German and English–French.

  python -m experiments.table2 --config=configs/base.py --workdir=runs/table2 --cache_dir=cache
  python -m experiments.table2 --config=configs/base.py --workdir=runs/x --dry_run --device=v5e-8

The command runs the rows that have no result yet, and prints their scores on newstest2014 beside
the paper's. The last 5 checkpoints of a base model, and the last 20 checkpoints of a big
model, are averaged. The paper wrote a checkpoint every ten minutes. At the paper's speeds, this is
every 1,500 steps of the base model and every 600 steps of the big model.
"""

from typing import Any

from experiments import table3
from experiments.results import table2 as report
from experiments.sweep import table
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax import flags as flags_lib

_AVERAGED = {
    size: {
        "evaluation.average_checkpoints": checkpoints,
        "checkpoint.keep": checkpoints,
        "checkpoint.every": every,
        "evaluation.score_test": True,
    }
    for size, checkpoints, every in (("base", 5, 1500), ("big", 20, 600))
}
_FRENCH = {
    "data.tfds_name": "wmt14_translate/fr-en",
    "data.target_language": "fr",
    "data.vocab_size": 32_000,
}


def rows_for(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """Returns the overrides of the four rows.

    Args:
      base: the configuration that the rows change. It has to be for WMT14 English–German.

    Raises:
      UserError: base has another corpus or another target language.
    """
    if (base.data.corpus, base.data.target_language) != ("tfds", "de"):
        raise errors.UserError(
            "Table 2 is WMT's: give a base with data.corpus=tfds and data.target_language=de, such "
            "as configs/base.py"
        )
    big = table3.rows_for(base)["big"]
    return {
        "base EN-DE": _AVERAGED["base"],
        "big EN-DE": {**big, **_AVERAGED["big"]},
        "base EN-FR": {**_FRENCH, **_AVERAGED["base"]},
        "big EN-FR": {**big, **_FRENCH, **_AVERAGED["big"], "model.dropout_rate": 0.1},
    }


TABLE = table.Table(
    "table2",
    "Table 2",
    rows_for,
    corpus=lambda row: row.split()[-1],
    document=report.document,
)

if __name__ == "__main__":
    from experiments.scheduling import runner  # defines the flags of a command

    flags_lib.run(lambda: runner.main(TABLE))
