"""The toy grammar's English sentences with the trees that it derives them by, for parsing.

The sentences are those of the translation corpus, in its order and its sets, word for word; a mark
stands apart from the word before it, as treebanks have it:

  The cow chooses Paul .
  (S (NP (DT The) (NN cow)) (VP (VBZ chooses) (NP (NNP Paul))) (. .))
"""

from transformer_jax import config as config_lib
from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import treebank
from transformer_jax.data.toy import generator


def load(config: config_lib.DataConfig) -> corpus_lib.Corpus:
    """Sentences and linearised trees; those of data.parsed, as of a treebank, are trained on too.

    Raises:
      UserError: as `generator.sets` and `treebank.read`, or nothing is known to stand for words in
        this way.
    """
    sets = {
        name: [sentence.tree for sentence in part] for name, part in generator.sets(config).items()
    }
    further, records = treebank.read(config.parsed, "data.parsed")
    sets["train"] += further
    lengths = {name: len(part) for name, part in sets.items()}
    about = {"corpus": "toy_parsing", "pairs": lengths, "files": records}
    return treebank.as_corpus(sets, config.tree_terminals, about)
