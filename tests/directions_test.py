"""Several directions in one model: examples, tags, scores and errors."""

import collections
import json
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import transformer_jax
from tests import refusals
from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.data import (
    batching,
    corpus,
    dataset,
    directions,
    token_cache,
    toy,
    vocabulary,
)
from transformer_jax.data import examples as examples_lib
from transformer_jax.distributed import sharding
from transformer_jax.evaluation import attention_weights, evaluators

BOTH = {"data.directions": "en-de,de-en"}
EOS = 2


@pytest.fixture(scope="module")
def workdir(train):
    """A finished run of both directions."""
    flags = {**BOTH, "evaluation.score_test": True}
    return train(*(f"--config.{field}={value}" for field, value in flags.items()))


def examples(batches, steps):
    """Counts the pairs of batches: source with EOS and labels."""
    found = collections.Counter()
    for step in range(steps):
        batch = batches[step]
        for row in range(len(batch.labels)):
            for segment in range(1, batch.source.segments[row].max() + 1):
                source = batch.source.tokens[row][batch.source.segments[row] == segment]
                labels = batch.labels[row][batch.target.segments[row] == segment]
                found[tuple(source.tolist()), tuple(labels.tolist())] += 1
    return found


def make_batches(config, data):
    pairs = examples_lib.TranslationExamples(data)
    return batching.PackedBatches(pairs, config, batch_rows=1, num_steps=10_000)


def test_an_epoch_reads_each_pair_once_in_each_direction(make_config, cache_dir):
    config = make_config(BOTH)
    batches = make_batches(config, dataset.load(config.data, cache_dir))
    plain = dataset.load(make_config().data, cache_dir)  # of en-de alone
    german, english = config.data.vocab_size, config.data.vocab_size + 1
    expected = collections.Counter()
    for pair in range(len(plain.source)):
        one, other = plain.source[pair].tolist(), plain.target[pair].tolist()
        for tag, source, target in ((german, one, other), (english, other, one)):
            if len(source) + 2 <= 64 and len(target) + 1 <= 64:  # with tag and EOS in the rows
                expected[(tag, *source, EOS), (*target, EOS)] += 1
    assert examples(batches, batches.plan.epoch_end(0)) == expected


def test_batches_of_both_resume_from_any_step(make_config, cache_dir):
    config = make_config(BOTH)
    data = dataset.load(config.data, cache_dir)
    whole, rest = (
        batching.TrainingBatches([make_batches(config, data)]).from_step(step) for step in (0, 6)
    )
    batches = [next(whole) for _ in range(9)]
    jax.tree.map(np.testing.assert_array_equal, batches[6:], [next(rest) for _ in range(3)])


def test_only_tags_differ_from_the_plain_corpus(make_config, cache_dir):
    config = make_config(BOTH)
    both, plain = (dataset.load(c.data, cache_dir) for c in (config, make_config()))
    tags = {"de": config.data.vocab_size, "en": config.data.vocab_size + 1}
    assert directions.tags(config.data) == tags
    assert both.tokenizer.digest == plain.tokenizer.digest
    assert both.digests.items() > plain.digests.items()
    assert both.dev.source_ids == [[tags["de"], *ids] for ids in plain.dev.source_ids]
    assert both.dev.target_ids == plain.dev.target_ids
    back = both.directions["de-en"]
    assert back.dev.source_ids == [[tags["en"], *ids] for ids in plain.dev.target_ids]
    assert back.dev.target_ids == plain.dev.source_ids
    assert back.test.source == plain.test.target
    # For objectives, which read texts: each sentence once, and without a tag.
    for ours, theirs in zip(both.texts[:2], (plain.source, plain.target), strict=True):
        assert [row.tolist() for row in ours] == [row.tolist() for row in theirs]
    assert set(both.texts.usable) <= set(plain.usable)
    assert vocabulary.size(config) - vocabulary.size(make_config()) >= len(tags)


def test_objectives_ignore_tags(make_config, cache_dir):
    """Only the id of its mask differs, which follows the tags."""
    objective = {"train.objective": "bert_style", "train.objective_steps": 4}
    both, plain = (make_config({**objective, **more}) for more in (BOTH, {}))
    ours, theirs = (
        examples_lib.training(dataset.load(config.data, cache_dir), config)
        for config in (both, plain)
    )
    assert len(ours) == len(theirs)
    words = both.data.vocab_size
    first = words + len(directions.tags(both.data))
    for number in range(0, len(ours), 50):
        one, other = ours.get(1, number), theirs.get(1, number)
        assert list(one.target) == list(other.target)
        assert list(one.source) == [first if token == words else token for token in other.source]
    assert first in {int(token) for number in range(20) for token in ours.get(0, number).source}
    assert first < vocabulary.size(both)


def test_joined_parts_are_read_in_order():
    parts = [corpus.Pairs(list("abc"), list("ABC")), corpus.Pairs(list("de"), list("DE"))]
    joined, pairs = corpus.JoinedPairs(parts), list(zip("abcde", "ABCDE", strict=True))
    assert len(joined) == 5
    for start in range(6):
        assert list(joined.read(start, every=2)) == pairs[start::2]

    def lists(*rows):
        lengths = np.array([len(row) for row in rows], np.int32)
        ids = np.concatenate([np.array(row, np.uint16) for row in rows])
        return token_cache.TokenLists(ids, np.cumsum(lengths, dtype=np.int64), lengths)

    rows = token_cache.JoinedLists([lists([7, 8], [9]), lists([4])], [[65_536], []])
    assert [row.tolist() for row in rows] == [[65_536, 7, 8], [65_536, 9], [4]]
    assert rows.lengths.tolist() == [3, 2, 1]


def test_each_direction_has_its_scores(workdir, commands_cache):
    """Scores equal those of the same model with this main direction."""
    result = json.loads((workdir / "result.json").read_text())
    loaded = transformer_jax.load(workdir)
    turned = config_lib.replace(
        loaded.config, {"data.source_language": "de", "data.target_language": "en"}
    )
    data = dataset.load(turned.data, commands_cache)
    mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1), jax.devices()[:1])
    assert set(result["directions"]) == {"de-en"}
    back, params = result["directions"]["de-en"], jax.device_get(loaded.params)
    for scores, pairs, prefix in ((back, data.dev, ""), (back["test"], data.test, "test_")):
        ppl = evaluators.likelihoods(loaded.model, pairs.examples, turned.data, mesh)(
            params
        ).perplexity
        assert scores["ppl"] == pytest.approx(ppl, rel=1e-5)
        assert "moses.en" in scores["bleu"]["paper"]["signature"]
        for name, lines in (
            ("hypotheses", loaded.translate(pairs.source, to="en")),
            ("references", pairs.target),
        ):
            assert (workdir / f"de-en_{prefix}{name}.txt").read_text().splitlines() == lines
    examples = data.directions["en-de"].dev.examples
    ppl = evaluators.likelihoods(loaded.model, examples, turned.data, mesh)(params).perplexity
    assert result["ppl"] == pytest.approx(ppl, rel=1e-5)
    assert result["data"]["languages"] == ["en", "de"]


def test_translations_are_in_the_requested_language(server, workdir):
    loaded = transformer_jax.load(workdir)
    sentences = [pair.english for pair in toy.sentences(6, 1, 5)[0]]
    german, english = (loaded.encode(sentences, to) for to in ("de", "en"))
    assert loaded.encode(sentences) == german
    assert [row[1:] for row in german] == [row[1:] for row in english]
    assert {row[0] for row in german}.isdisjoint(row[0] for row in english)
    assert loaded.encode([""], "en") == [[]]
    command = ["transformer_jax.translate", f"--workdir={workdir}", "--to=en"]
    done = server.run(*command, stdin="".join(f"{line}\n" for line in sentences).encode())
    assert done.stdout.decode().splitlines() == loaded.translate_ids(english)
    done = server.run("transformer_jax.translate", f"--workdir={workdir}", "--to=fr")
    refusals.assert_refused(done, r"this model translates into de and en, not into fr")


def test_a_model_of_one_direction_translates_into_its_target_only(trained):
    loaded = transformer_jax.load(trained)
    assert loaded.encode(["A dog."], "de") == loaded.tokenizer.encode(["A dog."])
    with pytest.raises(errors.UserError, match=r"translates into de, not into en"):
        loaded.encode(["A dog."], "en")


def test_attention_maps_show_the_tag(workdir):
    maps = attention_weights.collect(transformer_jax.load(workdir), "A dog.", "Ein Hund.")
    assert maps[0].rows[0] == maps[-1].columns[0] == "<2de>"


PAIRS = {  # by prefix and languages
    "one-en-de": [("a dog", "ein Hund"), ("a cat", "eine Katze")],
    "two-en-fr": [("a dog", "un chien"), ("a horse", "un cheval")],
}


@pytest.fixture
def texts(tmp_path):
    """Training and development files of two pairs of languages."""
    for prefix, pairs in PAIRS.items():
        name, *languages = prefix.split("-")
        for kind in ("train", "dev"):
            for side, language in enumerate(languages):
                lines = "".join(f"{pair[side]}\n" for pair in pairs * 40)
                (tmp_path / f"{name}.{kind}.{language}").write_text(lines)
    return tmp_path


def of_texts(make_config, folder, **changes):
    sets = {
        f"data.{kind}": f"{folder}/one.{kind}, {folder}/two.{kind}:fr-en"
        for kind in ("train", "dev")
    }
    listed = {"data.directions": "fr-en,en-fr,en-de", "data.vocabulary": "bytes"}
    return make_config({"data.corpus": "text", **sets, **listed, **changes})


def test_one_run_reads_corpora_of_several_languages(make_config, texts, tmp_path):
    config = of_texts(make_config, texts)
    data = dataset.load(config.data, tmp_path)
    languages = ("de", "en", "fr")
    tags = {config.data.vocab_size + i: language for i, language in enumerate(languages)}
    read = collections.Counter()
    for pair in data.usable.tolist():
        tag, *source = data.source[pair].tolist()
        read[tags[tag], *data.tokenizer.decode([source, data.target[pair].tolist()])] += 1
    expected = {("de", *pair) for pair in PAIRS["one-en-de"]}
    expected |= {("fr", *pair) for pair in PAIRS["two-en-fr"]}
    expected |= {("en", *pair[::-1]) for pair in PAIRS["two-en-fr"]}
    assert read == dict.fromkeys(expected, 40)
    assert data.dev.source[:2] == ["a dog", "a cat"]
    assert list(data.directions) == ["fr-en", "en-fr"]
    assert data.directions["en-fr"].dev.target[:2] == ["un chien", "un cheval"]
    before = dict(data.digests)
    (texts / "two.dev.fr").write_text("un chien\nun poney\n" * 40)
    after = dataset.load(config.data, tmp_path).digests
    assert [name for name in before if before[name] != after[name]] == ["directions"]


@refusals.table(
    ("no pair", {"data.directions": "en"}, r"directions='en' should list directions, each once"),
    ("twice", {"data.directions": "en-de,en-de"}, r"should list directions, each once"),
    ("into itself", {"data.directions": "en-de,en-en"}, r"should list directions"),
    ("not the main one", {"data.directions": "de-en"}, r"=de-en lacks the main direction, en-de"),
    ("no corpus", {"data.directions": "en-de,en-fr"}, r"toy corpus is in en and de, not in en and"),
)
def test_directions_that_cannot_be_learnt_are_refused(make_config, cache_dir, case):
    changes, message = case
    with pytest.raises(errors.UserError, match=message):
        dataset.load(make_config(changes).data, cache_dir)


@refusals.table(
    (
        "nothing reads it",
        {"data.directions": "en-de"},
        r"no direction between .*two\.train:fr-",
    ),
    ("no such set", {"data.directions": "en-de,en-fr,de-fr"}, r"no path prefix for the dir"),
    ("no such file", {"data.dev": "one.dev,two.dev:en-fr"}, r"there is no file one\.dev\.en"),
)
def test_path_prefixes_that_do_not_suit_directions_are_refused(make_config, texts, tmp_path, case):
    changes, message = case
    with pytest.raises(errors.UserError, match=message):
        dataset.load(of_texts(make_config, texts, **changes).data, tmp_path)


@pytest.mark.slow
def test_a_model_trained_both_ways_translates_into_the_requested_language(server, tmp_path):
    changes = {
        **BOTH,
        "model.num_layers": 2,
        "train.num_steps": 700,
        "train.warmup_steps": 300,
        "data.toy_held_out_pairs": 60,
        "log.dev_every": 0,
    }
    command = [
        *(sys.executable, "-m", "transformer_jax.train", "--config=configs/toy.py"),
        *(f"--config.{field}={value}" for field, value in changes.items()),
        f"--workdir={tmp_path}",
    ]
    subprocess.run(command, check=True, capture_output=True, env=server.environment)
    train, held_out = toy.sentences(4000, 60, 0)
    english, german = (
        {word for pair in train for word in re.findall(r"\w+", getattr(pair, side))}
        for side in ("english", "german")
    )
    for to, source, own, other in (
        ("de", "english", german - english, english - german),
        ("en", "german", english - german, german - english),
    ):
        done = server.run(
            *("transformer_jax.translate", f"--workdir={tmp_path}", f"--to={to}"),
            stdin="".join(f"{getattr(pair, source)}\n" for pair in held_out).encode(),
        )
        words = re.findall(r"\w+", done.stdout.decode())
        assert len(words) > 4 * len(held_out)
        assert sum(word in own for word in words) > 0.8 * len(words)  # names are in both
        assert sum(word in other for word in words) < 0.02 * len(words)
