"""Table 1: the layers against loops, the counts against counts by hand, the command as a whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.benchmarks import layer_kinds, measuring
from experiments.results import table1 as report
from experiments.sweep import cost
from transformer_jax import errors, flags, paper
from transformer_jax.models import attention, masks

# A product; a loop of 5 turns, each a product and a fusion of sum and root; a call of a negation.
# By hand: 1 + 5 (1 + 2) + 1 = 17.
HLO = """
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[2,2]{1,0})->f32[2,2]{1,0}}

%fused (p.0: f32[2,2], p.1: f32[2,2]) -> f32[2,2] {
  %p.0 = f32[2,2]{1,0} parameter(0)
  %p.1 = f32[2,2]{1,0} parameter(1)
  %add.1 = f32[2,2]{1,0} add(%p.0, %p.1), metadata={op_name="jit(f)/add(x)" stack_frame_id=3}
  ROOT %sqrt.1 = f32[2,2]{1,0} sqrt(%add.1)
}

%body (arg: (s32[], f32[2,2])) -> (s32[], f32[2,2]) {
  %arg = (s32[], f32[2,2]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %x = f32[2,2]{1,0} get-tuple-element(%arg), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %dot.1 = f32[2,2]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %fusion.1 = f32[2,2]{1,0} fusion(%dot.1, %x), kind=kLoop, calls=%fused
  ROOT %pair = (s32[], /*index=1*/f32[2,2]{1,0}) tuple(%next, %fusion.1)
}

%condition (arg.1: (s32[], f32[2,2])) -> pred[] {
  %arg.1 = (s32[], f32[2,2]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%arg.1), index=0
  %end = s32[] constant(5)
  ROOT %less = pred[] compare(%i.1, %end), direction=LT
}

%minus (p.2: f32[2,2]) -> f32[2,2] {
  %p.2 = f32[2,2]{1,0} parameter(0)
  ROOT %negate.1 = f32[2,2]{1,0} negate(%p.2)
}

ENTRY %main (a: f32[2,2]) -> f32[2,2] {
  %a = f32[2,2]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %aside = f32[2,2]{1,0} tanh(%a)
  %dot.2 = f32[2,2]{1,0} dot(%a, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %start = (s32[], f32[2,2]{1,0}) tuple(%zero, %dot.2)
  %loop = (s32[], f32[2,2]{1,0}) while(%start), condition=%condition, body=%body, BACKEND
  %out = f32[2,2]{1,0} get-tuple-element(%loop), index=1
  ROOT %call.1 = f32[2,2]{1,0} call(%out), to_apply=%minus
}
"""
BACKEND = 'backend_config={"known_trip_count":{"n":"5"}}'


def random(*shape):
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape), jnp.float32)


def chain(function, *arguments):
    text = jax.jit(function).lower(*arguments).compile().as_text()
    assert text
    return measuring.longest_chain(text)


def layer(kind, **sizes):
    default = {"batch": 1, "length": 24, "width": 8, "kernel": 3, "neighbourhood": 4}
    return layer_kinds.KINDS[kind](layer_kinds.Sizes(**{**default, **sizes}))


def flops(kind, **sizes):
    function, shapes = layer(kind, **sizes)
    return cost.matrix_flops(jax.make_jaxpr(function)(*map(jnp.zeros, shapes)).jaxpr)


def test_the_longest_chain_is_that_counted_by_hand():
    assert measuring.longest_chain(HLO.replace("BACKEND", BACKEND)) == 17


def test_a_conditional_counts_its_longest_branch():
    twice = """%twice (p.3: f32[2,2]) -> f32[2,2] {
  %p.3 = f32[2,2]{1,0} parameter(0)
  %negate.2 = f32[2,2]{1,0} negate(%p.3)
  ROOT %sqrt.2 = f32[2,2]{1,0} sqrt(%negate.2)
}

ENTRY"""
    branches = "conditional(%zero, %out, %out), branch_computations={%minus, %twice}"
    text = HLO.replace("BACKEND", BACKEND).replace("call(%out), to_apply=%minus", branches)
    assert measuring.longest_chain(text.replace("ENTRY", twice)) == 1 + 5 * (1 + 2) + 2


def test_what_a_fusion_holds_counts_as_if_it_stood_in_its_place():
    text = """
%fused (p.0: f32[2], p.1: f32[2]) -> f32[2] {
  %p.0 = f32[2]{0} parameter(0)
  %p.1 = f32[2]{0} parameter(1)
  %sqrt.1 = f32[2]{0} sqrt(%p.1)
  %sqrt.2 = f32[2]{0} sqrt(%sqrt.1)
  ROOT %add.1 = f32[2]{0} add(%sqrt.2, %p.0)
}

ENTRY %main (a: f32[2]) -> f32[2] {
  %a = f32[2]{0} parameter(0)
  %tanh.1 = f32[2]{0} tanh(%a)
  ROOT %fusion = f32[2]{0} fusion(%tanh.1, %a), kind=kLoop, calls=%fused
}
"""
    assert measuring.longest_chain(text) == 3  # the roots do not wait for the tangent


def test_a_loop_turns_as_often_as_its_condition_lets_it():
    """As a TPU's compiler writes it."""
    text = HLO.replace(", BACKEND", "")
    assert measuring.longest_chain(text) == 17
    assert measuring.longest_chain(text.replace("constant(5)", "constant(6)")) == 20
    by_two = text.replace("%one = s32[] constant(1)", "%one = s32[] constant(2)")
    assert measuring.longest_chain(by_two) == 1 + 3 * (1 + 2) + 1


def test_a_loop_of_unknown_length_is_refused():
    limit = ("%end = s32[] constant(5)", "%end = s32[] get-tuple-element(%arg.1), index=0")
    with pytest.raises(ValueError, match="how often loop turns"):
        measuring.longest_chain(HLO.replace(", BACKEND", "").replace(*limit))
    with pytest.raises(ValueError, match="ENTRY"):
        measuring.longest_chain("nothing")


def test_compiled_chains_are_those_counted_by_hand():
    x = random(4, 4)
    assert chain(lambda x: x @ x, x) == 1
    assert chain(lambda x: jnp.tanh(x @ x) @ x, x) == 3
    assert chain(lambda x: jnp.tanh(x).T + jnp.sin(x), x) == 2  # side by side, then the sum

    def nested(x):  # 7 × 6 products, each of which needs the one before
        def inner(x, _):
            return x @ x, None

        def outer(x, _):
            return jax.lax.scan(inner, x, length=6)[0], None

        return jax.lax.scan(outer, x, length=7)[0]

    assert chain(nested, x) == 42


@pytest.mark.parametrize("kind", layer_kinds.KINDS)
def test_sequential_operations_grow_as_the_paper_says(kind):
    programs = [measuring.prepare(*layer(kind, length=n)) for n in (128, 256, 512)]
    counts = [program.sequential_operations for program in programs]
    if paper.TABLE1[kind].sequential_power:
        assert counts[2] - counts[1] == 2 * (counts[1] - counts[0]) >= 2 * 128
    else:
        assert counts[0] == counts[1] == counts[2]


@pytest.mark.parametrize("kind", paper.TABLE1)
def test_operations_are_the_papers(kind):
    n, d, k, r = 24, 8, 3, 4
    by_hand = {
        "self-attention": 4 * n**2 * d,
        "recurrent": 4 * n * d**2,
        "convolutional": 2 * k * n * d**2,
        "self-attention, restricted": 4 * (3 * r) * n * d,
    }
    assert flops(kind) == by_hand[kind]
    for axis, power in paper.TABLE1[kind].powers.items():
        doubled = flops(kind, **{report.FIELDS[axis]: 2 * {"n": n, "d": d}[axis]})
        assert doubled == 2**power * by_hand[kind]


@pytest.mark.parametrize(
    ("length", "neighbourhood"), [(12, 4), (11, 4), (13, 4), (5, 1), (1, 1), (7, 20)]
)
def test_restricted_self_attention_is_attention_within_a_window(length, neighbourhood):
    queries, keys, values = random(3, 2, length, 5)
    positions = jnp.arange(length)[None]
    expected = attention.attend(
        queries[:, None],
        attention.KeysValues(keys[:, None], values[:, None]),
        masks.within_window(positions, positions, neighbourhood),
    )[:, 0]
    restricted = jax.jit(layer_kinds.restricted_self_attention, static_argnums=3)
    found = restricted(queries, keys, values, neighbourhood)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_recurrence_and_convolution_equal_loops():
    x, kernel = np.asarray(random(2, 7, 3)), np.asarray(random(4, 3, 3))
    inner, outer = kernel[0], kernel[1]
    state, states = np.zeros((2, 3)), []
    for t in range(7):
        state = np.tanh(x[:, t] @ inner + state @ outer)
        states.append(state)
    np.testing.assert_allclose(
        layer_kinds.recurrent(jnp.asarray(x), jnp.asarray(inner), jnp.asarray(outer)),
        np.stack(states, axis=1),
        rtol=1e-4,
        atol=1e-5,
    )
    expected = np.zeros((2, 7, 3))
    for t in range(7):
        for i in range(4):
            if 0 <= t + i - 1 < 7:
                expected[:, t] += x[:, t + i - 1] @ kernel[i]
    found = layer_kinds.convolutional(jnp.asarray(x), jnp.asarray(kernel))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_exponent_of_a_power_is_found():
    sizes = [3, 5, 8, 20]
    assert report.fit(sizes, [7 * n**2 for n in sizes]) == pytest.approx((2, 1))
    assert report.fit(sizes, [4] * 4) == pytest.approx((0, 1))
    assert report.fit(sizes, [1, 9, 2, 7])[1] < 0.5


def test_sizes_are_whole_numbers_of_at_least_1():
    assert flags.sizes("lengths", ["8", " 4", "8"]) == [4, 8]
    for texts in (["0", "4"], ["-1", "4"], ["4", "x"], ["4", "5.5"], ["4"], ["4", "4"], []):
        with pytest.raises(errors.UserError, match="--widths"):
            flags.sizes("widths", texts)


def test_the_command_writes_table_measurements_and_picture(server, tmp_path):
    done = server.run(
        "experiments.table1", f"--workdir={tmp_path / 'run'}", "--lengths=8,33", "--widths=4,8",
        "--at_length=8", "--at_width=4", "--neighbourhood=2", "--repeats=2",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    assert "2 of 2 rounds timed" in done.stderr
    assert "12 of 12 layers compiled" in done.stderr  # n = 8, d = 4 is on both axes
    table = (tmp_path / "run" / "table1.md").read_text(encoding="utf-8")
    for kind, row in paper.TABLE1.items():
        assert f"| {kind} | {row.complexity} |" in table
        assert kind in done.stdout.decode()
    assert f"JAX {jax.__version__}" in table
    assert (tmp_path / "run" / "table1.png").read_bytes().startswith(b"\x89PNG")
