"""Parses standard input, one sentence a line, into trees in brackets, one a line.

  python -m transformer_jax.parse --workdir=runs/one < sentences.txt > parsed.mrg

A sentence's words are what stands between spaces. What the model writes and is no tree is repaired;
how many were is said on standard error. Trees for text without any are what a semi-supervised run
learns from besides: --config.data.parsed=parsed.mrg.
"""

import sys

from absl import flags

from transformer_jax import errors
from transformer_jax import flags as flags_lib
from transformer_jax.data import text, treebank, trees
from transformer_jax.runs import run_folder

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)


def main() -> None:
    """Reads all lines, parses them together, writes their trees in their order."""
    translator = run_folder.load(_WORKDIR.value)
    if (corpus := translator.config.data.corpus) not in treebank.CORPORA:
        raise errors.UserError(
            f"{_WORKDIR.value} was trained on data.corpus={corpus}, which has no trees: name the "
            "folder of a parser, or use transformer_jax.translate"
        )
    sentences = [line.split() for line in text.decoded(sys.stdin.buffer, "standard input")]
    for number, words in enumerate(sentences, start=1):
        if not words:
            raise errors.UserError(f"standard input: line {number:,} has no words to parse")
    parses = translator.translate([" ".join(words) for words in sentences])
    malformed = 0
    for words, found in zip(sentences, parses, strict=True):
        tree, is_whole = trees.from_linearised(found, words)
        malformed += not is_whole
        sys.stdout.buffer.write(f"{trees.bracketed(tree)}\n".encode())
    print(f"{malformed:,} of {len(sentences):,} trees were repaired", file=sys.stderr)


if __name__ == "__main__":
    flags_lib.run(main)
