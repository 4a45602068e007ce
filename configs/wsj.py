"""The paper's parser (Table 4) on the Wall Street Journal of the Penn Treebank.

  python -m experiments.table4 --config=configs/wsj.py --workdir=runs/wsj \
      --config.data.train='WSJ/0[2-9]/*.mrg,WSJ/1?/*.mrg,WSJ/2[01]/*.mrg' \
      --config.data.dev='WSJ/22/*.mrg' --config.data.test='WSJ/23/*.mrg'

The treebank is licensed and is not downloaded: give the paths of your own copy. The model has 4
layers, d_model 1024, and heads of size d_model / h. The vocabulary has 16K tokens for training on
WSJ only. It has 32K tokens for semi-supervised training, which adds trees of another parser.
The paper reports 91.3 F1 for training on WSJ only and 92.7 F1 for semi-supervised training. It does
not report the number of steps.
"""

import ml_collections

from configs import base


def get_config() -> ml_collections.ConfigDict:
    """Returns the config of the paper's parser, the row Transformer of Table 4."""
    config = base.get_config()
    config.model.num_layers = 4
    config.model.d_model = 1024
    config.model.d_k = 128
    config.model.d_v = 128

    config.data.corpus = "trees"
    config.data.target_language = "trees"
    config.data.vocab_size = 16_000
    config.data.target_length = 512

    config.decode.beam_size = 21
    config.decode.alpha = 0.3
    config.decode.extra_tokens = 300

    config.evaluation.score_test = True
    return config
