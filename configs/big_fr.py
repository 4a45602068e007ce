"""The paper's big model on WMT14 English–French (Table 2), with dropout 0.1 instead of 0.3.

python -m transformer_jax.train --config=configs/big_fr.py --workdir=runs/big_fr

The paper reports 41.8 BLEU on newstest2014, from the average of the last 20 checkpoints.
"""

import ml_collections

from configs import base_fr, big


def get_config() -> ml_collections.ConfigDict:
    """Returns the configuration of the paper's big model for English–French."""
    config = big.get_config()
    base_fr.to_french(config, averaged=20, every=600)
    config.model.dropout_rate = 0.1
    return config
