"""The embedded grammar on a laptop: all 20 rows of Table 3 on two cores.

python -m transformer_jax.train --config=configs/toy.py --workdir=runs/toy-base

That is base: 93.3 BLEU (development set, sacreBLEU).

A model of this kind stays on a plateau until it has found which word means which, and a table that
is made on the plateau compares who has left it. Sizes, rates, steps and corpus were chosen by the
learning curves of base and of the rows that are slow to leave it – whether they have left, how much
perplexity still changes in the last quarter – and by the time they take; never by what the table
then says. What helps: words that are one token each, some pairs of a few words, and no more pairs
than base meets about sixteen times, so that it is near its end when it ends.
"""

import ml_collections

from configs import base


def get_config() -> ml_collections.ConfigDict:
    """Returns the toy base, which Table 3 varies as it varies the paper's."""
    config = base.get_config()
    config.model.num_layers = 3
    config.model.d_model = 64
    config.model.d_ff = 144
    config.model.d_k = 8
    config.model.d_v = 8
    config.model.max_positions = 256

    config.train.num_steps = 2800
    config.train.warmup_steps = 800
    config.train.learning_rate_scale = 0.8
    config.train.batch_tokens = 300

    config.data.corpus = "toy"
    config.data.toy_pairs = 4_000
    config.data.toy_held_out_pairs = 500
    config.data.vocab_size = 1000
    config.data.source_length = 28
    config.data.target_length = 30

    config.decode.batch_sentences = 32
    config.decode.extra_tokens = 15

    config.checkpoint.every = 1400
    config.log.dev_every = 700
    config.log.bucket_tokens = 6
    return config
