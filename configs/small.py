"""A small model for real sentences such as Multi30k, for training on a laptop with two CPU cores.

python -m transformer_jax.train --config=configs/small.py --workdir=runs/multi30k \
      --config.data.train=PATH/train --config.data.dev=PATH/val \
      --config.data.test=PATH/test_2016_flickr
"""

import ml_collections

from configs import base


def get_config() -> ml_collections.ConfigDict:
    """Returns the config of the base model with half the paper's d_model and half its layers."""
    config = base.get_config()
    config.model.num_layers = 3
    config.model.d_model = 256
    config.model.d_ff = 1024
    config.model.d_k = 32
    config.model.d_v = 32
    config.model.max_positions = 256

    config.train.num_steps = 4200
    config.train.warmup_steps = 800
    config.train.learning_rate_scale = 0.5
    config.train.batch_tokens = 2048

    config.data.corpus = "text"
    config.data.vocab_size = 6000
    config.data.source_length = 64
    config.data.target_length = 64

    config.checkpoint.every = 600
    config.log.every = 50
    config.log.dev_every = 600
    return config
