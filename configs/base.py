"""The paper's base model and recipe (Vaswani et al. 2017, Table 3, first row).

`transformer_jax/config.py` lists all fields with their meanings. Their defaults are the paper's
values. Any field can be set on the command line: --config.model.d_k=16.

  python -m transformer_jax.prepare --config=configs/base.py --cache_dir=cache
  python -m transformer_jax.train --config=configs/base.py --workdir=runs/base --cache_dir=cache
  python -m experiments.table3 --config=configs/base.py --workdir=runs/table3 --cache_dir=cache

These commands download WMT14 English–German, train one run, and train all rows of Table 3. Add
--config.data.vocab_size=40960 for the paper's numbers of parameters. For your own text, give its
path prefixes:

  python -m transformer_jax.train --config=configs/base.py --workdir=runs/base \
      --config.data.corpus=text --config.data.train=PATH/train \
      --config.data.dev=PATH/newstest2013 --config.data.test=PATH/newstest2014
"""

import ml_collections

from transformer_jax import config as config_lib


def get_config() -> ml_collections.ConfigDict:
    """Returns a new copy of the paper's base configuration."""
    return ml_collections.ConfigDict(config_lib.to_dict(config_lib.DEFAULTS))
