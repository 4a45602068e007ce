"""A few rows of Table 3 on mini-WMT with the paper's sizes; see configs/mini_wmt.py.

python -m experiments.table3 --config=configs/mini_wmt_full.py --workdir=runs/mini-full \
      --rows='base,A h=1,C N=2,D P_drop=0.0' …
"""

import ml_collections

from configs import mini_wmt


def get_config() -> ml_collections.ConfigDict:
    """Returns the config of a model with the width of the paper's base model, on mini-WMT.

    The model has d_model=512, and is trained for 3,000 steps.
    """
    config = mini_wmt.get_config()
    config.model.d_model = 512
    config.model.d_ff = 2048
    config.model.d_k = 64
    config.model.d_v = 64
    config.train.num_steps = 3000
    config.train.warmup_steps = 800
    return config
