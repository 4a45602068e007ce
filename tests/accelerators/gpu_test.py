"""What XLA's compiler for NVIDIA's GPUs makes of the paper's step: that it fits, what it moves.

Nothing is run. What is recorded is of the code as it is, and to be recorded anew where a change
makes it better.
"""

import pathlib

import pytest
from jax.experimental import topologies

from experiments.analysis import plan
from experiments.benchmarks import partitioned
from tests.accelerators import programs
from transformer_jax.distributed import memory

H100 = plan.parse("H100-8")
DESCRIPTION = pathlib.Path(__file__).with_name("h100.txt")  # an H100 SXM, as XLA reads it

# Base, bfloat16, the paper's batch, by data over 8 H100: GB between kernels, collectives.
MOVED = {"plain": 21.2, "fused": 16.0}
COLLECTIVES = {"all-reduce": 5}


@pytest.fixture(scope="module")
def described():
    """Eight described devices."""
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=DESCRIPTION.read_text(), topology="1x1x8"
    )
    return topology.devices


@pytest.fixture(scope="module", params=["plain", "fused"])
def kernel(request):
    return request.param


@pytest.fixture(scope="module")
def base(described, kernel):
    return programs.step(programs.config("base", model__attention_kernel=kernel), described)


def test_the_papers_step_fits_and_gives_its_state_in_place(base):
    needed = memory.of_program(base.program)
    assert needed is not None
    assert needed < 1e9 * H100.memory_gb
    programs.require_donated(base.program)


def test_the_fused_kernel_is_called_once_for_each_attention_and_its_gradient(base, kernel):
    layers = 6
    calls = sum(
        "__cudnn$fmha" in each.attributes
        for block in base.module.computations.values()
        for each in block
    )
    assert calls == (2 * 3 * layers if kernel == "fused" else 0)


def test_kernels_move_the_bytes_that_are_recorded(base, kernel):
    assert programs.moved_bytes(base.module) / 1e9 == pytest.approx(MOVED[kernel], rel=0.05)


def test_nothing_is_multiplied_in_float32(base):
    assert not programs.wide_products(base.module)


def test_gradients_are_sent_beside_the_backward_pass(base):
    assert base.collectives() == COLLECTIVES
    assert all(one.beside for one in partitioned.collectives(base.module, 8))
