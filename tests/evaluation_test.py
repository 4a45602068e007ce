"""BLEU against manual counts, perplexity against one sentence at a time."""

import dataclasses
import json
import math
from typing import ClassVar

import jax
import numpy as np
import pytest
import sacrebleu

from tests import random_parameters
from transformer_jax import config as config_lib
from transformer_jax import errors, models
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.distributed import sharding
from transformer_jax.evaluation import bleu, evaluators, measures
from transformer_jax.training import losses


def test_bleu_is_the_geometric_mean_of_counts_made_by_hand():
    # "the cat sat on the mat ." and "a dog" against their references, 7 + 2 = 9 words to 8 + 2.
    hypotheses = ["the cat sat on the mat .", "a dog"]
    references = ["the cat sat on the red mat .", "a dog"]
    # Matching n-grams of the first, of the second; n-grams in the hypotheses.
    precisions = [(7 + 2) / 9, (5 + 1) / 7, (3 + 0) / 5, (2 + 0) / 4]
    expected = 100 * math.exp(1 - 10 / 9) * math.prod(precisions) ** (1 / 4)
    found = bleu.score(hypotheses, references, "en")
    assert found["sacrebleu_13a"]["score"] == pytest.approx(expected)


def test_variants_differ_where_they_should_and_carry_signatures():
    found = bleu.score(["Der Hund schläft heute nacht."], ["Der Hund schläft heute Nacht."], "de")
    for name in ("sacrebleu_13a", "sacrebleu_intl", "paper"):
        lower = found[f"{name}_lowercase"]["score"]
        assert found[name]["score"] < lower == pytest.approx(100)
    for name, variant in found.items():
        assert ("case:lc" in variant["signature"]) == name.endswith("lowercase")
        assert ("tok:intl" in variant["signature"]) == ("intl" in name)


@pytest.mark.parametrize("language", ["zh", "zh-CN", "cmn"])
def test_chinese_has_sacrebleus_tokeniser(language):
    hypotheses, references = ["今天天气很好，我们去公园走走。"], ["今天天气很好，我们去公园散步。"]
    variant = bleu.main_variant(language)
    found = bleu.score(hypotheses, references, language)
    assert next(iter(found)) == variant == "sacrebleu_zh"
    assert found[variant]["score"] == pytest.approx(79.17, abs=0.005)  # sacreBLEU's command line
    counts = bleu.counts(hypotheses, references, language, variant)
    assert bleu.from_counts(counts.sum(0), variant) == pytest.approx(found[variant]["score"])


def test_a_text_that_the_tokeniser_does_not_split_is_named_in_a_warning(caplog):
    for text, language, reason in (
        ("今天天气很好，我们去公园散步。", "de", "that of language de, splits at spaces"),
        ("สวัสดีครับ ผมชื่อสมชาย", "th", "that of language th, splits at spaces"),
        ("今天天气很好，我们去公园散步。", "zh", ""),
        ("Ein Hund 犬 im Haus.", "de", ""),
    ):
        caplog.clear()
        bleu.score([text], [text], language)
        assert reason in caplog.text
        assert bool(caplog.text) == bool(reason)


def test_a_tokeniser_that_is_not_installed_is_named_in_a_warning(caplog, monkeypatch):
    bleu.main_variant.cache_clear()

    class WithoutMecab:
        _TOKENIZER_MAP: ClassVar = {"ja": "ja-mecab"}

        def __init__(self, **_):
            raise RuntimeError("pip install sacrebleu[ja]")

    monkeypatch.setattr("sacrebleu.metrics.bleu.BLEU", WithoutMecab)
    assert bleu.main_variant("ja") == "sacrebleu_13a"
    assert "ja-mecab is not installed: pip install sacrebleu[ja]" in caplog.text
    bleu.main_variant.cache_clear()


def test_sentence_scores_are_sacrebleus():
    pairs = {
        "Der Hund sieht die Katze.": "Der Hund sieht die Katze.",
        "Der Hund findet nicht die Katze.": "Der kleine Hund sieht die Katze heute.",
        "Hund": "Der Hund",
        "ganz anders": "Der Hund sieht.",
        "": "Der Hund",
    }
    counts = bleu.counts(list(pairs), list(pairs.values()), "de", bleu.MAIN)
    for (hypothesis, reference), count in zip(pairs.items(), counts, strict=True):
        expected = sacrebleu.sentence_bleu(hypothesis, [reference]).score
        assert bleu.of_sentence(count) == pytest.approx(expected)


def test_unequal_numbers_of_lines_are_an_error():
    with pytest.raises(ValueError, match="1 hypotheses, but 2 references"):
        bleu.score(["a"], ["a", "b"], "de")


@pytest.mark.parametrize(("name", "prefix"), [("dev", ""), ("test", "test_")])
def test_scoring_writes_the_sets_files(tmp_path, name, prefix):
    pairs = dataset_lib.HeldOut(["a b", "c"], ["d e f g h", "i j k l"], [[5], [6]], [[7], [8]])
    likelihoods = evaluators.Likelihoods(np.array([10.5, 4.0]), np.array([3, 2]))
    measured = evaluators.Measured(likelihoods, ["d e f g x", "i j k l"], 3.0)
    found = evaluators.score(name, pairs, measured, "de", tmp_path)
    assert found["ppl"] == pytest.approx(math.exp((10.5 + 4) / (3 + 2)))
    assert found["eval_seconds"] == 3.0
    assert found["bleu"] == bleu.score(measured.hypotheses, pairs.target, "de")
    left = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    sums = np.sum(json.loads(left.pop(f"{prefix}bleu_counts.json"))[bleu.MAIN], axis=0)
    assert sums[:2].tolist() == [9, 9]  # words, and those of the references
    assert sums[2:6].tolist() == [8, 6, 4, 2]  # n-grams that the reference has
    assert json.loads(left.pop(f"{prefix}nll.json")) == {"nats": [10.5, 4.0], "tokens": [3, 2]}
    assert left == {
        f"{prefix}sources.txt": "a b\nc\n",
        f"{prefix}hypotheses.txt": "d e f g x\ni j k l\n",
        f"{prefix}references.txt": "d e f g h\ni j k l\n",
    }


def test_the_last_bucket_has_enough_sentences():
    lengths = [1] * 30 + [7] * 30 + [13] * 19 + [20]
    assert bleu.bounds(lengths, 6) == [6, 12]  # 20 sentences are longer than 12, 1 than 18
    assert bleu.bounds([*lengths[:-2], 5], 6) == [6]
    assert bleu.bounds([5] * 100, 6) == []


def test_bleu_by_length_scores_each_bucket_as_a_corpus():
    references = ["a b c d e", "f g h i j", "k l m n o p", "q r s t u v"]
    hypotheses = ["a b c d e", "f g h x j", "k l m n o p", "q r x t u v"]
    counts = bleu.counts(hypotheses, references, "en", bleu.MAIN)
    found = measures.MEASURES[bleu.MAIN].by_length(counts, [6, 7, 6, 30], [6, 12, 20])
    assert [(b["tokens"], b["sentences"]) for b in found] == [("1-6", 2), ("7-12", 1), ("21-30", 1)]
    alone = bleu.score(hypotheses[3:], references[3:], "en")["sacrebleu_13a"]["score"]
    assert [b["score"] for b in found][::2] == [pytest.approx(100), pytest.approx(alone)]
    assert 0 < found[1]["score"] < 100


def test_likelihoods_count_every_token_of_every_sentence(make_config):
    """Probabilities are over the tokenizer's ids alone."""
    rows = {"data.source_length": 8, "data.target_length": 8, "data.vocab_size": 50}
    config = make_config(rows)
    model = models.build(config.model, 50 + 8)
    params = random_parameters.of(model)
    rng = np.random.default_rng(0)
    # One pair is far longer than the rows of training.
    lengths = [(3, 4), (1, 1), (19, 23), (5, 2)]
    pairs = [[rng.integers(4, 50, n).tolist() for n in pair] for pair in lengths]
    nats = np.zeros(len(pairs))
    for number, (source, target) in enumerate(pairs):
        batch = batching.fill([[(source, target)]], 24, 24)
        logits = jax.jit(models.logits, static_argnums=0)(model, params, batch)
        log_p = jax.nn.log_softmax(logits[..., :50])
        for position, label in enumerate([*target, 2]):
            nats[number] -= float(log_p[0, position, label])
    mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1))
    source, target = map(list, zip(*pairs, strict=True))
    held_out = dataset_lib.HeldOut([""] * 4, [""] * 4, source, target)
    measure = evaluators.likelihoods(model, held_out.examples, config.data, mesh)
    found = measure(params)
    np.testing.assert_array_equal(found.tokens, [5, 2, 24, 3])
    np.testing.assert_allclose(found.nats, nats, rtol=1e-4)
    assert found.perplexity == pytest.approx(math.exp(nats.sum() / 34), rel=1e-4)
    # Diverged parameters are an error, not a perplexity of NaN.
    with pytest.raises(errors.RunError, match=r"the model diverged \(nan nats per token\)"):
        measure(jax.tree.map(lambda x: x * math.nan, params))


@pytest.mark.parametrize(
    ("beyond", "sentences"), [((-3, -2), None), ((-3, 0), None), ((-3, 1), 1), ((1, 2), 2)]
)
def test_bleu_beyond_training_is_of_sentences_longer_than_all_training_sources(
    make_config, cache_dir, beyond, sentences
):
    dataset = dataset_lib.load(make_config().data, cache_dir)
    longest = int(dataset.source.lengths[dataset.usable].max())
    ids = [[5] * (longest + more) for more in beyond]
    dev = dataset_lib.HeldOut(["a"] * 2, ["a b c d e"] * 2, ids, [[5]] * 2)
    hypotheses = ["a b c d e", "a b c d x"]
    found = evaluators.by_length(dataclasses.replace(dataset, dev=dev), hypotheses, "de", 10)
    bucket = found["bleu_beyond_training"]
    assert (bucket and bucket["sentences"]) == sentences
    if sentences:
        expected = sacrebleu.corpus_bleu(hypotheses[-sentences:], [["a b c d e"] * sentences])
        assert bucket["score"] == pytest.approx(expected.score)


@pytest.mark.parametrize(
    ("changes", "devices", "positions", "in_a_batch", "batches"),
    [
        ({}, 8, 8192, 8, 1),
        ({}, 1, 8192, 5, 1),
        ({}, 1, 16, 2, 3),
        ({}, 1, 4, 1, 5),
        ({}, 2, 24, 4, 2),
        ({"model.architecture": "elmo", "model.position": "none"}, 1, 8192, 5, 1),
    ],
)
def test_batches_of_perplexity_have_the_needed_rows(
    make_config, monkeypatch, changes, devices, positions, in_a_batch, batches
):
    """Each of five pairs fills a row."""
    seen, chunked = [], []
    fill, chunks = batching.fill, losses.chunks
    monkeypatch.setattr(evaluators, "BATCH_TOKENS", positions)
    monkeypatch.setattr(
        batching,
        "fill",
        lambda rows, *shape: seen.append((len(rows), *shape)) or fill(rows, *shape),
    )
    monkeypatch.setattr(
        losses, "chunks", lambda *shape: chunked.append(shape[:2]) or chunks(*shape)
    )
    sizes = {"data.source_length": 4, "data.target_length": 8, "mesh.data": devices}
    config = make_config({**sizes, **changes})
    pairs = dataset_lib.HeldOut([""] * 5, [""] * 5, [[5] * 6] * 5, [[5] * 7] * 5)
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:devices])
    model = models.build(config.model, 50)
    measure = evaluators.likelihoods(model, pairs.examples, config.data, mesh)
    measure(random_parameters.of(model))
    assert seen == [(in_a_batch, 7, 8)] * batches
    outputs = 2 if changes else 1  # at each position, for the words before it and after
    assert chunked == [(in_a_batch // devices, 8 * outputs)]
