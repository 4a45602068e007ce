"""Draws the attention weights of a trained model for a sentence pair, as in the paper's appendix.

python -m transformer_jax.attention_maps --workdir=runs/one --source="The dog sleeps."

Writes encoder.png, decoder.png and cross.png, with a heat map for each layer and head, and prints
their paths. In decoder.png and cross.png, a row is labelled with the token that is predicted there;
the columns of decoder.png begin with BOS. For a decoder-only model, joint.png is written instead.
For a language model, give --target alone. For an encoder-only model, encoder.png shows the
attention within a text of one or two sentences (--source, --target).
"""

from absl import flags

from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.drawing import heat_maps
from transformer_jax.evaluation import attention_weights
from transformer_jax.runs import run_folder

_WORKDIR = flags_lib.define_required("workdir", "The run's folder.")
_SOURCE = flags.DEFINE_string("source", None, "Source sentence; none for a language model.")
_TARGET = flags.DEFINE_string("target", None, "Translation; by default the model's own.")
_TO = flags.DEFINE_string("to", "", "Language to translate into, as in translate.")
_OUTPUT = flags.DEFINE_string("output", None, "Output folder; by default WORKDIR/attention_maps.")


def main() -> None:
    """Writes the figures and prints their paths."""
    output = files.path(_OUTPUT.value or f"{_WORKDIR.value}/attention_maps")
    trained = run_folder.load_model(_WORKDIR.value)
    if translator := trained.translator():
        all_maps = attention_weights.collect(translator, _SOURCE.value, _TARGET.value, _TO.value)
    else:
        model, params, tokenizer, config = trained
        if _TO.value:
            raise errors.UserError(
                f"--to={_TO.value}: this model writes no sentences; leave it out"
            )
        sentences = [each for each in (_SOURCE.value, _TARGET.value) if each is not None]
        all_maps = attention_weights.of_text(model, params, tokenizer, config.model, sentences)
    for maps in all_maps:
        path = output / f"{maps.kind}.png"
        files.write(path, heat_maps.png(maps))
        print(path)


if __name__ == "__main__":
    flags_lib.run(main)
