"""Icelandic constituency parsing on a laptop, with the gold trees of GreynirCorpus.

python -m experiments.table4 --config=configs/greynir.py --workdir=runs/greynir --seeds=3 \
      --config.data.train='PATH/dev_4500.psd[~::9]' --config.data.dev='PATH/dev_4500.psd[::9]' \
      --config.data.test=PATH/test_500.psd

The model is small enough to train on one CPU core. The values below were chosen with the row
Transformer only, on the development trees and with seed 0. Depth, learning rate and dropout were
chosen by perplexity after up to 2,500 steps, and data.tree_terminals by F1. Training takes
thousands of steps, since the parser has to learn to count the words of the sentence.
"""

import ml_collections

from configs import wsj


def get_config() -> ml_collections.ConfigDict:
    """Returns the config of the paper's parser with 1/8 of its d_model and half of its layers."""
    config = wsj.get_config()
    config.model.num_layers = 2
    config.model.d_model = 128
    config.model.d_ff = 512
    config.model.d_k = 16
    config.model.d_v = 16

    config.train.num_steps = 6000
    config.train.warmup_steps = 1000
    config.train.learning_rate_scale = 0.5
    config.train.batch_tokens = 1536

    config.data.source_language = "is"
    config.data.tree_terminals = "pos"
    config.data.vocab_size = 2000
    config.data.source_length = 128
    config.data.target_length = 256

    config.decode.beam_size = 4
    config.decode.batch_sentences = 32

    config.evaluation.average_checkpoints = 5
    config.checkpoint.keep = 5
    config.checkpoint.every = 200
    config.log.dev_every = 500
    return config
