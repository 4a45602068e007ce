"""Limits on the lengths of sentences, without running a model."""

import inspect
import os
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax import errors
from transformer_jax.data import batching
from transformer_jax.decoding import translator
from transformer_jax.distributed import memory, sharding


@pytest.mark.parametrize("one_sequence", [False, True])
@pytest.mark.parametrize("max_positions", [8, 12, 300])
def test_a_sentence_with_its_end_and_its_translation_need_positions(
    make_config, max_positions, one_sequence
):
    changes = {"model.max_positions": max_positions, "decode.extra_tokens": 5}
    learned = make_config({**changes, "model.position": "learned"})

    def check(config, *lengths):
        model = types.SimpleNamespace(one_sequence=one_sequence)
        unchecked: Any = types.SimpleNamespace(config=config, model=model)
        translator.Translator._check_lengths(unchecked, [[7] * length for length in lengths])

    # A translation has 5 tokens more than its source, whose EOS counts; in one sequence both share
    # the positions.
    sharing = 1 + one_sequence
    longest = next(
        n for n in range(max_positions, -1, -1) if sharing * (n + 1) + 5 <= max_positions
    )
    check(learned, 0, longest, longest)
    for length in (longest + 1, longest + 2, 10_000):
        message = (
            rf"^sentence 3 has {length} tokens.*extra_tokens=5.*allow at most {longest}: split it$"
        )
        with pytest.raises(errors.UserError, match=message):
            check(learned, 0, longest, length)
        check(make_config(changes), length)  # other positions have no end


@pytest.mark.parametrize("index", range(4))
def test_a_sentence_that_does_not_fit_into_memory_is_named(make_config, monkeypatch, index):
    config = make_config()
    rooms = set()

    def prefill(params, source, width, room, method):
        rooms.add((source.tokens.shape[1], width, room, method))
        return source.tokens + params

    unchecked: Any = types.SimpleNamespace(
        config=config,
        model=types.SimpleNamespace(apply=prefill),
        _mesh=sharding.make_mesh(config.mesh, jax.devices()[:1]),
        _weights=jnp.int32(1),
    )
    batch = batching.fill([[([7] * 1999, [])]], 2000, 1)
    monkeypatch.setattr(memory, "of_program", lambda _: 3 * 2**30)
    for there in (None, 4 * 2**30, 3 * 2**30):
        monkeypatch.setattr(memory, "of_device", lambda _, there=there: there)
        translator.Translator._check_memory(unchecked, batch, index)
    monkeypatch.setattr(memory, "of_device", lambda _: 2 * 2**30)
    message = rf"^sentence {index + 1} has about 2,000 tokens, which need 3\.0 of 2\.0 GiB"
    with pytest.raises(errors.UserError, match=message):
        translator.Translator._check_memory(unchecked, batch, index)
    # Memory for the beam, and for a translation as long as it may be.
    decode = config.decode
    assert rooms == {(2000, decode.beam_size, 2000 + decode.extra_tokens, "prefill")}


@pytest.mark.parametrize(
    ("devices", "platform", "searches"),
    [(1, "cpu", 4), (8, "cpu", 1), (1, "gpu", 1), (1, "tpu", 1), (4, "gpu", 1)],
)
def test_searches_run_in_parallel_on_one_cpu_only(monkeypatch, devices, platform, searches):
    """Several devices, or an accelerator, search the whole batch at once."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4), raising=False)
    each = types.SimpleNamespace(platform=platform)
    mesh: Any = types.SimpleNamespace(size=devices, devices=np.array([each] * devices))
    side_by_side: Any = inspect.unwrap(translator._side_by_side)
    assert side_by_side(4 * translator.FEWEST_ROWS, mesh) == searches
    assert side_by_side(translator.FEWEST_ROWS, mesh) == 1  # too few to divide


def test_only_kernels_and_embeddings_are_cast():
    x = jnp.ones(2)
    params = {"kernel": {"scale": x, "kernel": x}, "embedding": x, "norm": {"bias": x, "scale": x}}
    found = translator.cast(params, jnp.bfloat16)
    cast = {
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(found)
        if leaf.dtype == jnp.bfloat16
    }
    assert cast == {"['kernel']['kernel']", "['embedding']"}
