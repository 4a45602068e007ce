"""What translating is timed on: a trained run, sentences of it, and how long translations get."""

import dataclasses
import pathlib
from collections.abc import Sequence

from transformer_jax.decoding import translator
from transformer_jax.runs import run_folder

BATCH = 32  # sentences decoded together
FORCED_SOURCE, FORCED_LENGTH = 16, 48  # tokens, each with its end token, where ends are forced
FORCED_SENTENCES = 2 * BATCH  # of them, so that two workers have a batch each


@dataclasses.dataclass(frozen=True)
class Case:
    """Sentences to translate with beam 4 and alpha 0.6, the length penalty being length^alpha.

    Attributes:
      translator: the trained run.
      sources: token lists without end tokens.
      forced: whether every translation has `FORCED_LENGTH` tokens, whatever the model says.
    """

    translator: translator.Translator
    sources: Sequence[Sequence[int]]
    forced: bool


def load(run: str, sentences: Sequence[str], forced: bool) -> Case:
    """The case of a run.

    Args:
      run: its folder.
      sentences: in the source language.
      forced: see `Case`; then all sources are cut to the same length.
    """
    loaded = run_folder.load(pathlib.Path(run))
    sources = [tokens for tokens in loaded.tokenizer.encode(sentences) if tokens]
    if forced:
        length = FORCED_SOURCE - 1
        sources = [tokens[:length] for tokens in sources if len(tokens) >= length][
            :FORCED_SENTENCES
        ]
    return Case(loaded, sources, forced)


class DecodingContender:
    """Translates all sentences of a case at every step.

    Attributes:
      case: what is translated.
      translations: of each sentence, without its end token.
    """

    compile_seconds = 0.0

    def __init__(self, sentences: str, run: str, forced: bool) -> None:
        """Loads a trained run and sentences.

        Args:
          sentences: the path of a file of them, one a line.
          run: the trained run's folder.
          forced: whether translations have a fixed length.
        """
        lines = pathlib.Path(sentences).read_text(encoding="utf-8").splitlines()
        self.case = load(run, lines, forced)
        self.prepare()
        self.translations = self.translate()

    def prepare(self) -> None:
        """Makes what `translate` needs."""
        raise NotImplementedError

    def translate(self) -> list[list[int]]:
        """Translates all sentences."""
        raise NotImplementedError

    def run(self, steps: int) -> None:
        """Translates all sentences so many times."""
        for _ in range(steps):
            self.translate()

    def peak_bytes(self) -> int | None:
        """Not of interest."""
        return None
