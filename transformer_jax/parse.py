"""Parses standard input, one sentence per line, into bracketed trees, one per line.

  python -m transformer_jax.parse --workdir=runs/one < sentences.txt > parsed.mrg

Words are separated by spaces. Malformed trees of the model are repaired, and their number is
printed to standard error. For semi-supervised training, the trees of unlabelled text can be added
to the training set: --config.data.parsed=parsed.mrg.
"""

import sys

from transformer_jax import errors
from transformer_jax import flags as flags_lib
from transformer_jax.data import text, treebank, trees
from transformer_jax.runs import run_folder

_WORKDIR = flags_lib.define_required("workdir", "The run's folder.")


def main() -> None:
    """Parses all lines of standard input and writes their trees in order."""
    translator = run_folder.load(_WORKDIR.value)
    if (corpus := translator.config.data.corpus) not in treebank.CORPORA:
        raise errors.UserError(
            f"{_WORKDIR.value} was trained on data.corpus={corpus}, which has no trees: name the "
            "folder of a parser, or use transformer_jax.translate"
        )
    sentences = [
        line.split() for line in text.decoded(flags_lib.standard_input(), "standard input")
    ]
    for number, words in enumerate(sentences, start=1):
        if not words:
            raise errors.UserError(f"standard input: line {number:,} has no words to parse")
    parses = translator.translate([" ".join(words) for words in sentences])
    malformed = 0
    for words, parse in zip(sentences, parses, strict=True):
        tree, is_whole = trees.from_linearised(parse, words)
        malformed += not is_whole
        sys.stdout.buffer.write(f"{trees.bracketed(tree)}\n".encode())
    print(f"{malformed:,} of {len(sentences):,} trees were repaired", file=sys.stderr)


if __name__ == "__main__":
    flags_lib.run(main)
