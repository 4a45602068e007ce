"""Table 3 on a laptop, trained on image captions; sized for one CPU core per run.

python -m experiments.table3 --config=configs/multi30k.py --workdir=runs/multi30k --noise_floor=5 \
      --config.data.train=PATH/train --config.data.dev=PATH/val \
      --config.data.test=PATH/test_2016_flickr,PATH/test_2017_flickr,PATH/test_2017_mscoco

Steps and learning rate were chosen by base's development perplexity alone. On a CPU without
bfloat16 in hardware, add --config.model.compute_dtype=float32.
"""

import ml_collections

from configs import small


def get_config() -> ml_collections.ConfigDict:
    """Returns the base of Table 3 at half the width of configs/small.py."""
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
