"""The size of a run's vocabulary.

The vocabulary consists of the tokenizer's ids, the tags of directions and the ids of the run's
objective, in this order. Translations contain only the tokenizer's ids, and perplexity is computed
over these ids.
"""

from transformer_jax import config as config_lib
from transformer_jax.data import directions, objectives

MULTIPLE = 8  # the number of extra ids is rounded up, so that a tensor mesh divides the embedding


def size(config: config_lib.Config) -> int:
    """Returns the number of rows of the embedding.

    Raises:
      UserError: the objective is unknown.
    """
    objective = objectives.of(config)
    extra = len(directions.tags(config.data))
    if objective is not None:
        extra += objective.extra_ids(objectives.longest_text(config))
    return config.data.vocab_size + MULTIPLE * -(-extra // MULTIPLE)
