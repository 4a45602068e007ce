"""Table 3 on mini-WMT for a laptop, with a quarter of the paper's width; see configs/mini_wmt.py.

python -m experiments.table3 --config=configs/mini_wmt_cpu.py --workdir=runs/mini-cpu \
      --rows='base,A h=1,C N=2,C d_ff=1024,D P_drop=0.0,E' --seeds=2 …
"""

import ml_collections

from configs import mini_wmt


def get_config() -> ml_collections.ConfigDict:
    """Returns the config of the base model with a quarter of the paper's d_model, on mini-WMT."""
    config = mini_wmt.get_config()
    config.model.num_layers = 3
    config.model.d_model = 128
    config.model.d_ff = 512
    config.model.d_k = 16
    config.model.d_v = 16
    config.model.compute_dtype = "float32"

    config.train.num_steps = 1200
    config.train.warmup_steps = 400
    config.train.batch_tokens = 2048

    config.decode.batch_sentences = 64
    return config
