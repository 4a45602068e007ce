"""Training steps and beam search as XLA compiles them for eight TPU v5e, which needs no TPU.

Nothing runs. `make accelerators` installs the compiler, libtpu, into an environment of its own.
"""

import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from jax.experimental import topologies

from configs import base, toy
from experiments.benchmarks import hlo
from tests import compiling
from transformer_jax import config as config_lib
from transformer_jax import errors, models, sequences
from transformer_jax.decoding import beam_search, translator
from transformer_jax.distributed import memory, sharding
from transformer_jax.training import loop
from transformer_jax.training import step as step_lib

# Without these, libtpu looks for a TPU's host and for another process that holds its chips.
NO_TPU_HERE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
HBM = 15.75 * 2**30  # bytes of a v5e that a program may use
CONFIGS = {"base": base, "toy": toy}
STEPS = {"base": {}, "toy": {"train.batch_tokens": 480, "mesh.fsdp": 2, "mesh.tensor": 2}}
# The compiler's estimate for base's step at the paper's batch, by the lock's JAX and libtpu
# 0.0.42.1. Record it anew where a change lowers it.
BASE_CYCLES = 28_080_000
LOCK = pathlib.Path("requirements.lock").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def chips(compile_once: None) -> Sequence[Any]:
    """Eight described v5e; programs are compiled with all passes, as a user's, and not cached."""
    for_users = compiling.as_for_users()
    os.environ.clear()
    os.environ.update(for_users | NO_TPU_HERE)
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_compilation_cache_dir", None)
    return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices


@pytest.fixture(scope="module", params=STEPS)
def step(request: pytest.FixtureRequest, chips: Sequence[Any]) -> jax.stages.Compiled:
    return step_lib.compile_step(*built(configured(request.param, STEPS[request.param]), chips))


def configured(name: str, overrides: Mapping[str, Any]) -> config_lib.Config:
    found = CONFIGS[name].get_config()
    found.update_from_flattened_dict({"model.compute_dtype": "bfloat16", **overrides})
    return config_lib.from_mapping(found.to_dict())


def built(
    config: config_lib.Config, chips: Sequence[Any]
) -> tuple[Any, config_lib.Config, jax.sharding.Mesh]:
    model = models.build(config.model, config.data.vocab_size, "tpu")
    return model, config, sharding.make_mesh(config.mesh, chips)


def read(program: jax.stages.Compiled) -> hlo.Module:
    return hlo.read(program.as_text() or "")


def bytes_of(program: jax.stages.Compiled) -> int:
    found = memory.of_program(program)
    assert found is not None
    return found


def products(module: hlo.Module) -> list[list[str]]:
    """The types of the two operands of each matrix product."""
    named = {one.name: one for block in module.computations.values() for one in block}
    return [
        [named[operand].shape.split("[")[0] for operand in one.operands[:2]]
        for one in named.values()
        if one.opcode in ("dot", "convolution")
    ]


def cycles(module: hlo.Module, computation: str) -> int:
    """The estimate for a computation: bodies of loops count as often as they run.

    The estimate of a fusion covers what it holds. Collectives, scatters and sorts have none.
    """
    total = 0
    for one in module.computations[computation]:
        if estimate := re.search(r'"estimated_cycles":"(\d+)"', one.attributes):
            total += int(estimate[1])
        elif inside := sum(cycles(module, called) for called in one.called):
            total += inside * (module.turns(one) if one.opcode == "while" else 1)
    return total


# As a TPU's compiler writes them: a loop of 6 turns, since a counter of its body grows by 2 to 11,
# and a fusion whose estimate covers what it holds.
TURNS = """HloModule hand_written

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %two = s32[] constant(2)
  %next = s32[] add(%i, %two)
  %x = f32[8] fusion(%p), kind=kLoop, calls=%held, {"estimated_cycles":"10"}
  ROOT %pair = (s32[], f32[8]) tuple(%next, %x)
}

%condition (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]) parameter(0)
  %i.1 = s32[] get-tuple-element(%q), index=0
  %limit = s32[] constant(11)
  ROOT %less = pred[] compare(%i.1, %limit), direction=LT
}

%held (a: f32[8]) -> f32[8] {
  ROOT %sum = f32[8] add(%a, %a), {"estimated_cycles":"7"}
}

ENTRY %main (p0: f32[8]) -> f32[8] {
  %loop = (s32[], f32[8]) while(%init), condition=%condition, body=%body
  ROOT %y = f32[8] fusion(%loop), kind=kLoop, calls=%held, {"estimated_cycles":"300"}
}
"""


def test_cycles_of_a_loop_count_as_often_as_it_runs():
    assert cycles(hlo.read(TURNS), "main") == 6 * 10 + 300


def test_a_step_fits_and_its_state_is_donated(step):
    assert bytes_of(step) < HBM
    analysis = step.memory_analysis()
    assert analysis.alias_size_in_bytes > 0
    others = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    assert 0 <= others < 16_384  # four metrics and the tuple's table, each padded


def test_no_product_of_a_bfloat16_step_has_two_float32_operands(step):
    found = products(read(step))
    assert ["bf16", "bf16"] in found
    assert ["f32", "f32"] not in found


@pytest.mark.skipif(
    f"\njax=={jax.__version__} " not in LOCK, reason="the figure is of the lock's compiler"
)
@pytest.mark.parametrize("step", ["base"], indirect=True)
def test_the_step_of_base_takes_the_recorded_cycles(step):
    module = read(step)
    assert cycles(module, module.entry) == pytest.approx(BASE_CYCLES, rel=0.03)


@pytest.mark.parametrize(("name", "most_beside_weights"), [("base", 0.15), ("toy", 0.01)])
def test_beam_search_fits_and_its_beam_is_donated(chips, name, most_beside_weights):
    """Searches 64 sentences of 64 tokens; the limit is in GiB."""
    config = configured(name, {})
    model, _, mesh = built(config, chips)
    search: Any = beam_search.BeamSearch(model, config.decode, mesh)
    source = sequences.Sequences(*[jax.ShapeDtypeStruct((64, 64), jnp.int32)] * 3)
    params = nn.unbox(jax.eval_shape(model.init, jax.random.key(0), source, source))
    params = jax.eval_shape(lambda tree: translator.cast(tree, config.model.dtype), params)
    weights = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))

    def placed(tree: Any, where: jax.sharding.Sharding) -> Any:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree
        )

    params = placed(params, sharding.replicated(mesh))
    start = search._start.lower(params, placed(source, sharding.batch_sharding(mesh))).compile()
    beam = jax.tree.map(
        placed, jax.eval_shape(search._first, params, source), start.output_shardings
    )
    run = search._run.lower(params, beam).compile()
    for program in (start, run):
        assert bytes_of(program) - weights < most_beside_weights * 2**30
    analysis = run.memory_analysis()
    assert analysis.alias_size_in_bytes > 0.9 * analysis.output_size_in_bytes


def test_a_step_that_does_not_fit_is_one_line_with_a_remedy(chips):
    """Weights of one attention are more than a chip has, and no row can be divided."""
    lengths = dict.fromkeys(("data.source_length", "data.target_length"), 32_768)
    long = configured("toy", {"model.num_layers": 1, "train.batch_tokens": 8 * 32_768, **lengths})
    with pytest.raises(
        errors.UserError,
        match=r"^a step does not fit into memory \(RESOURCE_EXHAUSTED.*15\.75G.*\): give a smaller",
    ):
        loop.compile_step(*built(long, chips))
