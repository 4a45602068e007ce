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
from transformer_jax.data import text, trees
from transformer_jax.runs import run_folder

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)


def main() -> None:
    """Reads all lines, parses them together, writes their trees in their order."""
    translator = run_folder.load(_WORKDIR.value)
    sentences = list(text.decoded(sys.stdin.buffer, "standard input"))
    for number, sentence in enumerate(sentences, start=1):
        if not sentence.split():
            raise errors.UserError(f"standard input: line {number:,} has no words to parse")
    malformed = 0
    for sentence, found in zip(sentences, translator.translate(sentences), strict=True):
        tree, is_whole = trees.from_linearised(found, sentence.split())
        malformed += not is_whole
        sys.stdout.buffer.write(f"{trees.bracketed(tree)}\n".encode())
    print(f"{malformed:,} of {len(sentences):,} trees were repaired", file=sys.stderr)


if __name__ == "__main__":
    flags_lib.run(main)
