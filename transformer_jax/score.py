"""Scores translations against references with every BLEU variant and its signature.

python -m transformer_jax.score --references=test.de --hypotheses=out.de
"""

import re

from absl import flags

from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.data import text
from transformer_jax.evaluation import bleu

_REFERENCES = flags_lib.define_required("references", "File of references.")
_LANGUAGE = flags.DEFINE_string(
    "language", "de", "Language of both files; the paper's variant tokenises by it."
)
_HYPOTHESES = flags_lib.define_required("hypotheses", "File of translations.")


def main() -> None:
    """Prints the score and the signature of each BLEU variant, one variant per line."""
    if not re.fullmatch("[a-z]{2,3}", _LANGUAGE.value):  # Moses falls back to English
        raise errors.UserError(
            f"--language={_LANGUAGE.value} should be two or three small letters, as in de"
        )
    references = text.read_lines(files.expanded(_REFERENCES.value))
    hypotheses = text.read_lines(files.expanded(_HYPOTHESES.value))
    if len(references) != len(hypotheses):
        raise errors.UserError(
            f"{_REFERENCES.value} has {len(references):,} lines, but {_HYPOTHESES.value} has "
            f"{len(hypotheses):,}"
        )
    for name, variant in bleu.score(hypotheses, references, _LANGUAGE.value).items():
        print(f"{name:25} {variant['score']:6.2f}  {variant['signature']}")


if __name__ == "__main__":
    flags_lib.run(main)
