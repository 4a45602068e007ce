"""Laws of the whole model, and the paper's parameter counts."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base as base_config
from experiments import table3
from experiments.sweep import cost
from tests import random_parameters
from transformer_jax import config as config_lib
from transformer_jax import models, paper
from transformer_jax.data import batching
from transformer_jax.models import dropout, interface

VOCABULARY = 50
jitted_logits = jax.jit(models.logits, static_argnums=0)
# Each kind of each part, with kinds of other parts where the parts are independent.
VARIANTS = [
    {},
    {"model.position": "none", "model.feed_forward": "gelu"},
    {"model.position": "learned", "model.feed_forward": "swiglu"},
    {"model.position": "rotary", "model.num_kv_heads": 2},
    {"model.position": "t5", "model.embedding_norm": True},
    {"model.position": "alibi", "model.norm_placement": "pre", "model.norm": "rms_norm"},
    {"model.position": "relative", "model.num_kv_heads": 2, "model.window": 3},
    {"model.window": 2, "model.attention_pattern": "interleaved", "model.global_every": 2},
    {"model.architecture": "rnn", "model.position": "none"},
    {"model.architecture": "gru", "model.position": "none", "model.recurrent_attention": "dot"},
    {"model.architecture": "lstm", "model.position": "none", "model.recurrent_attention": "none"},
    {
        "model.architecture": "lstm",
        "model.position": "none",
        "model.recurrent_attention": "additive",
    },
    {"model.architecture": "conv"},
    {"model.architecture": "conv", "model.kernel_size": 4, "model.position": "learned"},
    {"model.share_stacks": True},
    {"model.architecture": "decoder"},
    {"model.architecture": "decoder", "model.source_attention": "full"},
    {"model.architecture": "decoder", "model.position": "learned", "model.num_kv_heads": 2},
    {"model.architecture": "decoder", "model.position": "t5", "model.source_attention": "full"},
    {"model.architecture": "decoder", "model.position": "rotary", "model.norm_placement": "pre"},
    {
        "model.architecture": "decoder",
        "model.position": "alibi",
        "model.source_attention": "full",
        "model.window": 3,
    },
    {"model.architecture": "decoder", "model.position": "relative"},
]
# Variants that are tested with two layers, where layers can affect each other.
DEEP = [
    {},
    {"model.window": 2, "model.attention_pattern": "interleaved", "model.global_every": 2},
    {"model.architecture": "rnn", "model.position": "none"},
    {"model.architecture": "conv"},
    {"model.share_stacks": True},
    {"model.architecture": "decoder"},
    {"model.architecture": "decoder", "model.source_attention": "full"},
]
every_variant = pytest.mark.parametrize("overrides", VARIANTS, ids=str)


@pytest.fixture
def make_model(make_config):
    def make(overrides):
        layers = {"model.num_layers": 2 if overrides in DEEP else 1}
        model = models.build(make_config({**layers, **overrides}).model, VOCABULARY)
        return model, random_parameters.of(model)

    return make


def sentence(seed, length):
    return np.random.default_rng(seed).integers(4, VOCABULARY, length).tolist()


PAIRS = [(sentence(0, 5), sentence(1, 7)), (sentence(2, 3), sentence(3, 4)), ([9], sentence(4, 2))]


def logits(model, params, rows):
    return np.asarray(jitted_logits(model, params, batching.fill(rows, 24, 24)))


def test_every_kind_is_among_the_variants(make_config):
    decoders = {k for k, v in models.ARCHITECTURES.items() if issubclass(v, interface.Decoder)}
    tables = {**models.KINDS, "architecture": decoders}
    del tables["attention_kernel"]  # the fused one runs on GPUs only
    for field, kinds in tables.items():
        tried = {getattr(make_config(variant).model, field) for variant in VARIANTS}
        missing = {*kinds} - tried
        assert not missing, f"VARIANTS has no line for model.{field}={missing}"
    # Architectures of one class, such as recurrent cells, share their layers.
    deep = {models.ARCHITECTURES[make_config(variant).model.architecture] for variant in DEEP}
    missing = {name for name in decoders if models.ARCHITECTURES[name] not in deep}
    assert not missing, f"DEEP has no line for model.architecture={missing}"


@every_variant
def test_future_target_tokens_do_not_change_logits(make_model, overrides):
    model, params = make_model(overrides)
    source, target = PAIRS[0]
    before = logits(model, params, [[(source, target)]])
    changed = [*target[:4], *sentence(9, 3)]
    after = logits(model, params, [[(source, changed)]])
    # Position t reads the start token and target[:t].
    np.testing.assert_array_equal(before[0, :5], after[0, :5])
    assert np.abs(before[0, 5:8] - after[0, 5:8]).max() > 1e-3


@every_variant
def test_packing_and_padding_change_no_sentences_logits(make_model, overrides):
    model, params = make_model(overrides)
    packed = logits(model, params, [PAIRS])[0]
    start = 0
    for source, target in PAIRS:
        length = len(target) + 1
        alone = logits(model, params, [[(source, target)]])[0, :length]
        np.testing.assert_allclose(packed[start : start + length], alone, rtol=2e-4, atol=2e-5)
        start += length


@every_variant
def test_cached_decoding_equals_the_full_forward_pass(make_model, overrides):
    model, params = make_model(overrides)
    source, _ = PAIRS[0]
    targets = [sentence(5, 6), sentence(6, 6)]
    full = np.stack([logits(model, params, [[(source, target)]])[0] for target in targets])
    row = batching.fill([[(source, [])]], 9, 1).source
    state = jax.jit(lambda row: model.apply(params, row, 2, 7, method="prefill"))(row)
    decode_step = jax.jit(functools.partial(model.apply, method="decode_step"))
    chosen = [0, 1]
    for index in range(7):
        tokens = [[1 if index == 0 else targets[hypothesis][index - 1] for hypothesis in chosen]]
        step, state = decode_step(params, jnp.array(tokens), jnp.int32(index), state)
        np.testing.assert_allclose(step[0], full[chosen, index], rtol=2e-4, atol=2e-5)
        # Beam search exchanges hypotheses, and lets one take the place of another.
        parents = {2: [1, 0], 4: [1, 1]}.get(index, [0, 1])
        state = jax.jit(type(state).select)(state, jnp.array([parents]))
        chosen = [chosen[parent] for parent in parents]


@pytest.mark.parametrize(("kind", "tables"), [("learned", 1), ("t5", 2), ("alibi", 0)])
def test_a_position_kinds_parameters_stand_once_in_a_stack(make_model, kind, tables):
    _, params = make_model({"model.position": kind, "model.num_layers": 2})
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(params)]
    # Embeddings of both stacks share one; what acts on attention has one in each stack.
    assert sum("table" in path for path in paths) == tables


def test_each_self_attention_has_its_own_vectors_of_relative_positions(make_model):
    _, params = make_model({"model.position": "relative", "model.num_layers": 2})
    found = {
        jax.tree_util.keystr(path, simple=True, separator="/").removeprefix("params/"): x.shape
        for path, x in jax.tree.leaves_with_path(params)
        if "position" in jax.tree_util.keystr(path)
    }
    distances, heads, d_k, d_v = 2 * 16 + 1, 4, 6, 2
    attentions = {"encoder": "attention", "decoder": "self_attention"}
    assert found == {
        f"{stack}_{layer}/{attention}/own_position/{name}": (distances, heads * width)
        for stack, attention in attentions.items()
        for layer in range(2)
        for name, width in (("keys", d_k), ("values", d_v))
    }


def test_word_order_is_invisible_to_an_encoder_without_positions(make_model):
    source, target = PAIRS[0]
    shuffled = [source[i] for i in (3, 1, 4, 0, 2)]
    differences = {}
    for kind in ("none", "sinusoidal"):
        model, params = make_model({"model.position": kind})
        one, other = (logits(model, params, [[(s, target)]]) for s in (source, shuffled))
        differences[kind] = np.abs(one - other).max()
    assert differences["none"] < 1e-4 < differences["sinusoidal"]


@pytest.mark.parametrize("kind", ["sinusoidal", "relative"])
def test_bfloat16_stays_close_to_float32(make_model, kind):
    overrides = {"model.position": kind, "model.num_layers": 2}
    model, params = make_model(overrides)
    half, _ = make_model({**overrides, "model.compute_dtype": "bfloat16"})
    exact = logits(model, params, [PAIRS])
    rounded = logits(half, params, [PAIRS]).astype(np.float32)
    real = np.abs(exact).max()
    assert 0 < np.abs(rounded - exact).max() < 0.05 * real


def paper_config(row, vocab_size):
    config = config_lib.from_mapping(base_config.get_config().to_dict())
    return config_lib.replace(config, {**table3.ROWS[row], "data.vocab_size": vocab_size})


@pytest.mark.parametrize(
    "row", [row for row, result in paper.TABLE3.items() if result.params and row != "big"]
)
def test_parameters_are_the_papers(row):
    expected = paper.TABLE3[row].params
    assert expected is not None
    assert abs(cost.parameters(paper_config(row, 40_960)) / 1e6 - expected) < 1


def test_parameters_of_big_are_the_papers():
    assert abs(cost.parameters(paper_config("big", 37_000)) / 1e6 - 213) < 2


class Dropped(nn.Module):
    @nn.compact
    def __call__(self, x, rate):
        return dropout.drop(x, rate, self)


def dropped(x, rate, seed=0):
    return np.asarray(Dropped().apply({}, x, rate, rngs={"dropout": jax.random.key(seed)}))


def test_dropout_is_absent_at_rate_0():
    x = jax.random.normal(jax.random.key(0), (3, 5, 7))
    np.testing.assert_array_equal(dropped(x, jnp.float32(0.0)), x)
    np.testing.assert_array_equal(Dropped().apply({}, x, None), x)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    x = jnp.ones((200, 1001))
    found = dropped(x, jnp.float32(rate))
    values = np.unique(found)
    assert len(values) == 2
    np.testing.assert_allclose(values, [0, 1 / (1 - rate)], rtol=1e-3)
    # Four standard errors of 200,200 draws.
    np.testing.assert_allclose((found == 0).mean(), rate, atol=4 * (rate * (1 - rate) / 2e5) ** 0.5)
    # The halves of a random word, 501 columns apart, know nothing of each other.
    halves = (found == 0)[:, :500] & (found == 0)[:, 501:]
    np.testing.assert_allclose(halves.mean(), rate**2, atol=0.01)


def test_dropout_differs_between_keys():
    x = jnp.ones((10, 10))
    assert (dropped(x, jnp.float32(0.5), 0) != dropped(x, jnp.float32(0.5), 1)).any()
