"""The toy grammar's English sentences with the trees that it derives them by, for parsing.

The sentences are those of the translation corpus, in its order and its sets, word for word; a mark
stands apart from the word before it, as treebanks have it:

  The cow chooses Paul .
  (S (NP (DT The) (NN cow)) (VP (VBZ chooses) (NP (NNP Paul))) (. .))
"""

from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import treebank
from transformer_jax.data.toy import generator


def load(
    pairs: int, held_out_pairs: int, seed: int, parsed: str, terminals: str
) -> corpus_lib.Corpus:
    """Sentences and linearised trees; development and test set have held_out_pairs each.

    The trees of parsed, paths as of a treebank, are trained on too.

    Raises:
      UserError: as `treebank.read`, or nothing is known to stand for words in this way.
    """
    train, held_out = generator.sentences(pairs, 2 * held_out_pairs, seed)
    chosen = (train, held_out[:held_out_pairs], held_out[held_out_pairs:])
    sets = {
        name: [sentence.tree for sentence in part]
        for name, part in zip(("train", "dev", "test"), chosen, strict=True)
    }
    further, records = treebank.read(parsed, "data.parsed")
    sets["train"] += further
    lengths = {name: len(part) for name, part in sets.items()}
    about = {"corpus": "toy_parsing", "pairs": lengths, "files": records}
    return treebank.as_corpus(sets, terminals, about)
