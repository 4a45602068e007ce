"""Counted parameters and operations, against models counted whole and the compiled program."""

import dataclasses
import functools

import jax
import pytest

from configs import base
from experiments import table3
from experiments.scheduling import dry_run
from experiments.sweep import cost
from transformer_jax import config as config_lib
from transformer_jax import models
from transformer_jax.data import batching
from transformer_jax.distributed import sharding
from transformer_jax.training import step as step_lib


@pytest.mark.parametrize(
    "overrides",
    [{}, {"model.num_kv_heads": 2, "model.d_k": 16}, {"model.architecture": "decoder"}],
    ids=str,
)
def test_operations_are_those_of_the_compiled_forward_pass(make_config, overrides):
    config = make_config(
        {"model.d_model": 128, "model.d_ff": 512, "model.d_v": 16, "data.source_length": 48,
         "train.num_steps": 1, "train.batch_tokens": 64 * 8, **overrides}
    )  # fmt: skip
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    model = models.build(config.model, config.data.vocab_size)
    shapes = step_lib.state_shapes(model, config, mesh)
    batch = batching.fill([[]] * 8, 48, 64)
    program = jax.jit(models.logits, static_argnums=0).lower(model, shapes.params, batch)
    analysis = program.cost_analysis()
    assert analysis is not None
    # The compiler also counts what is not a matrix product: softmax, norms, masks.
    assert 1 <= analysis["flops"] / (cost.training_flops(config) / 3) < 1.15


RECURRENT = {"model.position": "none", "model.num_kv_heads": 0}


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"model.attention_pattern": "interleaved", "model.window": 4, "model.position": "t5"},
        {"model.position": "learned", "model.rematerialise": True, "model.norm_placement": "pre"},
        {**RECURRENT, "model.architecture": "gru"},
        {**RECURRENT, "model.architecture": "lstm", "model.recurrent_attention": "additive"},
        {**RECURRENT, "model.architecture": "conv"},
        {"model.share_stacks": True},
        {"model.position": "relative"},
        {"model.architecture": "decoder"},
    ],
    ids=str,
)  # fmt: skip
def test_layers_after_the_second_are_counted_as_if_they_were_traced(make_config, overrides):
    config = make_config({"model.num_layers": 3, **overrides})
    whole = cost._traced(
        dataclasses.replace(config.model, dropout_rate=0.0, compute_dtype="bfloat16"),
        config.data.vocab_size,
        (config.data.source_length, config.data.target_length),
    )
    assert cost._counted(config) == whole
    mesh = sharding.make_mesh(config_lib.MeshConfig(1, 1, 1), jax.devices()[:1])
    model = models.build(config.model, config.data.vocab_size)
    shapes = step_lib.state_shapes(model, config, mesh)
    assert cost.parameters(config) == sum(leaf.size for leaf in jax.tree.leaves(shapes.params))


def test_a_teacher_costs_its_forward_pass(make_config):
    alone = {
        "model.architecture": "encoder",
        "model.position": "learned",
        "train.objective": "roberta",
        "train.objective_steps": make_config().train.num_steps,
    }
    taught = {**alone, "train.start_from": "x", "train.teacher_layers": 3}
    student, pupil, teacher = (
        make_config({"model.num_layers": layers, **changes})
        for layers, changes in ((1, alone), (1, taught), (3, alone))
    )
    more = cost.training_flops(pupil) - cost.training_flops(student)
    assert more == pytest.approx(cost.training_flops(teacher) / 3)


def test_a_table_is_planned_from_few_traced_layers(monkeypatch):
    """Tracing a layer takes a while, and the table has 120 in each of two passes."""
    traced = []

    @functools.cache
    def counting(sizes, *_):
        traced.append(sizes.num_layers)
        return cost._Counted(1, 1)

    monkeypatch.setattr(cost, "_traced", counting)
    config = config_lib.from_mapping(base.get_config().to_dict())
    dry_run.print_rows(config, table3.ROWS, {})
    seeds = dict.fromkeys(table3.ROWS, 1)
    dry_run.print_prices(config, table3.ROWS, seeds, cost.parse_device("v5e-8"))
    assert len(table3.ROWS) == 20
    assert sum(traced) <= 3 * 13  # sizes that differ in more than the number of layers
