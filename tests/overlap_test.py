"""Held-out sentences that occur in the training set."""

import logging

from transformer_jax.data import corpus, overlap


def make(train, dev, test=((), ())):
    sets = [corpus.Pairs(list(source), list(target)) for source, target in (train, dev, test)]
    digest = str(hash(str(sets)))
    return corpus.Corpus(*sets, train_digest=digest, digest=digest, provenance={})


class _Heard(logging.Handler):
    """Collects log records once; caplog may see them twice if the logger propagates."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def test_overlap_counts_sentences_and_pairs_and_warns_at_every_start(tmp_path):
    train = (["a b", "c d", "e f", "c d"], ["A B", "C D", "E F", "C d"])
    dev = (["x", "c d", "c d"], ["X", "C D", "other"])
    test = (["u", "v"], ["U", "V"])
    log, heard = logging.getLogger("transformer_jax"), _Heard()
    log.addHandler(heard)
    try:
        found = [overlap.find(make(train, dev, test), tmp_path) for _ in range(2)]
    finally:
        log.removeHandler(heard)
    dev_counts = {"of": 3, "sources": 2, "pairs": 1}
    assert found == 2 * [{"dev": dev_counts, "test": {"of": 2, "sources": 0, "pairs": 0}}]
    assert heard.messages == 2 * [
        "data.dev: 2 of its 3 sources occur in the training set, 1 with the same translation"
    ]
    test = (["e f", "e f", "y", "z"], ["E F", "E F", "Y", "Z"])
    assert overlap.count(make(train, dev, test))["test"] == {"of": 4, "sources": 2, "pairs": 2}
