"""English constituency parsing (Table 4) with the trees of CRAFT, articles of biomedical journals.

python -m experiments.table4 --config=configs/craft.py --workdir=runs/craft \
      --rows='Transformer,recurrent with attention' \
      --config.data.train=PATH/train.mrg --config.data.dev=PATH/dev.mrg \
      --config.data.test=PATH/test.mrg
"""

import ml_collections

from configs import greynir


def get_config() -> ml_collections.ConfigDict:
    """Returns the config of the paper's parser with 1/8 of its d_model and half of its layers."""
    config = greynir.get_config()
    config.train.num_steps = 10000
    config.train.batch_tokens = 2048

    config.data.source_language = "en"
    config.data.vocab_size = 4000
    config.data.source_length = 160
    return config
