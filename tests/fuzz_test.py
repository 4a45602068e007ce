"""Properties that hold whatever is read: corpora, configurations, the scorer and the tokenizer."""

import gzip
import json
import math
import tempfile
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from configs import toy as toy_config
from tests import tiny
from transformer_jax import config as config_lib
from transformer_jax import errors, files
from transformer_jax.data import corpus as corpus_lib
from transformer_jax.data import text, tokenizer
from transformer_jax.data.toy import generator
from transformer_jax.evaluation import bleu

# The same examples at every run, so that a failure is a change of the code and not of the dice.
FIXED = hypothesis.settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=80,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LINES = st.lists(UNICODE.map(lambda line: line.replace("\n", " ")), min_size=1, max_size=8)
ODD_BYTES = st.binary(max_size=60) | st.text(max_size=20).map(
    lambda line: line.encode("utf-16", "surrogatepass")
)


def one_line(error, name="") -> str:
    """The error's text, which names a thing on one line that can be read."""
    message = str(error)
    assert "\n" not in message
    assert name in message
    assert len(message) < 2000
    return message


def write_corpus(folder, sides, packed=False):
    """Training and development files of the same two sides; returns what the loader is given."""
    for name in ("train", "dev"):
        for end, content in zip(("en", "de"), sides, strict=True):
            path = Path(folder) / f"{name}.{end}"
            path.write_bytes(content)
            if packed:
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
                path.unlink()
    return tiny.data(train=f"{folder}/train", dev=f"{folder}/dev")


def load_or_refuse(sides, packed=False) -> corpus_lib.Pairs | str:
    """The development set that two files hold, or the error that refuses them."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return text.load(write_corpus(folder, sides, packed)).dev
        except errors.UserError as error:
            return one_line(error)


@FIXED
@hypothesis.given(LINES, st.booleans(), st.booleans())
def test_lines_of_a_corpus_are_what_was_written(lines, ends, packed):
    content = "\n".join(lines) + ("\n" if ends else "")
    hypothesis.assume(content)
    loaded = load_or_refuse([content.encode()] * 2, packed)
    expected = lines if ends or lines[-1] else lines[:-1]  # nothing after the last newline
    assert isinstance(loaded, corpus_lib.Pairs)
    assert loaded.source == loaded.target == expected


@FIXED
@hypothesis.given(st.tuples(ODD_BYTES, ODD_BYTES))
def test_any_bytes_are_pairs_of_lines_or_refused(sides):
    loaded = load_or_refuse(sides)
    if isinstance(loaded, corpus_lib.Pairs):
        for side, lines in zip(sides, (loaded.source, loaded.target), strict=True):
            assert "\n".join(lines).encode() == side.removesuffix(b"\n")
    else:
        counts = {len(side.removesuffix(b"\n").split(b"\n")) for side in sides}
        is_utf_8 = [side.decode(errors="ignore").encode() == side for side in sides]
        assert not all(is_utf_8) or not all(sides) or len(counts) == 2


@FIXED
@hypothesis.given(LINES, LINES)
def test_a_packed_corpus_is_the_plain_one(source, target):
    sides = ["".join(f"{line}\n" for line in side).encode() for side in (source, target)]
    plain, packed = load_or_refuse(sides), load_or_refuse(sides, packed=True)
    if isinstance(plain, corpus_lib.Pairs):
        assert plain == packed
    else:
        assert isinstance(packed, str)


@FIXED
@hypothesis.given(
    ODD_BYTES, st.none() | st.tuples(st.integers(0, 99), st.integers(min_value=1, max_value=255))
)
def test_packed_bytes_are_lines_or_refused_as_are_damaged_ones(content, damage):
    packed = bytearray(gzip.compress(content, mtime=0))
    if damage:
        packed[damage[0] % len(packed)] ^= damage[1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.gz"
        path.write_bytes(packed)
        try:
            found = text.read_lines(path)
        except errors.UserError as error:
            one_line(error, "a.gz")
            is_utf_8 = content.decode(errors="ignore").encode() == content
            assert damage or not content or not is_utf_8
        else:
            assert "\n".join(found).encode() == content.removesuffix(b"\n")


BASE = config_lib.from_mapping(toy_config.get_config().to_dict())
FIELDS = [
    f"{section}.{field}" for section, fields in config_lib.to_dict(BASE).items() for field in fields
]
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**400), max_value=10**400)
    | st.floats()
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@FIXED
@hypothesis.given(
    st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=9), ANY, min_size=1, max_size=4)
)
def test_any_overrides_are_a_configuration_or_refused(changes):
    try:
        config = config_lib.replace(BASE, changes)
    except errors.UserError as error:
        one_line(error)
    else:
        values = config_lib.to_dict(config)
        for name, value in changes.items():
            section, field = name.split(".")
            assert values[section][field] == value
        assert config_lib.from_mapping(json.loads(json.dumps(values))) == config


@FIXED
@hypothesis.given(st.dictionaries(st.text(max_size=5), ANY))
def test_a_mapping_of_other_names_is_refused(value):
    with pytest.raises(errors.UserError):
        config_lib.from_mapping(value)
    with pytest.raises(errors.UserError):
        config_lib.from_mapping({**config_lib.to_dict(BASE), "train": value})


@FIXED
@hypothesis.given(st.binary(max_size=40) | ANY.map(lambda value: repr(value)[:99].encode()))
def test_bytes_that_are_no_json_of_a_shape_are_refused(content):
    with pytest.raises(ValueError, match=r"\w"):
        files.parse_json(content, {"a": [float]})


@FIXED
@hypothesis.given(st.lists(st.floats(), max_size=4), st.sampled_from(["Infinity", "1e999"]))
def test_numbers_of_json_are_read_as_they_are_or_refused(values, infinity):
    content = json.dumps({"a": values}).replace("Infinity", infinity).encode()
    if all(map(math.isfinite, values)):
        assert files.parse_json(content, {"a": [float]}) == {"a": values}
    else:
        with pytest.raises(ValueError, match=r"is no JSON|which is no number"):
            files.parse_json(content, {"a": [float]})


DIGESTS = {"corpus": "c", "tokenizer": "t"}


def fingerprint_of(values):
    return config_lib.fingerprint(config_lib.from_mapping(values), DIGESTS)


@FIXED
@hypothesis.given(st.randoms(use_true_random=False))
def test_the_hash_does_not_follow_the_order_of_fields_or_the_spelling_of_numbers(random):
    def respelt(value):
        if isinstance(value, dict):
            items = [(key, respelt(item)) for key, item in value.items()]
            random.shuffle(items)
            return dict(items)
        is_whole = isinstance(value, float) and value.is_integer()
        return int(value) if is_whole and random.random() < 0.5 else value

    values = config_lib.to_dict(BASE)
    assert fingerprint_of(respelt(values)) == config_lib.fingerprint(BASE, DIGESTS)


# Of fields that mean nothing without others.
TAUGHT = config_lib.replace(
    BASE,
    {
        "train.objective": "roberta",
        "train.objective_steps": BASE.train.num_steps,
        "train.start_from": "x",
        "train.teacher_layers": 6,
    },
)
UNCOUNTED = ("mesh", "checkpoint", "log")  # sections that change no result
PATHS = (
    "data.train",
    "data.dev",
    "data.test",
    "data.tfds_dir",
    "data.parsed",
)  # in whose place digests stand


def others(value):
    """Values of the same kind, of which a field allows at least one."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, str):
        return (f"{value}x", "bfloat16")
    return (type(value)(other) for other in (2 * value + 1, value / 2, 0.5, 1, 2))


@pytest.mark.parametrize("name", FIELDS)
def test_the_hash_follows_each_field_that_counts_and_no_other(name):
    section, field = name.split(".")
    needy = name in ("train.objective", "train.objective_steps", "train.teacher_layers")
    base, found = TAUGHT if needy else BASE, []
    for value in others(config_lib.get(base, name)):
        try:
            found.append(config_lib.replace(base, {name: value}))
        except errors.UserError:
            continue
    changed = [config for config in found if config != base]
    assert changed, "no other value was allowed"
    counts = section not in UNCOUNTED and name not in PATHS
    for config in changed:
        hashes = {config_lib.fingerprint(one, DIGESTS) for one in (base, config)}
        assert len(hashes) == 1 + counts, field


SENTENCES = st.lists(st.tuples(UNICODE, UNICODE), min_size=1, max_size=6)
LANGUAGES = st.sampled_from(["de", "en", "fr", "ja", "xx"])


@FIXED
@hypothesis.given(SENTENCES, LANGUAGES, st.randoms(use_true_random=False))
def test_any_sentences_score_the_same_in_any_order(pairs, language, random):
    hypotheses, references = map(list, zip(*pairs, strict=True))
    found = bleu.score(hypotheses, references, language)
    assert all(0 <= variant["score"] <= 100 + 1e-9 for variant in found.values())
    random.shuffle(pairs)
    hypotheses, references = map(list, zip(*pairs, strict=True))
    again = bleu.score(hypotheses, references, language)
    for name, variant in found.items():
        assert again[name]["score"] == pytest.approx(variant["score"])
        assert again[name]["signature"] == variant["signature"]


@FIXED
@hypothesis.given(SENTENCES, LANGUAGES, st.sampled_from([bleu.MAIN, bleu.PAPER]))
def test_counts_of_sentences_add_up_to_the_score(pairs, language, variant):
    hypotheses, references = map(list, zip(*pairs, strict=True))
    counts = bleu.counts(hypotheses, references, language, variant)
    assert counts.shape == (len(pairs), 10)
    assert (counts >= 0).all()
    assert (counts[:, 2:6] <= counts[:, 6:]).all()  # no more n-grams are found than there are
    expected = bleu.score(hypotheses, references, language)[variant]["score"]
    assert bleu.from_counts(counts.sum(axis=0), variant) == pytest.approx(expected)
    halves = np.add(counts[::2].sum(axis=0), counts[1::2].sum(axis=0))
    assert bleu.from_counts(halves, variant) == pytest.approx(expected)


WORDS = st.lists(st.sampled_from("ein Hund schläft im Haus und träumt".split()), min_size=4)


@FIXED
@hypothesis.given(st.lists(WORDS.map(" ".join), min_size=1, max_size=5))
def test_a_translation_that_is_the_reference_scores_100(sentences):
    for variant in bleu.score(sentences, sentences, "de").values():
        assert variant["score"] == pytest.approx(100)


@pytest.fixture(scope="module")
def model():
    train, _ = generator.sentences(300, 2, 0)
    sides = [pair.english for pair in train] + [pair.german for pair in train]
    return tokenizer.PieceTokenizer(tokenizer.train(sides, 400))


@FIXED
@hypothesis.given(sentences=st.lists(UNICODE, max_size=5))
def test_encoding_loses_nothing_but_sentencepieces_own_space(model, sentences):
    ids = model.encode(sentences)
    assert model.decode(ids) == [sentence.replace("\u2581", " ") for sentence in sentences]
    assert all(tokenizer.UNK < piece < model.vocab_size for row in ids for piece in row)


@FIXED
@hypothesis.given(sentences=st.lists(UNICODE, max_size=5), content=st.binary(max_size=50))
def test_bytes_lose_nothing_and_any_of_them_are_decoded(sentences, content):
    ours = tokenizer.ByteTokenizer()
    assert ours.decode(ours.encode(sentences)) == sentences
    ids = [len(tokenizer.SPECIAL) + byte for byte in content]
    assert ours.decode([ids]) == [str(content, "utf-8", "replace")]


@FIXED
@hypothesis.given(content=st.binary(max_size=200))
def test_any_bytes_are_a_sentencepiece_model_or_refused(content):
    with pytest.raises(errors.UserError, match="not a SentencePiece model"):
        tokenizer.PieceTokenizer(content)
