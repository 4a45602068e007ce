"""The recipes of toolkits for their "base" Transformers, compared with the paper's recipe.

  python -m experiments.eras --config=configs/base.py --workdir=runs/eras --dry_run

Each row changes the fields in which one toolkit's "base" differs from the paper: norm placement,
dropout, warm-up, learning rate, Adam, and length penalty. The warm-up and learning rate of --config
are multiplied by the ratio of the toolkit's value to the paper's value. The rows are therefore also
meaningful for a --config with fewer steps than the paper's.

The following differences are not reproduced: Marian's gradient clipping (norm 5) and smoothing of
parameters, tensor2tensor's label smoothing over the other V - 1 classes, other values of Adam's
epsilon than the paper's, the toolkits' batch sizes, and the biases of fairseq and Marian in the
projections of attention.
"""

import math
from typing import Any

from experiments.sweep import table
from transformer_jax import config as config_lib
from transformer_jax import flags as flags_lib
from transformer_jax import paper

PAPER_WARMUP = 4000


def _scale_for(peak: float, warmup: int) -> float:
    """Returns the train.learning_rate_scale with which the learning rate peaks at `peak`.

    Args:
      peak: the learning rate at the end of warm-up, for d_model=512.
      warmup: the number of warm-up steps.
    """
    return peak * math.sqrt(paper.BASE_SIZES["model.d_model"] * warmup)


_V2: dict[str, Any] = {
    "model.norm_placement": "pre",
    "model.attention_dropout_rate": 0.1,
    "model.feed_forward_dropout_rate": 0.1,
    "train.warmup_steps": 8000,
    "train.learning_rate_scale": 2.0,
}
# Warm-up and learning rate are those for the paper's base; `rows_for` scales them to other bases.
ROWS: dict[str, dict[str, Any]] = {
    "base": {},  # the paper
    "tensor2tensor v1": {},  # its code's transformer_base_v1: the same run again
    "tensor2tensor v2": _V2,
    "tensor2tensor v3": {**_V2, "train.adam_beta2": 0.997},
    # fairseq's transformer_wmt_en_de: --lr 0.0007 --warmup-updates 4000; --lenpen 0.6.
    "fairseq": {
        "train.warmup_steps": 4000,
        "train.learning_rate_scale": _scale_for(0.0007, 4000),
        "decode.penalty": "length",
    },
    # Marian's transformer example: --learn-rate 0.0003 --lr-warmup 16000; --normalize 0.6.
    "Marian": {
        "train.warmup_steps": 16_000,
        "train.learning_rate_scale": _scale_for(0.0003, 16_000),
        "decode.beam_size": 6,
        "decode.penalty": "length",
    },
}


def rows_for(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """Returns the overrides of each row, with warm-up and learning rate scaled to base."""
    rows = {row: dict(changes) for row, changes in ROWS.items()}
    for changes in rows.values():
        if "train.warmup_steps" in changes:
            times = changes["train.warmup_steps"] // PAPER_WARMUP
            changes["train.warmup_steps"] = times * base.train.warmup_steps
            changes["train.learning_rate_scale"] *= base.train.learning_rate_scale
    return rows


TABLE = table.Table("eras", "The toolkits' recipes", rows_for)

if __name__ == "__main__":
    from experiments.scheduling import runner  # defines the flags of a command

    flags_lib.run(lambda: runner.main(TABLE))
