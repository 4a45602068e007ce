"""What translating is timed on: a trained run, sentences of it, and how long translations get.

All search with beam 4 and alpha 0.6, the length penalty being length^alpha.
"""

import pathlib
from collections.abc import Callable, Sequence

from experiments.benchmarks import worker
from transformer_jax.decoding import translator
from transformer_jax.runs import run_folder

BATCH = 32  # sentences decoded together
FORCED_SOURCE, FORCED_LENGTH = 16, 48  # tokens, each with its end token, where ends are forced
FORCED_SENTENCES = 2 * BATCH  # of them, so that two workers have a batch each


def load(run: str, sentences: str, forced: bool) -> tuple[translator.Translator, list[list[int]]]:
    """A trained run, and tokens, without end tokens, of sentences in a file, one a line.

    Where each translation is forced to have `FORCED_LENGTH` tokens, whatever the model says, all
    sources are cut to the same length.
    """
    loaded = run_folder.load(pathlib.Path(run))
    lines = pathlib.Path(sentences).read_text(encoding="utf-8").splitlines()
    sources = [tokens for tokens in loaded.tokenizer.encode(lines) if tokens]
    if not forced:
        return loaded, sources
    length = FORCED_SOURCE - 1
    long = [tokens[:length] for tokens in sources if len(tokens) >= length]
    return loaded, long[:FORCED_SENTENCES]


def translating(translate: Callable[[], Sequence[Sequence[int]]]) -> worker.Contender:
    """Translates all sentences at every step, into tokens without end tokens."""
    translations = translate()
    says = {"translations": translations, "sentences": len(translations)}
    return worker.Contender(translate, says)
