"""The laws of scaling, and the tables that are made of compiled programs."""

import dataclasses
import datetime
import gzip

import jax
import pytest

from experiments.benchmarks import compiled, layouts, network, partitioned, scaling_tables
from tests import partitioned_test
from transformer_jax import errors, files
from transformer_jax.training import fitting


def test_published_rates_give_known_times():
    torus = network.torus("v5e")
    pod, ring = tuple(range(256)), tuple(range(8))
    assert (torus.rate((0, 1)), torus.rate(ring), torus.rate(pod)) == (50e9, 100e9, 200e9)
    assert torus.latency("all-gather", ring) == pytest.approx(4e-6)  # 2 × 4 chips
    assert torus.latency("all-reduce", pod) == pytest.approx(60e-6)
    one = partitioned.Collective("all-gather", 800_000, ring, times=3)
    assert torus.seconds(one) == pytest.approx(700_000 / 100e9 + 4e-6)


MADE = ("2026-11-22", "0.10.2", "0.0.42")


def result(chips, computing, sending=0.0, model="base"):
    program = compiled.Program(2**30, computing, computing / 2, sending, sending, 0.0, [])
    return layouts.Result(layouts.Layout(model, chips, 1, 1, 256), program, "", MADE)


def test_efficiency_is_whole_on_the_smallest_slice_and_ends_where_sending_rules():
    none = layouts.Result(layouts.Layout("base", 1, 1, 1, 256), None, "it takes 17 GiB", MADE)
    series = [none, *(result(chips, 64 / chips, 4.0) for chips in (2, 4, 8, 16, 32))]
    assert scaling_tables.smallest(series).layout.chips == 2
    assert scaling_tables.efficiency(series[1], series) == 1
    # 72 chip-seconds on 2, then 32 + 2 × chips.
    assert scaling_tables.efficiency(series[3], series) == pytest.approx(72 / 96)
    assert scaling_tables.pays(series).layout.chips == 16  # 0.5625; on 32 it is 0.375
    slower = result(4, 60.0)
    assert scaling_tables.best([*series, slower]) == scaling_tables.best(series) == series[1:]
    perfect = [result(chips, 64 / chips) for chips in (1, 8, 32)]
    assert [scaling_tables.efficiency(one, perfect) for one in perfect] == [1, 1, 1]
    assert scaling_tables.pays(perfect).layout.chips == 32


def test_a_step_is_computing_and_sending_and_a_run_its_steps():
    one = result(8, 0.020, 0.004)
    assert one.program is not None
    assert one.program.seconds == pytest.approx(0.024)
    assert scaling_tables.hours(one) == pytest.approx(0.024 * 100_000 / 3600)


def test_the_tables_name_what_does_not_fit_and_what_made_them():
    def both(model):
        mesh = [result(chips, 0.2 / chips, 0.002, model) for chips in (4, 8, 16, 32)]
        fsdp = dataclasses.replace(mesh[1], layout=layouts.Layout(model, 1, 8, 1, 256))
        alone = layouts.Layout(model, 1, 1, 1, 256)
        return [layouts.Result(alone, None, "it takes 17 GiB", MADE), *mesh, fsdp]

    later = [dataclasses.replace(one, made=("2026-11-24", *MADE[1:])) for one in both("big")]
    (answer, base, big, sent), made = scaling_tables.of([*both("base"), *later])
    assert made == "Compiled on 2026-11-22 and 2026-11-24 with JAX 0.10.2 and libtpu 0.0.42."
    assert [line[:2] for line in answer.lines] == [["base", "4: data 4"], ["big", "4: data 4"]]
    for steps in (base, big):
        assert steps.lines[0][:4] == ["1", "alone", "96 × 256", "does not fit"]
        assert [line[1] for line in steps.lines[1:]] == [
            *(f"data {n}" for n in (4, 8, 16, 32)),
            "fsdp 8",
        ]
    assert not sent.lines  # these programs have no collectives
    assert scaling_tables.of(both("base"))[1].startswith("Compiled on 2026-11-22 with JAX")


def test_a_model_that_fits_nowhere_is_refused_in_one_line():
    none = layouts.Result(layouts.Layout("big", 1, 1, 1, 256), None, "it takes 17 GiB", MADE)
    with pytest.raises(errors.UserError, match=r"^big fits in no layout .* takes 17 GiB$"):
        scaling_tables.of([result(8, 0.02), none])


def test_only_what_takes_too_much_memory_is_said_not_to_fit(tmp_path, monkeypatch):
    def refuse(error):
        raise error

    layout = layouts.Layout("base", 8, 1, 1, 256)
    monkeypatch.setattr(compiled, "chips", lambda kind, number: [kind] * number)
    monkeypatch.setattr(layouts.importlib.metadata, "version", lambda package: "1")
    for error, kept in (
        (errors.UserError("mesh.tensor does not divide the vocabulary"), False),
        (fitting.TooLittleMemoryError("it takes 17 GiB"), True),
    ):
        monkeypatch.setattr(compiled, "compile_step", lambda *_, error=error: refuse(error))
        if kept:
            layouts.compile_once(layout, tmp_path)
            assert layouts.read(layout, tmp_path).refusal == "it takes 17 GiB"
        else:
            with pytest.raises(errors.UserError, match="does not divide"):
                layouts.compile_once(layout, tmp_path)
            assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("data", "fsdp", "row"), [(64, 1, 256), (16, 4, 256), (1, 5, 128)])
def test_a_layout_that_the_batch_does_not_divide_into_is_refused_in_one_line(
    tmp_path, data, fsdp, row
):
    layout = layouts.parse(f"base-{data}x{fsdp}x1-{row}")
    with pytest.raises(errors.UserError, match=f"which {data * fsdp} devices") as refusal:
        layouts.compile_once(layout, tmp_path)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["base", "base-8x1-256", "small-8x1x1-256", "big-8x0x1-256"])
def test_what_is_no_layout_is_refused_in_one_line(name):
    with pytest.raises(errors.UserError, match=f"^--layouts={name} should be") as refusal:
        layouts.parse(name)
    assert "\n" not in str(refusal.value)


def test_what_was_compiled_is_read_again_and_not_compiled_again(tmp_path, monkeypatch):
    class Compiled:
        def as_text(self):
            return partitioned_test.TPU

    layout = layouts.Layout("base", 8, 1, 1, 256)
    monkeypatch.setattr(compiled, "chips", lambda kind, number: [kind] * number)
    monkeypatch.setattr(compiled, "compile_step", lambda *_: Compiled())
    monkeypatch.setattr(layouts.memory, "of_program", lambda _: 7)
    monkeypatch.setattr(layouts.importlib.metadata, "version", lambda package: f"{package}'s")
    layouts.compile_once(layout, tmp_path)
    monkeypatch.delattr(compiled, "compile_step")
    layouts.compile_once(layout, tmp_path)
    found = layouts.read(layout, tmp_path)
    assert found.program == compiled.of_text(partitioned_test.TPU, 7, "v5e", 8)
    assert not found.refusal
    # What is said of a program's making is of the day and the versions that made it.
    assert found.made == (str(datetime.date.today()), jax.__version__, "libtpu's")


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        ("json", b""),
        ("json", b'{"memory_bytes": 7}'),
        ("json", b'{"memory_bytes": "x", "refusal": "", "date": "", "jax": "", "libtpu": ""}'),
        ("hlo.gz", b"cut"),
        ("hlo.gz", None),
        (
            "hlo.gz",
            gzip.compress(b"HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n", mtime=0),
        ),
    ],
)
def test_what_is_damaged_is_refused_in_one_line(tmp_path, ending, content):
    layout, made = (
        layouts.Layout("base", 8, 1, 1, 256),
        zip(("date", "jax", "libtpu"), MADE, strict=True),
    )
    record = {"memory_bytes": 7, "refusal": "", **dict(made)}
    files.write_json(tmp_path / f"{layout.name}.json", record)
    text = gzip.compress(partitioned_test.TPU.encode())
    files.write(tmp_path / f"{layout.name}.hlo.gz", text)
    assert layouts.read(layout, tmp_path).made == MADE
    damaged = tmp_path / f"{layout.name}.{ending}"
    damaged.unlink()
    if content is not None:
        damaged.write_bytes(content)
    with pytest.raises(errors.UserError, match=r"delete base-8x1x1-256\.json") as refusal:
        layouts.read(layout, tmp_path)
    assert "\n" not in str(refusal.value)
