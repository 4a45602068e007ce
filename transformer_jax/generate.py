"""Goes on with a text, as a trained language model would: prints texts, one a line.

python -m transformer_jax.generate --workdir=runs/lm --prompt="Ein Hund" --method=nucleus

The run is one that was trained on text alone: --config.data.corpus=text
--config.data.source_language="" reads the target language's files and nothing else.
"""

import sys

from absl import flags

from transformer_jax import flags as flags_lib
from transformer_jax.decoding import sampling
from transformer_jax.runs import run_folder

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
_PROMPT = flags.DEFINE_string("prompt", "", "What every text begins with.")
_METHOD = flags.DEFINE_string(
    "method", "nucleus", f"Which tokens may be drawn: {', '.join(sampling.METHODS)}."
)
_TEMPERATURE = flags.DEFINE_float(
    "temperature", 1.0, "Below 1 likely tokens become likelier.", lower_bound=1e-3
)
_TOP_K = flags.DEFINE_integer("top_k", 40, "top_k: the likeliest so many.", lower_bound=1)
_TOP_P = flags.DEFINE_float(
    "top_p", 0.95, "nucleus: the likeliest, this probable together.", lower_bound=0, upper_bound=1
)
_SEED = flags.DEFINE_integer("seed", 0, "Of what is drawn.", lower_bound=0, upper_bound=2**32 - 1)
_NUMBER = flags.DEFINE_integer("number", 10, "How many texts.", lower_bound=1)
_TOKENS = flags.DEFINE_integer("tokens", 100, "Of a text at most, its end included.", lower_bound=1)


def main() -> None:
    """Prints the texts."""
    settings = sampling.Drawing(_METHOD.value, _TEMPERATURE.value, _TOP_K.value, _TOP_P.value)
    run = run_folder.load(_WORKDIR.value)
    asked = (_PROMPT.value, _NUMBER.value, _TOKENS.value, settings, _SEED.value)
    lines = [text.replace("\n", " ") for text in sampling.texts(run, *asked)]
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    flags_lib.run(main)
