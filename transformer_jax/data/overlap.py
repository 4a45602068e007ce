"""Counts of held-out sentences that occur in the training set."""

import hashlib
import logging
import pathlib

from transformer_jax import files
from transformer_jax.data import corpus as corpus_lib

_log = logging.getLogger(__name__)

Counts = dict[str, dict[str, int]]


def find(corpus: corpus_lib.Corpus, cache_dir: pathlib.Path) -> Counts:
    """Returns the counts of `count` from the cache, and logs a warning for each set with overlap.

    If the cache does not contain the counts, they are computed and cached.
    """
    key = hashlib.sha256(f"{corpus.digest} {corpus.test_digest}".encode())
    path = cache_dir / f"overlap-{key.hexdigest()[:16]}.json"
    if not path.exists():
        files.write_json(path, count(corpus))
    all_counts = files.read_json(path, {}, "delete it, and the corpus is checked again")
    for name, counts in all_counts.items():
        if counts["sources"]:
            _log.warning(
                f"data.{name}: {counts['sources']:,} of its {counts['of']:,} sources occur in the "
                f"training set, {counts['pairs']:,} with the same translation"
            )
    return all_counts


def count(corpus: corpus_lib.Corpus) -> Counts:
    """Counts the held-out sources and pairs that also occur in the training set.

    If the source of a pair is empty, as for a language model, the target is used as the source.

    Returns:
      For each of the sets "dev" and "test" that has pairs: `of`, the number of its pairs;
      `sources`, the number of pairs whose source occurs in the training set; and `pairs`, the
      number of pairs that occur in the training set.
    """
    held_out = {
        name: list(pairs.read())
        for name, pairs in (("dev", corpus.dev), ("test", corpus.test))
        if len(pairs)
    }
    held_out_sources = {source or target for pairs in held_out.values() for source, target in pairs}
    repeated = {
        (source, target)
        for source, target in corpus.train.read()
        if (source or target) in held_out_sources
    }
    sources = {source or target for source, target in repeated}
    return {
        name: {
            "of": len(pairs),
            "sources": sum((source or target) in sources for source, target in pairs),
            "pairs": sum(pair in repeated for pair in pairs),
        }
        for name, pairs in held_out.items()
    }
