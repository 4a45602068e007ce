"""Shows where a trained model attends, for one sentence pair, as the paper's appendix does.

python -m transformer_jax.attention_maps --workdir=runs/one --source="The dog sleeps."

Writes encoder.png, decoder.png and cross.png, a heat map for each layer and head, and prints their
paths. In the decoder a row is named by the token being written there; the tokens that it reads
begin with BOS. A decoder-only model has joint.png in their place. A language model takes --target
alone. For an encoder-only model, encoder.png shows how it reads the one or two sentences given.
"""

from absl import flags

from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.drawing import heat_maps
from transformer_jax.evaluation import attention_weights
from transformer_jax.runs import run_folder

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
_SOURCE = flags.DEFINE_string("source", None, "A sentence; of a language model, none.")
_TARGET = flags.DEFINE_string("target", None, "Its translation; by default the model's own.")
_TO = flags.DEFINE_string("to", "", "Language to translate into, as of transformer_jax.translate.")
_OUTPUT = flags.DEFINE_string("output", None, "Where to write; by default WORKDIR/attention_maps.")


def main() -> None:
    """Writes the figures and prints their paths, one a line."""
    output = files.path(_OUTPUT.value or f"{_WORKDIR.value}/attention_maps")
    trained = run_folder.load_model(_WORKDIR.value)
    if translator := trained.ready():
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
