"""Table 3 on real sentences, for one large GPU: the paper's base model at half its width.

The training text of mini-WMT joins short sentences (Tatoeba), image captions (Multi30k) and older
news test sets of WMT. The development set is newstest2013, and the test set is newstest2014. You
give the files by path prefixes:

  python -m experiments.table3 --config=configs/mini_wmt.py --workdir=runs/mini \
      --config.data.train=tatoeba/train,multi30k/train,newstest/newstest2008,… \
      --config.data.dev=newstest/newstest2013 --config.data.test=newstest/newstest2014

The number of steps was chosen by the development perplexity of the row base. BLEU can be compared
between rows of this table, but not with the paper's BLEU.
"""

import ml_collections

from configs import base


def get_config() -> ml_collections.ConfigDict:
    """Returns the config of the base model with half the paper's d_model, on mini-WMT."""
    config = base.get_config()
    config.model.d_model = 256
    config.model.d_ff = 1024
    config.model.d_k = 32
    config.model.d_v = 32
    config.model.max_positions = 512
    config.model.compute_dtype = "bfloat16"

    config.train.num_steps = 5000
    config.train.warmup_steps = 1000
    config.train.learning_rate_scale = 0.5

    config.data.corpus = "text"
    config.data.vocab_size = 8000
    config.data.source_length = 128
    config.data.target_length = 128

    config.decode.batch_sentences = 256
    config.evaluation.score_test = True

    config.checkpoint.every = 500
    config.log.every = 50
    config.log.dev_every = 500
    return config
