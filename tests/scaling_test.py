"""Bytes and operations read from partitioned programs against known ones; the laws of scaling."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from experiments.scaling import layouts, network, partitioned, predictions
from transformer_jax import models
from transformer_jax.training import sharding
from transformer_jax.training import step as step_lib

HLO = """HloModule hand_written

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%body (p: (s32[], bf16[4,8])) -> (s32[], bf16[4,8]) {
  %x = bf16[4,8]{1,0} get-tuple-element(%p), index=1
  %w = bf16[8,8]{1,0} constant({...})
  %dot.1 = bf16[4,8]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %all-reduce.1 = bf16[4,8]{1,0} all-reduce(%dot.1), replica_groups=[2,4]<=[8], to_apply=%add
  ROOT %t = (s32[], bf16[4,8]{1,0}) tuple(%i, %all-reduce.1)
}

ENTRY %main (p0: f32[2,6]) -> f32[2,6] {
  %loop = (s32[], bf16[4,8]{1,0}) while(%init), condition=%less, body=%body, backend_config={KNOWN}
  %all-reduce.2 = (f32[], /*index=1*/f32[2,6]{1,0}) all-reduce(%s, %p0), replica_groups={}
  %all-gather.1 = s32[16]{0} all-gather(%n), replica_groups={{0,4},{1,5},{2,6},{3,7}}
  %reduce-scatter.1 = pred[3]{0} reduce-scatter(%m), replica_groups=[1,8]<=[8], to_apply=%add
  %all-reduce.3 = f32[999]{0} all-reduce(%q), replica_groups=[8,1]<=[8], to_apply=%add
  ROOT %r = f32[2,6]{1,0} get-tuple-element(%all-reduce.2), index=1
}
"""
TURNS = HLO.replace("{KNOWN}", '{"known_trip_count":{"n":"5"}}')


def compiled(make_config, overrides):
    config = make_config({"model.num_layers": 1, **overrides})
    mesh = sharding.make_mesh(config.mesh)
    model = models.build(config.model, config.data.vocab_size)
    shapes, _ = step_lib.state_shapes_and_shardings(model, config, mesh)
    text = step_lib.compile_step(model, config, mesh).as_text()
    found = partitioned.collectives(partitioned.parse(text or ""), 8)
    return config, sum(leaf.size for leaf in jax.tree.leaves(shapes.params)), found


def test_what_a_text_says_is_counted_as_often_as_it_runs():
    module = partitioned.parse(TURNS)
    assert partitioned.collectives(module, 8) == [
        partitioned.Collective("all-reduce", 4 * 8 * 2, (0, 1, 2, 3), times=5),
        partitioned.Collective("all-reduce", 4 + 2 * 6 * 4, tuple(range(8))),
        partitioned.Collective("all-gather", 16 * 4, (0, 4)),
        partitioned.Collective("reduce-scatter", 3 * 8, tuple(range(8))),
    ]
    assert partitioned.matrix_flops(module) == 5 * 2 * 4 * 8 * 8


def test_a_loop_of_unknown_length_is_no_count():
    module = partitioned.parse(HLO)
    with pytest.raises(ValueError, match="how often"):
        partitioned.collectives(module, 8)
    with pytest.raises(ValueError, match="ENTRY"):
        partitioned.parse("no program")


# As a TPU's compiler writes them: a gather that runs beside a product, in two fusions; an
# all-reduce of which each device keeps a part; a loop whose limit its condition has.
TPU = """HloModule hand_written

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%begin (a.1: bf16[4,8]) -> bf16[32,8] {
  %a.1 = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %g.1 = bf16[32,8]{1,0:T(8,128)(2,1)} all-gather(%a.1), BESIDE
}

%beside (a.2: bf16[4,8], b.2: bf16[8,8]) -> f32[8,8] {
  %a.2 = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  %b.2 = bf16[8,8]{1,0:T(8,128)(2,1)} parameter(1)
  %g.2 = bf16[32,8]{1,0:T(8,128)(2,1)} all-gather(%a.2), BESIDE
  %wide.2 = f32[8,8]{1,0:T(8,128)} convert(%b.2)
  %mixed.2 = f32[8,8]{1,0:T(8,128)} convolution(%b.2, %wide.2), dim_labels=bf_io->bf
  ROOT %both.2 = f32[8,8]{1,0:T(8,128)} convolution(%wide.2, %mixed.2), dim_labels=bf_io->bf
}

%all-reduce-scatter.5 (a.3: f32[16]) -> f32[2] {
  %a.3 = f32[16]{0:T(128)} parameter(0)
  %sum.3 = f32[16]{0:T(128)} all-reduce(%a.3), replica_groups=[1,8]<=[8], to_apply=%add
  ROOT %part.3 = f32[2]{0:T(128)} dynamic-slice(%sum.3, %n), dynamic_slice_sizes={2}
}

%body (p: (s32[])) -> (s32[]) {
  %p = (s32[]) parameter(0)
  ROOT %f.4 = (s32[]{:T(128)}) fusion(%p), kind=kLoop, {"estimated_cycles":"10"}
}

%condition (q: (s32[])) -> pred[] {
  %q = (s32[]) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%q), index=0
  %limit = s32[]{:T(128)} constant(6)
  ROOT %less = pred[]{:T(512)} compare(%i, %limit), direction=LT
}

ENTRY %main (p0: bf16[4,8]) -> f32[2] {
  %p0 = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  %started = bf16[32,8]{1,0:T(8,128)(2,1)} fusion(%p0), kind=kCustom, calls=%begin
  %loop = (s32[]{:T(128)}) while(%init), condition=%condition, body=%body
  %product = f32[8,8]{1,0:T(8,128)} fusion(%p0, %p0), kind=kOutput, calls=%beside
  %more = f32[16]{0:T(128)} fusion(%product), kind=kLoop, {"estimated_cycles":"500"}
  ROOT %scattered = f32[2]{0:T(128)} fusion(%more), kind=kCustom, calls=%all-reduce-scatter.5
}
""".replace("BESIDE", 'channel_id=7, replica_groups=[1,8]<=[8], frontend_attributes={chain_id="3"}')


def test_a_tpus_text_is_read_as_what_it_runs():
    module = partitioned.parse(TPU)
    everyone = tuple(range(8))
    assert partitioned.collectives(module, 8) == [
        partitioned.Collective("all-gather", 32 * 8 * 2, everyone, beside=True),
        partitioned.Collective("reduce-scatter", 16 * 4, everyone),
    ]
    assert partitioned.cycles(module) == 6 * 10 + 500
    assert partitioned.wide_products(module) == ["both.2"]


# As a GPU's compiler writes them; the library is given room for work.
GPU = """HloModule hand_written

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (p0: f32[4,8]) -> f32[4,4] {
  %p0 = f32[4,8]{1,0} parameter(0)
  %n = bf16[4,8]{1,0} fusion(%p0), kind=kLoop, calls=%narrowed
  %c.1 = (f32[4,4]{1,0}, s8[64]{0}) custom-call(%p0, %p0), custom_call_target="__cublas$lt$matmul"
  %c.2 = (f32[4,4]{1,0}, s8[64]{0}) custom-call(%n, %n), custom_call_target="__cublas$lt$matmul"
  %s = f32[4,4]{1,0} all-reduce-start(%c.1), channel_id=1, replica_groups={{0,1}}, to_apply=%add
  ROOT %d = f32[4,4]{1,0} all-reduce-done(%s)
}

%narrowed (a: f32[4,8]) -> bf16[4,8] {
  %a = f32[4,8]{1,0} parameter(0)
  ROOT %b = bf16[4,8]{1,0} convert(%a)
}
"""


def test_a_gpus_text_is_read_as_what_it_runs():
    module = partitioned.parse(GPU)
    assert partitioned.wide_products(module) == ["c.1"]
    assert partitioned.collectives(module, 2) == [
        partitioned.Collective("all-reduce", 64, (0, 1), beside=True)
    ]
    assert partitioned.moved_bytes(module) == (128 + 64) + (64 + 2 * 128) + (64 + 2 * 64)


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("{{0,2},{1,3}}, x", (0, 2)),
        ("[4,2]<=[8], x", (0, 1)),
        ("[2,4]<=[4,2]T(1,0), x", (0, 2, 4, 6)),
        ("mesh['a'=2,'b'=4] {'b'}, x", (0, 1, 2, 3)),
        ("mesh['a'=2,'b'=4] {'a'}, x", (0, 4)),
        ("mesh['a'=2,'b'=1,'c'=4] {'a','c'}, x", tuple(range(8))),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}, x", (0, 2, 4, 6)),
    ],
)
def test_every_form_of_groups_is_read(text, group):
    line = f"  %c = f32[3]{{0}} all-reduce(%x), replica_groups={text}"
    module = partitioned.parse(f"ENTRY %main (p: f32[3]) -> f32[3] {{\n{line}\n}}\n")
    assert [one.group for one in partitioned.collectives(module, 8)] == [group]


def test_collectives_written_by_hand_send_what_was_written():
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def program(x):  # 8 × 16 on each device
        def turn(carry, _):
            return jax.lax.psum(carry, "b") / 4, None

        summed, _ = jax.lax.scan(turn, x[0], length=3)
        gathered = jax.lax.all_gather(x, "b")  # 4 × 8 × 16
        scattered = jax.lax.psum_scatter(x, "a", tiled=True)  # of 8 × 16
        return jax.lax.psum(summed.sum() + gathered.sum() + scattered.sum(), ("a", "b"))

    whole = jax.ShapeDtypeStruct((16, 64), jnp.float32)
    split = jax.shard_map(
        program,
        mesh=mesh,
        in_specs=PartitionSpec("a", "b"),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    text = jax.jit(split).lower(whole).compile().as_text()
    found = partitioned.collectives(partitioned.parse(text or ""), 8)
    by_kind = {one.kind: one for one in found if one.kind != "all-reduce"}
    assert by_kind["all-gather"].array_bytes == 4 * 8 * 16 * 4
    assert by_kind["all-gather"].group == (0, 1, 2, 3)
    assert by_kind["reduce-scatter"].array_bytes == 8 * 16 * 4
    assert by_kind["reduce-scatter"].group == (0, 4)
    assert (3 * 16 * 4, (0, 1, 2, 3)) in {(one.times * one.array_bytes, one.group) for one in found}


@pytest.mark.parametrize("size", [2, 3, 8])
def test_bytes_sent_are_those_of_a_ring_walked_step_by_step(size):
    array = 24 * size
    parts = [{part: {device} for part in range(size)} for device in range(size)]
    sent = 0
    for step in range(2 * (size - 1)):  # first the sums travel, then the results
        for device in range(size):
            part = (device - step) % size
            there = parts[(device + 1) % size]
            there[part] = there[part] | parts[device][part]
            sent += array // size if device == 0 else 0
    assert all(holders == set(range(size)) for each in parts for holders in each.values())
    group = tuple(range(size))
    assert partitioned.Collective("all-reduce", array, group).sent_bytes == pytest.approx(sent)
    assert partitioned.Collective("all-gather", array, group).sent_bytes == pytest.approx(sent / 2)


@pytest.mark.parametrize("parts", [1, 2])
def test_each_part_sums_all_gradients_and_the_shared_matrix_three_times(make_config, parts):
    overrides = {"mesh.data": 8, "train.accumulation_steps": parts, "train.batch_tokens": 1024}
    config, parameters, found = compiled(make_config, overrides)
    shared = config.data.vocab_size * config.model.d_model  # source, target and logits, each apart
    losses = 3
    assert {(one.kind, one.group, one.times) for one in found} == {
        ("all-reduce", tuple(range(8)), parts)
    }
    total = partitioned.total_bytes(found, "all-reduce")
    assert total == parts * 4 * (parameters + 2 * shared + losses)


def test_fsdp_gathers_its_parameters_and_no_activations(make_config):
    config, parameters, found = compiled(make_config, {"mesh.data": 1, "mesh.fsdp": 8})
    gathered = partitioned.total_bytes(found, "all-gather")
    # Norms and the feed-forward's inner biases have no axis that is shared out.
    sizes = config.model
    whole = sizes.num_layers * (5 * 2 * sizes.d_model + 2 * sizes.d_ff)
    assert 4 * (parameters - whole) <= gathered <= 2 * 4 * parameters  # backwards perhaps once more
    shared = config.data.vocab_size * config.model.d_model
    summed = partitioned.total_bytes(found, "all-reduce")
    # The batch's activations of one layer alone would be more than all of it.
    assert summed <= 4 * (parameters + 2 * shared + config.train.batch_tokens)


def test_published_rates_give_known_times():
    torus, nodes = (network.accelerator(kind).network for kind in ("v5e", "H100"))
    pod, ring = tuple(range(256)), tuple(range(8))
    assert (torus.rate((0, 1)), torus.rate(ring), torus.rate(pod)) == (50e9, 100e9, 200e9)
    assert torus.latency("all-gather", ring) == pytest.approx(4e-6)  # 2 × 4 chips
    assert torus.latency("all-reduce", pod) == pytest.approx(60e-6)
    assert (nodes.rate(ring), nodes.rate(pod)) == (450e9, 400e9)
    assert nodes.rate((0, 8, 16)) == 50e9  # one of each node: the others' ports serve others
    assert nodes.latency("all-reduce", tuple(range(16))) == pytest.approx((8.4 + 56 + 28) * 1e-6)


def predicted(devices, seconds, sending=0.0):
    layout = layouts.Layout("base", devices, 1, 1, 256)
    times = (network.StepTime(seconds, 0.0, sending), network.StepTime(64.0, 0.0, 0.0))
    return predictions.Prediction(layout, *times)


def test_efficiency_is_whole_without_sending_and_ends_where_sending_rules():
    assert predicted(8, 8.0).exposed == predicted(8, 8.0).hidden == 1
    both = predicted(8, 8.0, sending=4.0)
    assert (both.hidden, both.exposed) == (1, pytest.approx(2 / 3))
    series = [predicted(n, 64 / n, sending=4.0) for n in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    slower = predicted(4, 60.0)
    # At 16 devices products take 4 and sending 4; the slower layout of 4 counts for nothing.
    assert predictions.half_efficient([*series, slower]).layout.devices == 16
    assert predictions.worth_having([*series, slower]).layout.devices == 128  # then 4.5 to 4.25
