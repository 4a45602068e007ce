"""How many ids a run knows: the tokenizer's, then tags of directions, then what an objective needs.

Extra ids are read, and an objective's said while it is trained on. They are no words: translations
have none, and perplexity of translations is over the tokenizer's ids alone.
"""

from transformer_jax import config as config_lib
from transformer_jax.data import directions, objectives

MULTIPLE = 8  # extra ids come in so many, that a tensor mesh can share out the embedding as before


def size(config: config_lib.Config) -> int:
    """Rows of the embedding: the tokenizer's ids, and those of tags and an objective, if any."""
    kind = objectives.KINDS.get(config.train.objective)
    needed = kind.extra_ids(objectives.longest_text(config)) if kind else 0
    needed += len(directions.tags(config.data))
    return config.data.vocab_size + MULTIPLE * -(-needed // MULTIPLE)
