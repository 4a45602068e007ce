"""The paper's base model on WMT14 English–French (Table 2): 36 million pairs, 32,000 pieces.

python -m transformer_jax.train --config=configs/base_fr.py --workdir=runs/base_fr

The paper reports 38.1 BLEU on newstest2014, from the average of the last 5 checkpoints.
"""

import ml_collections

from configs import base


def get_config() -> ml_collections.ConfigDict:
    """Returns the configuration of the paper's base model for English–French."""
    config = base.get_config()
    to_french(config, averaged=5, every=1500)
    return config


def to_french(config: ml_collections.ConfigDict, averaged: int, every: int) -> None:
    """Changes a configuration to English–French data and to the evaluation of averaged checkpoints.

    Args:
      config: the configuration, which is changed.
      averaged: the number of checkpoints to average, the last ones of the run.
      every: the number of steps between checkpoints.
    """
    config.data.tfds_name = "wmt14_translate/fr-en"
    config.data.target_language = "fr"
    config.data.vocab_size = 32_000
    config.checkpoint.every = every
    config.checkpoint.keep = averaged
    config.evaluation.average_checkpoints = averaged
    config.evaluation.score_test = True
