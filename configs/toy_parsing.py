"""Table 4 on the embedded grammar: constituency parsing on a laptop with two cores.

  python -m experiments.table4 --config=configs/toy_parsing.py --workdir=runs/toy-parsing

The model reads a sentence of the toy corpus and writes the sentence's tree. Development and test
sentences have combinations of words that no training sentence has. Its F1 is 99.6
(docs/results/parsing.md). The paper's parser is configs/wsj.py.
"""

import ml_collections

from configs import toy


def get_config() -> ml_collections.ConfigDict:
    """Returns the config of the row Transformer of Table 4, for trees of the embedded grammar."""
    config = toy.get_config()
    config.model.num_layers = 2

    config.train.num_steps = 1000
    config.train.warmup_steps = 300
    config.train.batch_tokens = 1500

    config.data.corpus = "toy_parsing"
    config.data.target_language = "trees"
    config.data.toy_pairs = 20_000
    config.data.source_length = 40
    config.data.target_length = 80

    config.decode.alpha = 0.3
    config.decode.extra_tokens = 60

    config.evaluation.score_test = True
    config.evaluation.average_checkpoints = 5
    config.checkpoint.keep = 5
    config.checkpoint.every = 50
    config.log.dev_every = 250
    return config
