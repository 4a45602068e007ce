"""Which tests are asked about a module's mutants."""

from collections.abc import Mapping, Sequence

_MODELS, _TRAINING = "transformer_jax/models/", "transformer_jax/training/"
_DECODING, _EVALUATION = "transformer_jax/decoding/", "transformer_jax/evaluation/"
_WHOLE = ("reference", "transformer[cached and window]", "transformer[not architecture]")
_OTHERS = ("recurrent", "transformer[cached and rnn]", "transformer[architecture]")
# Each module's tests, those that are quick and near it first; in brackets which of a file's.
COVER: Mapping[str, Sequence[str]] = {
    _MODELS + "__init__.py": (
        *("recurrent", "elmo[often]", "interface[section]", "interface"),
        *_OTHERS[1:],
    ),
    _MODELS + "attention.py": ("attention", *_WHOLE),
    _MODELS + "convolutional.py": (
        "convolutional",
        *("recurrent", "transformer[cached and conv]", "transformer[packing and conv]"),
        "transformer[architecture]",
    ),
    _MODELS + "decoder.py": ("decoder", "transformer[architecture]", "beam_search"),
    _MODELS + "dropout.py": ("transformer[dropout]", *_WHOLE),
    _MODELS + "elmo.py": ("elmo", "whole_texts"),
    _MODELS + "embedding.py": _WHOLE,
    _MODELS + "encoder.py": ("encoder", "whole_texts"),
    _MODELS + "hypotheses.py": ("hypotheses", "beam_search", "transformer"),
    _MODELS + "interface.py": ("interface",),
    _MODELS + "kernels.py": ("attention",),
    _MODELS + "layers.py": ("layers", *_WHOLE),
    _MODELS + "masks.py": ("attention", "hypotheses", *_WHOLE),
    _MODELS + "positions.py": ("positions", "reference", "transformer[position]"),
    _MODELS + "products.py": ("products", *_WHOLE),
    _MODELS + "recurrent.py": _OTHERS,
    _MODELS + "recurrent_attention.py": _OTHERS,
    _MODELS + "recurrent_cells.py": _OTHERS,
    _MODELS + "transformer.py": ("attention", *_WHOLE),
    _TRAINING + "checkpoint.py": ("checkpoint", "averaging", "bucket", "runs"),
    _TRAINING + "fitting.py": ("fitting", "memory"),
    _TRAINING + "loop.py": ("loop", "step", "sharding", "runs"),
    _TRAINING + "losses.py": ("losses", "distillation", "step", "decoder"),
    _TRAINING + "manifest.py": ("checkpoint", "bucket", "safety"),
    _TRAINING + "metrics.py": ("loop", "tracking", "bucket", "runs", "damaged_files"),
    _TRAINING + "step.py": ("optimizer", "step", "distillation", "sharding", "memory"),
    _TRAINING + "tensorboard.py": ("tracking", "runs"),
    _TRAINING + "tracking.py": ("tracking",),
    _DECODING + "beam_search.py": ("beam_search", "leaving"),
    _DECODING + "sampling.py": ("sampling", "language_model[generated]"),
    _DECODING + "translator.py": (
        "lengths",
        "attention_maps[written]",
        "translator",
        "odd_text",
        "runs",
    ),
    _EVALUATION + "attention_weights.py": ("attention_maps", "encoder"),
    _EVALUATION + "chrf.py": ("chrf",),
    _EVALUATION + "bleu.py": ("evaluation", "paper_bleu", "significance", "fuzz"),
    _EVALUATION + "evaluators.py": ("evaluation", "table4", "averaging", "runs"),
    _EVALUATION + "measures.py": (
        *("chrf", "evaluation[length]", "parseval[length]", "significance"),
        "table4",
    ),
    _EVALUATION + "parseval.py": ("parseval", "table4"),
    _EVALUATION + "whole_texts.py": ("whole_texts",),
    "experiments/analysis/intervals.py": ("noise_floor", "significance"),
    "experiments/analysis/noise_floor.py": ("noise_floor", "significance"),
    "experiments/analysis/ranks.py": ("significance[tau]", "agree"),
    "experiments/analysis/significance.py": ("significance", "noise_floor"),
}


def file_of(entry: str) -> str:
    """The file of an entry of COVER."""
    return f"tests/{entry.partition('[')[0]}_test.py"


def words_of(entry: str) -> str:
    """Which of the file's tests are meant, as pytest's -k wants it; if all, nothing."""
    return entry.rstrip("]").partition("[")[2]
