"""Shows where a trained model attends, for one sentence pair, as the paper's appendix does.

python -m transformer_jax.attention_maps --workdir=runs/one --source="The dog sleeps."

Writes encoder.png, decoder.png and cross.png, a heat map for each layer and head, and
attention.html, the same to explore in a browser, and prints their paths. In the decoder a row is
named by the token being written there; the tokens that it reads begin with BOS. A decoder alone has
joint.png in their place. A language model is given a --target alone; of a model that writes no
sentences it shows how it reads the one or two that are given, as encoder.png.
"""

from absl import flags

from transformer_jax import errors, files
from transformer_jax import flags as flags_lib
from transformer_jax.drawing import heat_maps, html_pages
from transformer_jax.evaluation import attention_weights
from transformer_jax.runs import run_folder

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
_SOURCE = flags.DEFINE_string("source", None, "A sentence; of a language model, none.")
_TARGET = flags.DEFINE_string("target", None, "Its translation; by default the model's own.")
_TO = flags.DEFINE_string("to", "", "Language to translate into, as of transformer_jax.translate.")
_OUTPUT = flags.DEFINE_string("output", None, "Where to write; by default WORKDIR/attention_maps.")


def main() -> None:
    """Prints one path a line."""
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
    pictures = {f"{maps.kind}.png": heat_maps.png(maps) for maps in all_maps}
    page = html_pages.html(all_maps).encode()
    for name, content in {**pictures, "attention.html": page}.items():
        files.write(output / name, content)
        print(output / name)


if __name__ == "__main__":
    flags_lib.run(main)
