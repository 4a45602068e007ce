"""What is read from compiled programs against known ones: the texts of all three compilers."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from experiments.benchmarks import compiled, hlo, network, partitioned
from tests.accelerators import programs
from transformer_jax import models
from transformer_jax.distributed import sharding
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


def sent_by(make_config, overrides):
    config = make_config({"model.num_layers": 1, **overrides})
    mesh = sharding.make_mesh(config.mesh)
    model = models.build(config.model, config.data.vocab_size)
    shapes = step_lib.state_shapes(model, config, mesh)
    text = step_lib.compile_step(model, config, mesh).as_text()
    found = partitioned.collectives(hlo.read(text or ""), 8)
    return config, sum(leaf.size for leaf in jax.tree.leaves(shapes.params)), found


def test_what_a_text_says_is_counted_as_often_as_it_runs():
    module = hlo.read(TURNS)
    assert partitioned.collectives(module, 8) == [
        partitioned.Collective("all-reduce", 4 * 8 * 2, (0, 1, 2, 3), times=5),
        partitioned.Collective("all-reduce", 4 + 2 * 6 * 4, tuple(range(8))),
        partitioned.Collective("all-gather", 16 * 4, (0, 4)),
        partitioned.Collective("reduce-scatter", 3 * 8, tuple(range(8))),
    ]


def test_a_loop_of_unknown_length_is_no_count():
    module = hlo.read(HLO)
    with pytest.raises(ValueError, match="how often"):
        partitioned.collectives(module, 8)
    with pytest.raises(ValueError, match="ENTRY"):
        hlo.read("no program")


# As a TPU's compiler writes them: a gather that runs beside a product, in three fusions; an
# all-reduce of which each device keeps a part; a loop whose limit its condition has, and its body
# what is counted by, so that it turns 6 times; a permute
# that is awaited in the same turn.
TPU = """HloModule hand_written

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%begin (a.1: bf16[4,8]) -> (bf16[32,8], u32[]) {
  %a.1 = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  %g.1 = bf16[32,8]{1,0:T(8,128)(2,1)} all-gather(%a.1), BESIDE
  ROOT %c.1 = (bf16[32,8], u32[]) custom-call(%g.1), custom_call_target="AsyncCollectiveStart"
}

%beside (a.2: bf16[4,8], b.2: bf16[8,8]) -> f32[8,8] {
  %a.2 = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  %b.2 = bf16[8,8]{1,0:T(8,128)(2,1)} parameter(1)
  %g.2 = bf16[32,8]{1,0:T(8,128)(2,1)} all-gather(%a.2), BESIDE
  %wide.2 = f32[8,8]{1,0:T(8,128)} convert(%b.2), {"estimated_cycles":"7"}
  %mixed.2 = f32[8,8]{1,0:T(8,128)} convolution(%b.2, %wide.2), dim_labels=bf_io->bf
  ROOT %both.2 = f32[8,8]{1,0:T(8,128)} convolution(%wide.2, %mixed.2), dim_labels=bf_io->bf
}

%end (a.4: bf16[4,8]) -> bf16[32,8] {
  %a.4 = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  %g.4 = bf16[32,8]{1,0:T(8,128)(2,1)} all-gather(%a.4), BESIDE
  ROOT %c.4 = bf16[32,8] custom-call(%a.4, %g.4), custom_call_target="AsyncCollectiveDone"
}

%all-reduce-scatter.5 (a.3: f32[16]) -> f32[2] {
  %a.3 = f32[16]{0:T(128)} parameter(0)
  %sum.3 = f32[16]{0:T(128)} all-reduce(%a.3), replica_groups=[1,8]<=[8], to_apply=%add
  ROOT %part.3 = f32[2]{0:T(128)} dynamic-slice(%sum.3, %n), dynamic_slice_sizes={2}
}

%body (p: (s32[], u8[64])) -> (s32[], u8[64]) {
  %p = (s32[], u8[64]) parameter(0)
  %u = u8[64]{0} get-tuple-element(%p), index=1
  %i.4 = s32[]{:T(128)} get-tuple-element(%p), index=0
  %two = s32[]{:T(128)} constant(2)
  %n.4 = s32[]{:T(128)} add(%i.4, %two)
  %s.4 = (u8[64], u8[64], u32[], u32[]) collective-permute-start(%u), source_target_pairs={{0,1}}
  %f.4 = s32[]{:T(128)} fusion(%p), kind=kLoop, {"estimated_cycles":"10"}
  %d.4 = u8[64]{0} collective-permute-done(%s.4)
  ROOT %t.4 = (s32[], u8[64]) tuple(%n.4, %d.4)
}

%condition (q: (s32[], u8[64])) -> pred[] {
  %q = (s32[], u8[64]) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%q), index=0
  %limit = s32[]{:T(128)} constant(11)
  ROOT %less = pred[]{:T(512)} compare(%i, %limit), direction=LT
}

ENTRY %main (p0: bf16[4,8]) -> f32[2] {
  %p0 = bf16[4,8]{1,0:T(8,128)(2,1)} parameter(0)
  %started = (bf16[32,8], u32[]) fusion(%p0), kind=kCustom, calls=%begin
  %product = f32[8,8] fusion(%p0, %p0), kind=kOutput, calls=%beside, {"estimated_cycles":"300"}
  %ended = bf16[32,8]{1,0:T(8,128)(2,1)} fusion(%p0), kind=kCustom, calls=%end
  %loop = (s32[]{:T(128)}, u8[64]) while(%init), condition=%condition, body=%body
  %more = f32[16]{0:T(128)} fusion(%product), kind=kLoop, {"estimated_cycles":"500"}
  ROOT %scattered = f32[2]{0:T(128)} fusion(%more), kind=kCustom, calls=%all-reduce-scatter.5
}
""".replace("BESIDE", 'channel_id=7, replica_groups=[1,8]<=[8], frontend_attributes={chain_id="3"}')
GATHER = partitioned.Collective("all-gather", 32 * 8 * 2, tuple(range(8)), beside=True)
PERMUTE = partitioned.Collective("collective-permute", 64, (0, 1), times=6, beside=True)
SCATTER = partitioned.Collective("reduce-scatter", 16 * 4, tuple(range(8)))


def test_a_tpus_text_is_read_as_what_it_runs():
    module = hlo.read(TPU)
    assert partitioned.collectives(module, 8) == [GATHER, PERMUTE, SCATTER]
    assert programs.cycles(module) == 300 + 6 * 10 + 500
    assert programs.wide_products(module) == ["both.2"]
    with pytest.raises(ValueError, match="has no products"):
        programs.wide_products(
            hlo.read(TPU.replace(" dot(", " other(").replace(" convolution(", " other("))
        )


def test_a_collective_hides_as_much_as_stands_before_it_is_awaited(monkeypatch):
    """One that is awaited where it begins hides nothing."""
    cycle = 1 / 1.5e9
    takes = {"all-gather": 280, "collective-permute": 14, "reduce-scatter": 40}
    monkeypatch.setattr(network.Torus, "seconds", lambda _, one: takes[one.kind] * cycle)
    found = compiled.of_text(TPU, 5, "v5e", 8)
    assert found.memory_bytes == 5
    assert found.computing == pytest.approx(860 * cycle)
    assert found.products == pytest.approx(300 * cycle)
    assert found.links == pytest.approx((280 + 6 * 14 + 40) * cycle)
    assert found.sending == pytest.approx((0 + 6 * (14 - 10) + 40) * cycle)
    assert found.seconds == pytest.approx(found.computing + found.sending)
    takes["all-gather"] = 330  # of which the product hides 300
    assert compiled.of_text(TPU, 5, "v5e", 8).sending == pytest.approx(found.sending + 30 * cycle)


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
    module = hlo.read(GPU)
    assert programs.wide_products(module) == ["c.1"]
    assert partitioned.collectives(module, 2) == [
        partitioned.Collective("all-reduce", 64, (0, 1), beside=True)
    ]
    assert programs.moved_bytes(module) == (128 + 64) + (64 + 2 * 128) + (64 + 2 * 64)


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
    module = hlo.read(f"ENTRY %main (p: f32[3]) -> f32[3] {{\n{line}\n}}\n")
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
    found = partitioned.collectives(hlo.read(text or ""), 8)
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
    config, parameters, found = sent_by(make_config, overrides)
    shared = config.data.vocab_size * config.model.d_model  # source, target and logits, each apart
    losses = 3
    assert {(one.kind, one.group, one.times) for one in found} == {
        ("all-reduce", tuple(range(8)), parts)
    }
    total = programs.total_bytes(found, "all-reduce")
    assert total == parts * 4 * (parameters + 2 * shared + losses)


def test_fsdp_gathers_its_parameters_and_no_activations(make_config):
    config, parameters, found = sent_by(make_config, {"mesh.data": 1, "mesh.fsdp": 8})
    gathered = programs.total_bytes(found, "all-gather")
    # Norms and the feed-forward's inner biases have no axis that is shared out.
    sizes = config.model
    whole = sizes.num_layers * (5 * 2 * sizes.d_model + 2 * sizes.d_ff)
    assert 4 * (parameters - whole) <= gathered <= 2 * 4 * parameters  # backwards perhaps once more
    shared = config.data.vocab_size * config.model.d_model
    summed = programs.total_bytes(found, "all-reduce")
    # The batch's activations of one layer alone would be more than all of it.
    assert summed <= 4 * (parameters + 2 * shared + config.train.batch_tokens)
