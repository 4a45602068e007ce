"""What is warned of in a corpus: exchanged languages, and held-out sentences in training."""

import logging

import pytest

from transformer_jax.data import checks, corpus
from transformer_jax.data.toy import generator


def make(train, dev, test=((), ())):
    sets = [corpus.Pairs(list(source), list(target)) for source, target in (train, dev, test)]
    digest = str(hash(str(sets)))
    return corpus.Corpus(*sets, train_digest=digest, digest=digest, provenance={})


@pytest.fixture(scope="module")
def sides():
    train, held_out = generator.sentences(4000, 200, 0)
    return [([s.english for s in part], [s.german for s in part]) for part in (train, held_out)]


def test_a_corpus_in_order_is_not_complained_of(sides, tmp_path, caplog):
    train, dev = sides
    found = checks.run(make(train, dev), "en", "de", tmp_path)
    assert found == {
        "overlap": {"dev": {"of": 200, "sources": 0, "pairs": 0}},
        "misdirected": [],
    }
    assert not caplog.records


class _Heard(logging.Handler):
    """Keeps what is logged; caplog hears it once or twice, as the logger propagates or not."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def test_german_given_as_english_is_noticed_and_where(sides, tmp_path):
    (english, german), dev = sides
    half = len(english) // 2
    mixed = (english[:half] + german[half:], german[:half] + english[half:])
    log, heard = logging.getLogger("transformer_jax"), _Heard()
    log.addHandler(heard)
    try:
        found = checks.run(make(mixed, dev), "en", "de", tmp_path)
        again = checks.run(make(mixed, dev), "en", "de", tmp_path)
    finally:
        log.removeHandler(heard)
    lines = found["misdirected"]
    assert found == again
    assert len(lines) == 20  # both sides of ten samples of the second half
    assert lines[0] == (
        "data.train, pairs 2,001 to 2,199: the source should be en, but reads like de"
    )
    assert all("data.train" in line for line in lines)
    assert sum("exchanged?" in message for message in heard.messages) == 2 * len(lines)
    # A file's ending that names no language.
    assert checks.misdirected(make(mixed, dev), "src", "de") == []
    # The development set alone, exchanged.
    found = checks.run(make((english, german), dev[::-1]), "en", "de", tmp_path)
    assert [line.split(",")[0] for line in found["misdirected"]] == ["data.dev"] * 4


def test_overlap_counts_sentences_and_pairs(tmp_path):
    train = (["a b", "c d", "e f", "c d"], ["A B", "C D", "E F", "C d"])
    dev = (["x", "c d", "c d"], ["X", "C D", "other"])
    test = (["e f", "e f", "y", "z"], ["E F", "E F", "Y", "Z"])
    found = checks.overlap(make(train, dev, test))
    assert found["dev"] == {"of": 3, "sources": 2, "pairs": 1}
    assert found["test"] == {"of": 4, "sources": 2, "pairs": 2}
