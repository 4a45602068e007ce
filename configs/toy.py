"""The embedded grammar on a laptop: all 20 rows of Table 3 in about 24 minutes on two cores.

python -m transformer_jax.train --config=configs/toy.py --workdir=runs/toy-base
"""

import ml_collections

from configs import base


def get_config() -> ml_collections.ConfigDict:
    """Returns the toy base, which Table 3 varies as it varies the paper's."""
    config = base.get_config()
    config.model.num_layers = 3
    config.model.d_model = 128
    config.model.d_ff = 256
    config.model.d_k = 16
    config.model.d_v = 16
    config.model.max_positions = 256

    config.train.num_steps = 1250
    config.train.warmup_steps = 500
    config.train.learning_rate_scale = 0.5
    config.train.batch_tokens = 400

    config.data.corpus = "toy"
    config.data.toy_pairs = 24_000
    config.data.toy_held_out_pairs = 500
    config.data.vocab_size = 800
    config.data.source_length = 34
    config.data.target_length = 40

    config.decode.batch_sentences = 32
    config.decode.extra_tokens = 15

    config.checkpoint.every = 625
    config.log.every = 100
    config.log.dev_every = 0
    config.log.bucket_tokens = 6
    return config
