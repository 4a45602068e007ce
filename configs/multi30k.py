"""Table 3 on image captions (Multi30k), small enough to train each run on one CPU core.

python -m experiments.table3 --config=configs/multi30k.py --workdir=runs/multi30k --noise_floor=5 \
      --config.data.train=PATH/train --config.data.dev=PATH/val \
      --config.data.test=PATH/test_2016_flickr,PATH/test_2017_flickr,PATH/test_2017_mscoco

The number of steps and the learning rate were chosen by the development perplexity of the row base.
On a CPU without bfloat16 instructions, add --config.model.compute_dtype=float32.
"""

import ml_collections

from configs import small


def get_config() -> ml_collections.ConfigDict:
    """Returns the config of the row base, with half the d_model of configs/small.py."""
    config = small.get_config()
    config.model.d_model = 128
    config.model.d_ff = 512
    config.model.d_k = 16
    config.model.d_v = 16
    config.model.compute_dtype = "bfloat16"

    config.train.num_steps = 4000
    config.train.learning_rate_scale = 1.0

    config.evaluation.score_test = True

    config.checkpoint.every = 500
    config.log.dev_every = 500
    return config
