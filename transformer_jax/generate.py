"""Samples continuations of a text from a trained language model, one per line.

python -m transformer_jax.generate --workdir=runs/lm --prompt="Ein Hund" --method=nucleus

A language model is a run without a source language. To train one on the text files of the target
language, give --config.data.corpus=text --config.data.source_language="".
"""

import sys

from absl import flags

from transformer_jax import flags as flags_lib
from transformer_jax.decoding import sampling
from transformer_jax.runs import run_folder

_WORKDIR = flags_lib.define_required("workdir", "The run's folder.")
_PROMPT = flags.DEFINE_string("prompt", "", "Beginning of every text.")
_METHOD = flags.DEFINE_string(
    "method", "nucleus", f"Sampling method: {', '.join(sampling.METHODS)}."
)
_TEMPERATURE = flags.DEFINE_float(
    "temperature",
    1.0,
    "Divisor of the logits: below 1, likely tokens become likelier.",
    lower_bound=1e-3,
)
_TOP_K = flags.DEFINE_integer("top_k", 40, "top_k: number of candidate tokens.", lower_bound=1)
_TOP_P = flags.DEFINE_float(
    "top_p",
    0.95,
    "nucleus: total probability of the candidate tokens.",
    lower_bound=0,
    upper_bound=1,
)
_SEED = flags.DEFINE_integer(
    "seed", 0, "Seed of the sampling.", lower_bound=0, upper_bound=2**32 - 1
)
_NUMBER = flags.DEFINE_integer("number", 10, "Number of texts.", lower_bound=1)
_TOKENS = flags.DEFINE_integer("tokens", 100, "Most tokens of a text, EOS included.", lower_bound=1)


def main() -> None:
    """Prints the sampled texts, one per line."""
    settings = sampling.Drawing(_METHOD.value, _TEMPERATURE.value, _TOP_K.value, _TOP_P.value)
    run = run_folder.load(_WORKDIR.value)
    texts = sampling.texts(run, _PROMPT.value, _NUMBER.value, _TOKENS.value, settings, _SEED.value)
    lines = [text.replace("\n", " ") for text in texts]
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    flags_lib.run(main)
