"""Translates standard input to standard output, one sentence per line.

python -m transformer_jax.translate --workdir=runs/one < test.en > test.de
"""

import sys

from absl import flags

from transformer_jax import flags as flags_lib
from transformer_jax.data import text
from transformer_jax.runs import run_folder

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)


def main() -> None:
    """Reads all lines, translates them together, writes them in their order."""
    translator = run_folder.load(_WORKDIR.value)
    sentences = list(text.decoded(sys.stdin.buffer, "standard input"))
    if not sentences:
        return

    def progress(done: int) -> None:
        print(f"\rtranslated {done:,} of {len(sentences):,}", end="", file=sys.stderr)

    translations = translator.translate(sentences, progress)
    print(file=sys.stderr)
    sys.stdout.buffer.write("".join(f"{line}\n" for line in translations).encode())


if __name__ == "__main__":
    flags_lib.run(main)
