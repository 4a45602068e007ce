"""Translates standard input to standard output, one sentence per line.

python -m transformer_jax.translate --workdir=runs/one < test.en > test.de
"""

import sys

from absl import flags

from transformer_jax import errors
from transformer_jax import flags as flags_lib
from transformer_jax.data import text
from transformer_jax.runs import run_folder

_TO = flags.DEFINE_string(
    "to", "", "Target language of a model of several directions; empty: its main direction's."
)
_WORKDIR = flags_lib.define_required("workdir", "The run's folder.")


def main() -> None:
    """Translates all lines of standard input and writes the translations in order."""
    translator = run_folder.load(_WORKDIR.value)
    if not translator.config.data.source_language:
        raise errors.UserError(
            f"{_WORKDIR.value} holds a language model, which has no source language: use "
            "python -m transformer_jax.generate"
        )
    translator.encode([], _TO.value)  # raises for an unknown language, before anything is read
    sentences = list(text.decoded(flags_lib.standard_input(), "standard input"))
    if not sentences:
        return

    def progress(done: int) -> None:
        print(f"\rtranslated {done:,} of {len(sentences):,}", end="", file=sys.stderr)

    translations = translator.translate(sentences, progress, _TO.value)
    print(file=sys.stderr)
    sys.stdout.buffer.write("".join(f"{line}\n" for line in translations).encode())


if __name__ == "__main__":
    flags_lib.run(main)
