"""Variations published after the paper, compared on one base under one recipe, as in Table 3.

  python -m experiments.variations --config=configs/toy.py --workdir=runs/more
  python -m experiments.variations --config=configs/toy.py --workdir=runs/more --rows='base,F*'
  python -m experiments.variations --config=configs/multi30k.py --workdir=runs/variations_multi30k \
      --claim_seeds=3 --reuse=experiments/published/multi30k --config.data.train=PATH/train …

The command runs the rows that have no result yet. It then prints the table, a table that tests
published claims on these results, and BLEU by length. Rows that a claim compares have at least
--claim_seeds runs each.

Grouped-query attention (Ainslie et al. 2023) and multi-query attention (Shazeer 2019) are used in
the self-attention of encoder and decoder, and in the cross-attention. d_ff is not increased to
compensate, so that these rows have fewer parameters than base; the table states the difference.
"""

import functools
import itertools
from typing import Any

from absl import flags

from experiments.results import claims, lengths
from experiments.sweep import table
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax import flags as flags_lib
from transformer_jax.models import positions

# Names of position kinds in the names of rows; other kinds are not renamed.
LABELS = {"t5": "T5 bias", "alibi": "ALiBi"}
POSITIONS = {LABELS.get(kind, kind): kind for kind in positions.KINDS}
NORMS = {"LayerNorm": "layer_norm", "RMSNorm": "rms_norm"}
CELLS = {"RNN": "rnn", "LSTM": "lstm", "GRU": "gru"}
WINDOWS = (2, 4, 8)  # positions to each side
VARIED = (
    "model.architecture",
    "model.attention_pattern",
    "model.position",
    "model.norm",
    "model.norm_placement",
    "model.feed_forward",
    "model.window",
    "data.train_max_tokens",
)
MULTIPLE = 8  # SwiGLU's d_ff is rounded to a multiple of it


def rows_for(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """Returns the overrides of each row, base first.

    Args:
      base: the configuration that the rows change.

    Raises:
      UserError: base changes a field that the rows vary, or has too few heads.
    """
    table.require_defaults(base, VARIED)
    return {"base": {}, **_parts(base), **_architectures(), **_lengths(base)}


def _parts(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """Returns rows F (positions), G (norms), H (attention) and I (feed-forward)."""
    model = base.model
    if model.num_heads % 4 or model.num_heads == 4:
        raise errors.UserError(
            "rows H need model.num_heads to be a multiple of 4 above 4, but it is "
            f"{model.num_heads}"
        )
    # SwiGLU has three matrices instead of two: two thirds of d_ff keep the parameters equal.
    d_ff = MULTIPLE * round(2 / 3 * model.d_ff / MULTIPLE)
    interleaved = {"model.window": WINDOWS[0], "model.attention_pattern": "interleaved"}
    return {
        **{
            f"F {name}": {"model.position": kind}
            for name, kind in POSITIONS.items()
            if kind != model.position
        },
        **{
            f"G {placement}-norm {name}": {"model.norm_placement": placement, "model.norm": norm}
            for placement in ("post", "pre")
            for name, norm in NORMS.items()
            if (placement, norm) != (model.norm_placement, model.norm)
        },
        "H grouped-query half": {"model.num_kv_heads": model.num_heads // 2},
        "H grouped-query quarter": {"model.num_kv_heads": model.num_heads // 4},
        "H multi-query": {"model.num_kv_heads": 1},
        **{f"H window={window}": {"model.window": window} for window in WINDOWS},
        f"H window={WINDOWS[0]} interleaved": interleaved,
        "I GELU": {"model.feed_forward": "gelu"},
        "I SwiGLU": {"model.feed_forward": "swiglu", "model.d_ff": d_ff},
    }


def _architectures() -> dict[str, dict[str, Any]]:
    """Returns rows J: recurrent models, which have no positions, and a convolutional model."""
    rows: dict[str, dict[str, Any]] = {}
    for name, cell in CELLS.items():
        recurrent = {"model.architecture": cell, "model.position": "none"}
        rows[f"J {name}"] = recurrent
        for attention in ("dot", "additive"):
            rows[f"J {name} {attention}"] = {**recurrent, "model.recurrent_attention": attention}
    return {**rows, "J ConvS2S": {"model.architecture": "conv"}}


def _lengths(base: config_lib.Config) -> dict[str, dict[str, Any]]:
    """Returns rows K: each position kind, trained on short sentences and scored on all lengths."""
    longest = base.data.target_length // 4
    return {
        f"K {name}": {"model.position": kind, "data.train_max_tokens": longest}
        for name, kind in POSITIONS.items()
    }


_BEST_BEYOND = ("K ALiBi", "K T5 bias", "K rotary", "K sinusoidal", "K learned")
CLAIMS = (
    claims.Claim(
        "no positions hurts",
        "Vaswani et al. 2017, section 3.5, an argument without a measurement",
        [claims.Inequality("base", "F none")],
    ),
    claims.Claim(
        "attention helps a recurrent model",
        "Bahdanau et al. 2015",
        [claims.Inequality("J GRU additive", "J GRU")],
    ),
    claims.Claim(
        "a recurrent model (here a GRU) without attention loses most on long sentences",
        "Cho et al. 2014, Bahdanau et al. 2015; that the Transformer loses less is our addition",
        [
            claims.Inequality("J GRU", other, claims.LOST_ON_LONG)
            for other in ("J GRU additive", "base")
        ],
    ),
    claims.Claim(
        "the Transformer translates better than a recurrent model with attention",
        "Vaswani et al. 2017, Table 2",
        [claims.Inequality("base", "J GRU additive")],
    ),
    claims.Claim(
        "beyond the trained length ALiBi ≥ T5 bias > rotary > sinusoidal > learned",
        "Press et al. 2022, of language models' perplexity, each trained far beyond the distances "
        "that T5's table tells apart; learned is our addition",
        [
            claims.Inequality(higher, lower, claims.BEYOND_TRAINING, strictly=higher != "K ALiBi")
            for higher, lower in itertools.pairwise(_BEST_BEYOND)
        ],
    ),
)
COMPARED = claims.compared_rows(CLAIMS)
NOTE = f"{claims.RULES} {claims.LOST_ON_LONG_NOTE} {claims.RECIPE}"

TABLE = table.Table(
    "variations",
    "Variations after the paper",
    rows_for,
    least_seeds=lambda row: flags.FLAGS.claim_seeds if row in COMPARED else 1,
    needed=COMPARED,
    sections=(functools.partial(claims.section, claims=CLAIMS, note=NOTE), lengths.section),
)

if __name__ == "__main__":
    from experiments.scheduling import runner  # defines the flags of a command

    flags.DEFINE_integer(
        "claim_seeds", 2, "Least runs of each row that a published claim compares.", lower_bound=1
    )
    flags_lib.run(lambda: runner.main(TABLE))
