"""What a trained model is worth on held-out pairs: perplexity, translations and BLEU."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from transformer_jax import files
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.decoding import translator as translator_lib
from transformer_jax.evaluation import bleu

_log = logging.getLogger(__name__)


class Measured(NamedTuple):
    """A model on a set: perplexity, translations, and the seconds that both took."""

    ppl: float
    hypotheses: list[str]
    seconds: float


def measure(
    pairs: dataset_lib.HeldOut,
    translator: translator_lib.Translator,
    perplexity: Callable[[Any], float],
) -> Measured:
    """Measures a model on a set; where several processes share it out, each gets the whole.

    Args:
      pairs: the set.
      translator: the model, with its parameters.
      perplexity: of these pairs, from parameters.
    """
    started = time.monotonic()
    ppl = perplexity(translator.params)
    hypotheses = translator.translate_ids(pairs.source_ids, _log_decoding(len(pairs)))
    return Measured(ppl, hypotheses, time.monotonic() - started)


def score(
    name: str,
    pairs: dataset_lib.HeldOut,
    measured: Measured,
    language: str,
    workdir: files.Path,
) -> dict[str, Any]:
    """Scores what was measured, and leaves there what it was measured by.

    Writes sources.txt, hypotheses.txt, references.txt and, for tests of significance,
    bleu_counts.json: what `bleu.counts` gives for the variants that tables compare.

    Args:
      name: of the set; the files of another than the development set begin with it.
      pairs: the set.
      measured: on it.
      language: of the translations.
      workdir: the run's folder.

    Returns:
      `ppl`, `bleu` by variant, and `eval_seconds`.
    """
    prefix = "" if name == "dev" else f"{name}_"
    hypotheses = measured.hypotheses
    files.write_lines(workdir / f"{prefix}sources.txt", pairs.source)
    files.write_lines(workdir / f"{prefix}hypotheses.txt", hypotheses)
    files.write_lines(workdir / f"{prefix}references.txt", pairs.target)
    files.write_json(
        workdir / f"{prefix}bleu_counts.json",
        {
            variant: bleu.counts(hypotheses, pairs.target, language, variant).tolist()
            for variant in (bleu.MAIN, bleu.PAPER)
        },
    )
    scores = bleu.score(hypotheses, pairs.target, language)
    main = scores[bleu.MAIN]
    _log.info("%s: ppl %.3f, BLEU %.2f (%s)", name, measured.ppl, main["score"], main["signature"])
    return {"ppl": measured.ppl, "bleu": scores, "eval_seconds": measured.seconds}


def by_length(
    dataset: dataset_lib.Dataset, hypotheses: Sequence[str], width: int
) -> dict[str, Any]:
    """BLEU on the development set in buckets of source tokens, and beyond those trained on.

    Args:
      dataset: the corpus.
      hypotheses: translations of its development set.
      width: tokens of a bucket.
    """
    lengths = [len(tokens) for tokens in dataset.dev.source_ids]

    def score(bounds: Sequence[int]) -> list[bleu.Bucket]:
        return bleu.score_by_length(hypotheses, dataset.dev.target, lengths, bounds)

    trained = int(dataset.source.lengths[dataset.usable].max())
    return {
        "bleu_by_length": score(bleu.bounds(lengths, width)),
        "bleu_beyond_training": score([trained])[-1] if max(lengths) > trained else None,
    }


def _log_decoding(total: int):
    def progress(done: int) -> None:
        _log.info("translated %s of %s sentences", f"{done:,}", f"{total:,}")

    return progress
