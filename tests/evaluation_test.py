"""BLEU against counts made by hand, perplexity against one sentence at a time."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax import config as config_lib
from transformer_jax import models, sequences
from transformer_jax.data import batching
from transformer_jax.data import dataset as dataset_lib
from transformer_jax.distributed import sharding
from transformer_jax.evaluation import bleu, evaluators


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


def test_unequal_numbers_of_lines_are_an_error():
    with pytest.raises(ValueError, match="1 hypotheses, but 2 references"):
        bleu.score(["a"], ["a", "b"], "de")


def test_buckets_end_where_the_last_still_has_enough_sentences():
    lengths = [1] * 30 + [7] * 30 + [13] * 19 + [20]
    assert bleu.bounds(lengths, 6) == [6, 12]  # 20 sentences are longer than 12, 1 than 18
    assert bleu.bounds([*lengths[:-2], 5], 6) == [6]
    assert bleu.bounds([5] * 100, 6) == []


def test_bleu_by_length_scores_each_bucket_as_a_corpus_of_its_own():
    references = ["a b c d e", "f g h i j", "k l m n o p", "q r s t u v"]
    hypotheses = ["a b c d e", "f g h x j", "k l m n o p", "q r x t u v"]
    found = bleu.score_by_length(hypotheses, references, [6, 7, 6, 30], [6, 12, 20])
    assert [(b["tokens"], b["sentences"]) for b in found] == [("1-6", 2), ("7-12", 1), ("21-30", 1)]
    alone = bleu.score(hypotheses[3:], references[3:], "en")["sacrebleu_13a"]["score"]
    assert [b["score"] for b in found][::2] == [pytest.approx(100), pytest.approx(alone)]
    assert 0 < found[1]["score"] < 100


def test_perplexity_counts_every_token_of_every_sentence(make_config):
    config = make_config({"data.source_length": 8, "data.target_length": 8})
    model = models.build(config.model, 50)
    example = sequences.Sequences(*[jnp.zeros((1, 1), jnp.int32)] * 3)
    params = jax.jit(lambda key: nn.unbox(model.init(key, example, example)))(jax.random.key(0))
    rng = np.random.default_rng(0)
    # One pair is far longer than the rows of training.
    lengths = [(3, 4), (1, 1), (19, 23), (5, 2)]
    pairs = [[rng.integers(4, 50, n).tolist() for n in pair] for pair in lengths]
    nats, tokens = 0.0, 0
    for source, target in pairs:
        batch = batching.fill([[(source, target)]], 24, 24)
        log_p = jax.nn.log_softmax(jax.jit(models.logits, static_argnums=0)(model, params, batch))
        for position, label in enumerate([*target, 2]):
            nats -= float(log_p[0, position, label])
            tokens += 1
    mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1))
    source, target = map(list, zip(*pairs, strict=True))
    held_out = dataset_lib.HeldOut([""] * 4, [""] * 4, source, target)
    found = evaluators.perplexity(model, held_out, config.data, mesh)(params)
    assert tokens == 4 + 1 + 23 + 2 + 4
    assert found == pytest.approx(math.exp(nats / tokens), rel=1e-4)
