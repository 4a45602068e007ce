"""The paper's big model (Table 3, last row): the base model with other sizes, dropout and steps.

  python -m transformer_jax.train --config=configs/big.py --workdir=runs/big

The paper reports 26.4 BLEU on newstest2013, after 300,000 steps.
"""

import ml_collections

from configs import base


def get_config() -> ml_collections.ConfigDict:
    """Returns the configuration of the paper's big model."""
    config = base.get_config()
    config.model.d_model = 1024
    config.model.d_ff = 4096
    config.model.num_heads = 16
    config.model.dropout_rate = 0.3
    config.train.num_steps = 300_000
    return config
