"""What may be wrong with a corpus though every file is in order: warned of, and recorded."""

import hashlib
import itertools
import logging
import pathlib
from typing import Any

from transformer_jax import files
from transformer_jax.data import corpus as corpus_lib

_log = logging.getLogger(__name__)

BLOCK = 100  # pairs whose language is guessed together
BLOCKS = 20  # such samples of the training set, or up to twice as many of a small one
MOST_LINES = 20  # of the log about exchanged languages
FEWEST_CHARACTERS = 1000  # of a side, to guess its language from


def run(
    corpus: corpus_lib.Corpus, source_language: str, target_language: str, cache_dir: pathlib.Path
) -> dict[str, Any]:
    """Compares sets with each other and sentences with the languages they should be in.

    The training set is read once for each corpus and direction; the findings are kept in the cache,
    and warned of at every start.

    Returns:
      `overlap`: for the development and the test set, how many of its sources occur among the
      training set's, and how many with the same translation. `misdirected`: samples of sentences
      that read like another language, each one line.
    """
    languages = (source_language, target_language)
    key = hashlib.sha256(" ".join((corpus.digest, corpus.test_digest, *languages)).encode())
    path = cache_dir / f"checks-{key.hexdigest()[:16]}.json"
    if not path.exists():
        lines = [] if corpus.dev.trees else misdirected(corpus, *languages)  # trees are in none
        files.write_json(path, {"overlap": overlap(corpus), "misdirected": lines})
    counts = {"of": int, "sources": int, "pairs": int}
    shape = {"overlap": {str: counts}, "misdirected": [str]}
    found = files.read_json(path, shape, "delete it, and the corpus is checked again")
    for name, counts in found["overlap"].items():
        if counts["sources"]:
            _log.warning(
                f"data.{name}: {counts['sources']:,} of its {counts['of']:,} sources occur in the "
                f"training set, {counts['pairs']:,} with the same translation"
            )
    lines = found["misdirected"]
    for line in lines[:MOST_LINES]:
        _log.warning("%s: are languages or files exchanged?", line)
    if len(lines) > MOST_LINES:
        _log.warning("and %d more samples in another language", len(lines) - MOST_LINES)
    return found


def overlap(corpus: corpus_lib.Corpus) -> dict[str, dict[str, int]]:
    """How many held-out sentences, and pairs, occur in the training set too.

    A sentence is the source or, where that is blank, the target.
    """
    held_out = {
        name: list(pairs.read())
        for name, pairs in (("dev", corpus.dev), ("test", corpus.test))
        if len(pairs)
    }
    wanted = {source or target for pairs in held_out.values() for source, target in pairs}
    both = {pair for pair in corpus.train.read() if (pair[0] or pair[1]) in wanted}
    sources = {source or target for source, target in both}
    return {
        name: {
            "of": len(pairs),
            "sources": sum((source or target) in sources for source, target in pairs),
            "pairs": sum(pair in both for pair in pairs),
        }
        for name, pairs in held_out.items()
    }


def misdirected(corpus: corpus_lib.Corpus, source_language: str, target_language: str) -> list[str]:
    """Samples of a set that read like another language than they should, each as one line."""
    import py3langid  # its model takes a moment to read, and is needed once for a corpus

    py3langid.classify("")  # reads it
    languages = (source_language, target_language)
    for language in filter(None, languages):
        if language not in py3langid.langid.IDENTIFIER.labels:
            _log.warning("languages are not checked: %s is none that py3langid knows", language)
            return []
    every = max(len(corpus.train) // (BLOCK * BLOCKS), 1)
    samples = {
        "train": (corpus.train.read(every=every), every),
        "dev": (corpus.dev.read(), 1),
        "test": (corpus.test.read(), 1),
    }
    lines = []
    for name, (pairs, step) in samples.items():
        first = 1
        while block := list(itertools.islice(pairs, BLOCK)):
            last = first + (len(block) - 1) * step
            sides = map("\n".join, zip(*block, strict=True))
            for kind, language, text in zip(("source", "target"), languages, sides, strict=True):
                guess = py3langid.classify(text)[0]
                if len(text) >= FEWEST_CHARACTERS and guess != language:
                    lines.append(
                        f"data.{name}, pairs {first:,} to {last:,}: the {kind} should be "
                        f"{language}, but reads like {guess}"
                    )
            first = last + step
    return lines
