"""Decoding against exhaustive search and against loops without early stopping."""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import toy
from tests import random_parameters
from transformer_jax import config as config_lib
from transformer_jax import errors, models, sequences
from transformer_jax.data import batching, tokenizer
from transformer_jax.decoding import beam_search
from transformer_jax.distributed import sharding

VOCABULARY = 5  # padding, start, end, unknown and one word; all can be said
EXTRA = 2


MODELS = [
    *((seed, {}) for seed in range(3)),
    (0, {"model.architecture": "decoder"}),
    (1, {"model.architecture": "decoder", "model.source_attention": "full"}),
]
SIZES = {
    "model.num_layers": 1,
    "model.d_model": 8,
    "model.d_ff": 8,
    "model.num_heads": 2,
    "model.d_k": 4,
    "model.d_v": 4,
    "model.max_positions": 64,
}


@pytest.fixture(scope="module", params=MODELS, ids=str)
def random_model(request):
    seed, kind = request.param
    base = config_lib.from_mapping(toy.get_config().to_dict())
    config = config_lib.replace(base, {**SIZES, **kind}).model
    model = models.build(config, VOCABULARY)
    # Larger weights make the model's opinions stronger and the search harder.
    return model, jax.tree.map(lambda x: 2 * x, random_parameters.of(model, seed))


one_model = pytest.mark.parametrize("random_model", MODELS[:1], indirect=True, ids=str)
each_kind_of_state = pytest.mark.parametrize("random_model", MODELS[2:4], indirect=True, ids=str)


SOURCES = [[4, 4, 3], [4], [3, 4]]


every_logit = jax.jit(models.logits, static_argnums=0)
search_of = functools.cache(beam_search.BeamSearch)


def source_rows(sources=SOURCES):
    return batching.fill([[(ids, [])] for ids in sources], 4, 1).source


def next_log_probabilities(model, params, source, prefixes):
    """Returns the log-probabilities of all continuations by full forward passes."""
    rows = [[(source, list(prefix))] for prefix in prefixes]
    # Few shapes, since each is compiled: what follows a prefix changes nothing, nor do other rows.
    number = next(number for number in (4, 64, 256) if number >= len(rows))
    batch = batching.fill(rows + rows[:1] * (number - len(rows)), 4, 4 + 1 + EXTRA)
    logits = every_logit(model, params, batch)[: len(rows), len(prefixes[0])]
    return np.asarray(jax.nn.log_softmax(logits), np.float64)


def penalty(length, alpha, kind):
    return ((5 + length) / 6) ** alpha if kind == "gnmt" else length**alpha


def decode_config(beam_size, alpha=0.6, kind="gnmt"):
    return config_lib.DecodeConfig(beam_size, alpha, kind, EXTRA, 1)


def run(model, params, config, build=search_of, sources=SOURCES):
    found = build(model, config)(params, source_rows(sources))
    rows = found.tokens.tolist()
    ends = [
        row.index(2) + 1 if 2 in row else len(source) + 1 + EXTRA
        for source, row in zip(sources, rows, strict=True)
    ]
    assert not any(any(row[end:]) for row, end in zip(rows, ends, strict=True))
    return [row[:end] for row, end in zip(rows, ends, strict=True)], np.asarray(found.scores)


def test_greedy_takes_the_likeliest_token(random_model):
    model, params = random_model
    tokens, _ = run(model, params, decode_config(1))
    for place, source in enumerate(SOURCES):
        prefix = []
        while len(prefix) < len(source) + 1 + EXTRA and tokenizer.EOS not in prefix:
            table = next_log_probabilities(model, params, source, [prefix])
            prefix.append(int(table[0].argmax()))
        assert tokens[place][: len(prefix)] == prefix


# Under weak opinions and a strong penalty the best hypothesis is a late one.
@pytest.mark.parametrize(
    ("beam_size", "alpha", "kind", "strength"), [(2, 0.6, "gnmt", 1.0), (4, 2.0, "length", 0.3)]
)
def test_the_early_stop_changes_nothing(random_model, beam_size, alpha, kind, strength):
    model, params = random_model
    params = jax.tree.map(lambda x: strength * x, params)
    tokens, scores = run(model, params, decode_config(beam_size, alpha, kind))
    for place, source in enumerate(SOURCES):
        expected, score = plain_beam_search(model, params, source, beam_size, alpha, kind)
        assert tokens[place] == expected
        np.testing.assert_allclose(scores[place], score, rtol=1e-4, atol=1e-6)


@each_kind_of_state
def test_dropping_decided_sentences_and_growing_caches_changes_nothing(random_model, monkeypatch):
    model, params = random_model
    # Weak opinions and a strong penalty make every search go up to the sentence's own limit.
    params, config = jax.tree.map(lambda x: 0.1 * x, params), decode_config(2, 3.0, "length")
    tokens, scores = run(model, params, config)
    at_once = {"STEPS_AT_A_TIME": 1, "SHRINK": 2, "FEWEST_ROWS": 1, "HEADROOM": -2}
    for name, value in at_once.items():
        monkeypatch.setattr(beam_search, name, value)
    kept = []
    rows_of = beam_search._rows
    monkeypatch.setattr(
        beam_search, "_rows", lambda beam, rows: kept.append(len(rows)) or rows_of(beam, rows)
    )
    longer = []
    lengthened = beam_search._lengthened
    monkeypatch.setattr(
        beam_search, "_lengthened", lambda beam: longer.append(beam) or lengthened(beam)
    )
    again, scores_again = run(model, params, config, beam_search.BeamSearch)
    assert again == tokens
    np.testing.assert_allclose(scores_again, scores, rtol=1e-5)
    assert kept, "no sentence left"
    assert longer, "no cache was too short"


def plain_beam_search(model, params, source, beam_size, alpha, kind):
    """Beam search to the length limit, in loops, with lists and full forward passes."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    best = (-math.inf, [])
    limit = len(source) + 1 + EXTRA
    for length in range(1, limit + 1):
        table = next_log_probabilities(model, params, source, [prefix for prefix, _ in live])
        grown = [
            ((*prefix, word), score + table[i][word])
            for i, (prefix, score) in enumerate(live)
            for word in range(VOCABULARY)
        ]
        grown = sorted(grown, key=lambda pair: -pair[1])[: 2 * beam_size]
        for prefix, score in grown:
            if prefix[-1] == tokenizer.EOS:
                best = max(best, (score / penalty(length, alpha, kind), list(prefix)))
        live = [pair for pair in grown if pair[0][-1] != tokenizer.EOS][:beam_size]
    if best[1]:
        return best[1], best[0]
    prefix, score = live[0]
    return list(prefix), score / penalty(limit, alpha, kind)


def test_a_wide_beam_finds_the_best_of_all_hypotheses(random_model):
    model, params = random_model
    alpha = 0.6
    sources = SOURCES[1:]
    # As many hypotheses as there are prefixes of the greatest length: nothing is ever pruned.
    longest = max(map(len, sources)) + 1 + EXTRA
    wide = decode_config((VOCABULARY - 1) ** (longest - 1), alpha)
    tokens, scores = run(model, params, wide, sources=sources)
    for place, source in enumerate(sources):
        limit = len(source) + 1 + EXTRA
        best, best_tokens = -math.inf, []
        known: dict[tuple[int, ...], float] = {(): 0.0}
        words = [word for word in range(VOCABULARY) if word != tokenizer.EOS]
        for length in range(1, limit + 1):
            prefixes = list(itertools.product(words, repeat=length - 1))
            table = next_log_probabilities(model, params, source, prefixes)
            longer = {}
            for prefix, row in zip(prefixes, table, strict=True):
                ended = (known[prefix] + row[tokenizer.EOS]) / penalty(length, alpha, "gnmt")
                if ended > best:
                    best, best_tokens = ended, [*prefix, tokenizer.EOS]
                longer |= {(*prefix, word): known[prefix] + row[word] for word in words}
            known = longer
        assert tokens[place] == best_tokens
        np.testing.assert_allclose(scores[place], best, rtol=1e-4, atol=1e-6)


@one_model
def test_ids_beyond_the_vocabulary_change_nothing(random_model):
    model, params = random_model
    config, rows = decode_config(4), batching.fill([[([3, 3], [])], [([3], [])]], 4, 1)
    fewer = {"params": {**params["params"], "embedding": params["params"]["embedding"][:-1]}}
    alone = beam_search.BeamSearch(model.clone(vocab_size=VOCABULARY - 1), config)
    found = beam_search.BeamSearch(model, config, vocab_size=VOCABULARY - 1)(params, rows.source)
    for one, other in zip(found, alone(fewer, rows.source), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not (np.asarray(found.tokens) == VOCABULARY - 1).any()


@one_model
def test_an_unknown_penalty_lists_the_known_ones(random_model):
    with pytest.raises(errors.UserError, match=r"decode\.penalty='gmnt'.*gnmt, length"):
        beam_search.BeamSearch(random_model[0], decode_config(4, kind="gmnt"))


@each_kind_of_state
def test_sentences_are_sharded_from_the_start(random_model):
    model, params = random_model
    sources = [SOURCES[n % len(SOURCES)] + [4] * (n % 2) for n in range(16)]
    batch = batching.fill([[(ids, [])] for ids in sources], 5, 1)
    mesh = sharding.make_mesh(config_lib.MeshConfig(-1, 1, 1))
    assert mesh.size == 8
    config = decode_config(4)
    search: Any = beam_search.BeamSearch(model, config, mesh)
    source = sharding.put(batch, mesh).source
    beam = search._start(params, source)
    for leaf in jax.tree.leaves(beam._replace(step=None)):
        assert {shard.data.shape for shard in leaf.addressable_shards} == {(2, *leaf.shape[1:])}
    found = search(params, source)
    # One run is of the number of rows at the start; as long as none leave there is no other.
    assert search._run._cache_size() == 1
    alone = beam_search.BeamSearch(model, config)(params, batch.source)
    np.testing.assert_array_equal(found.tokens, alone.tokens)
    # A score is a difference of logits of about 10.
    np.testing.assert_allclose(found.scores, alone.scores, atol=1e-5)


greatest = jax.jit(beam_search._greatest, static_argnums=1)


@pytest.mark.parametrize("size", [8, 100, 1031, 2000, 2048, 2500])
@pytest.mark.parametrize("number", [1, 3, 8])
def test_the_greatest_of_many_equals_are_those_of_a_sort(size, number):
    rng = np.random.default_rng(0)
    for values, low in itertools.product((1, 5, 40), (False, True)):
        x = rng.integers(-values, values, (2, 3, size)).astype(np.float32)
        x[0, 0] = -np.inf  # all words but a few are impossible
        x[0, 0, rng.integers(0, size, 3)] = -1.0
        if low:  # the greatest stand in one chunk, or in the last
            x[1, :, -20:] += 100.0
        order = np.argsort(-x, axis=-1, kind="stable")[..., :number]
        best, places = greatest(x, number)
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(best, np.take_along_axis(x, order, axis=-1))


@pytest.mark.parametrize(
    ("size", "number", "looked_at"),
    [
        (2048, 8, [2048]),  # 16 chunks of 128, of which 8 would be half
        (2176, 8, [17, 8 * 128]),
        (2500, 8, [20, 8 * 125]),  # 125 is the greatest below 128 that leaves no rest
        (37_000, 4, [296, 4 * 125]),
        (2257, 8, [18, 8 * 128]),  # 61 × 37, too small to be chunks
    ],
)
def test_few_logits_are_sorted_and_none_is_copied_needlessly(size, number, looked_at):
    x = jax.ShapeDtypeStruct((2, 3, size), jnp.float32)
    found = jax.make_jaxpr(lambda x: beam_search._greatest(x, number))(x)
    sizes = [
        equation.invars[0].aval.shape[-1]
        for equation in found.eqns
        if equation.primitive.name == "top_k"
    ]
    assert sizes == looked_at
    shapes = [variable.aval.shape for equation in found.eqns for variable in equation.outvars]
    longer = {shape for shape in shapes if len(shape) == 3 and shape[-1] > size}
    assert longer == ({(2, 3, 18 * 128)} if size == 2257 else set())


@one_model
@pytest.mark.parametrize("extra", [2, 50])
def test_caches_start_with_a_multiple_of_the_steps_or_the_largest_size(random_model, extra):
    config = config_lib.DecodeConfig(4, 0.6, "gnmt", extra, 1)
    search: Any = beam_search.BeamSearch(random_model[0], config)
    steps, headroom = beam_search.STEPS_AT_A_TIME, beam_search.HEADROOM
    for length in range(1, 100):
        room = search._room(sequences.Sequences(*[np.zeros((1, length), np.int32)] * 3))
        runs = next(n for n in range(0, 300, steps) if n >= length + headroom)
        assert room == (runs if runs < length + extra else length + extra)


@one_model
def test_a_sentence_is_decided_once_no_open_hypothesis_can_win(random_model):
    model, params = random_model
    search: Any = beam_search.BeamSearch(model, decode_config(2))
    start = search._start(params, source_rows())
    bound = np.asarray(search._penalised(start.scores[:, 0], start.limits))
    for score, step, expected in ((bound - 1, 1, True), (bound, 1, False), (bound + 1, 1, False)):
        beam = start._replace(best_score=jnp.asarray(score), step=jnp.int32(step))
        assert search._searching(beam).tolist() == [expected] * len(SOURCES)
    for step in range(1, 8):  # or once they are as long as they may be
        limits = [len(source) + 1 + EXTRA for source in SOURCES]
        beam = start._replace(step=jnp.int32(step))
        assert search._searching(beam).tolist() == [step < limit for limit in limits]


@one_model
def test_a_search_uses_all_cores_unless_others_run_in_parallel(random_model, monkeypatch):
    asked = []
    jit = jax.jit
    monkeypatch.setattr(
        jax, "jit", lambda *args, **options: asked.append(options) or jit(*args, **options)
    )
    for alone, how in ((False, None), (True, {"xla_cpu_multi_thread_eigen": False})):
        asked.clear()
        beam_search.BeamSearch(random_model[0], decode_config(2), one_core=alone)
        assert {str(options["compiler_options"]) for options in asked} == {str(how)}
